"""`heapfit top` on the screen, driven by Textual's pilot: what it shows, what its keys do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from heapfit.live import Client
from heapfit.live.top import TopApp
from heapfit.live.top.chooser import Chooser
from heapfit.live.top.watch import Watch
from live_double import Double
from textual.pilot import Pilot
from textual.widgets import Static

pytestmark = pytest.mark.full

ME = os.getpid()
_INTERVAL_S = 0.05
_DEADLINE_S = 60.0

Act = Callable[[Pilot[None]], Awaitable[None]]


def on_screen(act: Act, client: Client | None = None, choose: bool = False) -> None:
    """Run the application without a terminal, and `act` with its keys."""

    async def run() -> None:
        app = TopApp(None if choose else client or Client(ME), _INTERVAL_S)
        async with app.run_test(size=(140, 40), notifications=True) as pilot:
            await act(pilot)

    asyncio.run(run())


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    """Let the application go on until something holds."""

    async def wait() -> None:
        while not holds():
            await pilot.pause(_INTERVAL_S / 2)

    await asyncio.wait_for(wait(), _DEADLINE_S)


def text(pilot: Pilot[None]) -> str:
    """What the screen shows, line by line."""
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in lines)


async def shown(pilot: Pilot[None], *words: str) -> None:
    await until(pilot, lambda: all(each in text(pilot) for each in words))


def test_the_figures_are_on_the_screen(double: Double) -> None:
    async def look(pilot: Pilot[None]) -> None:
        await shown(pilot, str(ME), "live", "footprint", "95.0 MiB", "dirty", "16.0 MiB")
        await shown(pilot, "10/s", "20/s", "75 %", "3 of 5")  # purges, refills, hits, heaps
        await shown(pilot, "free_page_threshold", "unlimited", "4m")
        await shown(pilot, "block size", "50.0k", "▁", "▇")

    on_screen(look)


def test_one_of_several_processes_is_chosen(double: Double) -> None:
    async def choose(pilot: Pilot[None]) -> None:
        await shown(pilot, "which process?", str(ME), "MiB")
        assert isinstance(pilot.app.screen, Chooser)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, Watch))
        await shown(pilot, "95.0 MiB")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, Chooser))

    on_screen(choose, choose=True)


def test_a_command_line_is_no_markup(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(ME)
    odd = client.process.__class__(ME, ME, os.getuid(), "x", ("[bold]not bold[/]", "[/x]"))
    client.process = odd

    async def look(pilot: Pilot[None]) -> None:
        await shown(pilot, "[bold]not bold[/]")
        assert pilot.app.screen.query_one("#title", Static) is not None

    on_screen(look, client=client)
