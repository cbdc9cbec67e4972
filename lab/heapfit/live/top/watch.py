"""The view of one process: its figures, asked for again and again, and the keys that steer it."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from heapfit.errors import HeapfitError
from heapfit.live import figures
from heapfit.live.client import Client
from heapfit.live.figures import Figure
from heapfit.live.processes import Gone
from heapfit.live.rates import Rates, rates_between
from heapfit.live.snapshot import Snapshot, take
from heapfit.live.top.sheet_table import SheetTable

_HISTORY = 240  # looks that are remembered: as many as the widest terminal shows
# What stands beside a sparkline in a panel: the name and the figure.
_NAME_COLUMNS, _FIGURE_COLUMNS, _GAPS = 14, 14, 2


class Watch(Screen[None]):
    """One process. The figures of its last look stay on the screen when it has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("s", "shrink", "Shrink"),
        ("r", "restore", "Restore"),
        ("p", "pause", "Pause"),
        ("c", "tab('classes')", "Classes"),
        ("h", "tab('heaps')", "Heaps"),
        ("t", "tab('options')", "Options"),
        ("escape", "back", "Back"),
    ]

    def __init__(self, client: Client, interval_s: float) -> None:
        super().__init__()
        self._client = client
        self._interval_s = interval_s
        self._snapshot: Snapshot | None = None
        self._rates: Rates | None = None
        self._history: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_HISTORY))
        self._paused = False
        self._looking = False
        self._problem = ""

    # ------------------------------------------------------------- the screen

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with Horizontal(id="panels"):
            yield _panel("memory", "memory")
            yield _panel("activity", "activity")
            yield _panel("thresholds", "in force")
        with TabbedContent(initial="classes"):
            with TabPane("Size classes", id="classes"):
                yield SheetTable(id="classes-table", column="live bytes")
            with TabPane("Heaps", id="heaps"):
                yield SheetTable(id="heaps-table", column="live")
            with TabPane("Options", id="options"):
                yield SheetTable(id="options-table")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(self._interval_s, self._tick)
        self._show_title()
        self._tick()
        self.query_one("#classes-table").focus()

    def on_resize(self) -> None:
        self._show_panels()

    # --------------------------------------------------------------- the looks

    def _tick(self) -> None:
        if not self._paused and not self._looking and self.is_current:
            self._look()

    @work(exclusive=True, group="look")
    async def _look(self) -> None:
        self._looking = True
        try:
            snapshot = await asyncio.to_thread(take, self._client)
        except HeapfitError as error:
            self._problem = str(error)
            self._paused = self._paused or isinstance(error, Gone)
        else:
            self._problem = ""
            self._take_in(snapshot)
        finally:
            self._looking = False
        self._show_title()

    def _take_in(self, snapshot: Snapshot) -> None:
        before = self._snapshot
        self._rates = rates_between(before.stats, snapshot.stats) if before else None
        self._snapshot = snapshot
        for figure in figures.memory(snapshot):
            self._history[figure.name].append(figure.value)
        if self._rates:
            for figure in figures.activity(snapshot, self._rates):
                self._history[figure.name].append(figure.value)
        self._show_panels()
        self._show_tables(snapshot)

    # -------------------------------------------------------------- what shows

    def _show_title(self) -> None:
        process = self._client.process
        title = Text.assemble((f"{process.pid} ", "bold"), process.command_line, no_wrap=True)
        marks = self._marks()
        self.query_one("#title", Static).update(Text("  ").join([title, *marks]))

    def _marks(self) -> list[Text]:
        marks = []
        if self._snapshot and self._snapshot.stats.shrunk:
            marks.append(Text(" SHRUNK ", "black on yellow"))
        if self._problem:
            marks.append(Text(f" {self._problem} ", "white on red"))
        elif self._paused:
            marks.append(Text(" PAUSED ", "black on cyan"))
        return marks

    def _show_panels(self) -> None:
        if self._snapshot is None:
            return
        for name, found in (
            ("memory", figures.memory(self._snapshot)),
            ("activity", figures.activity(self._snapshot, self._rates)),
        ):
            panel = self.query_one(f"#{name}", Static)
            panel.update(self._with_sparks(found, panel.content_size.width))
        self.query_one("#thresholds", Static).update(self._thresholds(self._snapshot))

    def _with_sparks(self, found: list[Figure], width: int) -> Table:
        room = width - _NAME_COLUMNS - _FIGURE_COLUMNS - _GAPS
        rows = _grid(_NAME_COLUMNS, _FIGURE_COLUMNS)
        rows.add_column(no_wrap=True)
        for figure in found:
            bars = figures.spark(self._history[figure.name], room)
            rows.add_row(figure.name, Text(figure.text, "bold"), Text(bars, "cyan"))
        return rows

    def _thresholds(self, snapshot: Snapshot) -> Table:
        rows = _grid(None, None)
        in_force = dict(figures.thresholds(snapshot))
        options = {option.name: option for option in snapshot.options}
        for name, value in in_force.items():
            option = options[name]
            changed = snapshot.in_force(option) != option.initial
            rows.add_row(name, Text(value, "bold yellow" if changed else "bold"))
        return rows

    def _show_tables(self, snapshot: Snapshot) -> None:
        for name, sheet in (
            ("classes", figures.classes(snapshot)),
            ("heaps", figures.heaps(snapshot, self._rates)),
            ("options", figures.options(snapshot)),
        ):
            self.query_one(f"#{name}-table", SheetTable).show_sheet(sheet)

    # ---------------------------------------------------------------- the keys

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._paused = not self._paused
        self._show_title()

    def action_tab(self, name: str) -> None:
        """Show one of the tables."""
        self.query_one(TabbedContent).active = name
        self.query_one(f"#{name}-table").focus()

    def action_back(self) -> None:
        """Go back to the choice of processes, where there was one."""
        if len(self.app.screen_stack) > 2:
            self.app.pop_screen()

    def action_shrink(self) -> None:
        """Turn speed for memory."""
        self._steer(lambda: f"{figures.size(self._client.shrink())} given back")

    def action_restore(self) -> None:
        """Put the options in force again."""
        self._steer(self._restored)

    def _restored(self) -> str:
        self._client.restore()
        return "the options are in force again"

    @work(group="steer")
    async def _steer(self, do: Callable[[], str]) -> None:
        try:
            self.notify(await asyncio.to_thread(do), markup=False)
        except HeapfitError as error:
            self.notify(str(error), severity="error", markup=False)
        else:
            self._tick()


def _panel(name: str, title: str) -> Static:
    panel = Static(id=name, classes="panel")
    panel.border_title = title
    return panel


def _grid(name_columns: int | None, figure_columns: int | None) -> Table:
    """Return an empty table for names and figures, of these widths or as wide as they need."""
    rows = Table.grid(padding=(0, 1))
    rows.add_column(width=name_columns, no_wrap=True, style="dim")
    rows.add_column(width=figure_columns, no_wrap=True, justify="right")
    return rows
