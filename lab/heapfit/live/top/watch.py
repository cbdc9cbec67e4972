"""The view of one process: its figures, asked for again and again, and the keys that steer it."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Footer, Static, TabbedContent, TabPane

from heapfit import text
from heapfit.errors import HeapfitError
from heapfit.host.proc import Gone
from heapfit.live import figures
from heapfit.live.client import LEDGER_TIMEOUT_S, Client
from heapfit.live.figures import Figure, Sheet
from heapfit.live.snapshot import Rates, Snapshot, rates_between, take
from heapfit.live.top.sheet_table import SheetTable

_HISTORY = 240  # looks that are remembered: as many as the widest terminal shows
# How wide the names and the figures are; a sparkline has the rest of the panel.
_NAMES = {"memory": 9, "activity": 14}
_FIGURES, _GAPS = 10, 2


_SHEETS: dict[str, Callable[[Snapshot, Rates | None], Sheet]] = {
    "classes": lambda snapshot, _: figures.classes(snapshot),
    "heaps": figures.heaps,
    "ledger": lambda snapshot, _: figures.ledger(snapshot),
    "options": lambda snapshot, _: figures.options(snapshot),
}


class Watch(Screen[None]):
    """One process. The figures of its last look stay on the screen when it has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("s", "shrink", "Shrink"),
        ("r", "restore", "Restore"),
        ("p", "pause", "Pause"),
        Binding("c", "tab('classes')", "Size classes", show=False),
        Binding("h", "tab('heaps')", "Heaps", show=False),
        Binding("l", "tab('ledger')", "Ledger", show=False),
        Binding("o", "tab('options')", "Options", show=False),
        ("escape", "back", "Back"),
    ]

    def __init__(self, client: Client, interval_s: float, *, chosen: bool) -> None:
        super().__init__()
        self._client = client
        self._chosen = chosen
        self._interval_s = interval_s
        self._snapshot: Snapshot | None = None
        self._rates: Rates | None = None
        self._history: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_HISTORY))
        self._paused = False
        self._ended = False
        self._looking = False
        self._problem = ""

    # ------------------------------------------------------------- the screen

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        yield Static(id="problem")
        with Horizontal(id="panels"):
            yield _panel("memory", "memory")
            yield _panel("activity", "activity")
            yield _panel("thresholds", "active")
        with TabbedContent(initial="classes"):
            with TabPane("Size [u]c[/u]lasses", id="classes"):
                yield SheetTable(name="classes-table", column="live bytes")
            with TabPane("[u]H[/u]eaps", id="heaps"):
                yield SheetTable(name="heaps-table", column="live")
            with TabPane("[u]L[/u]edger", id="ledger"):
                yield SheetTable(name="ledger-table", column="resident")
            with TabPane("[u]O[/u]ptions", id="options"):
                yield SheetTable(name="options-table")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(self._interval_s, self._tick)
        self._show()
        self._tick()
        self.query_one("#classes-table").focus()

    def on_resize(self) -> None:
        # The panels have their new widths when the layout has been made.
        self.call_after_refresh(self._show)

    # --------------------------------------------------------------- the looks

    def _tick(self) -> None:
        if self.is_current and not (self._paused or self._ended or self._looking):
            self._look()

    @work(exclusive=True, group="look")
    async def _look(self) -> None:
        self._looking = True
        try:
            snapshot = await asyncio.to_thread(take, self._client, self._ledger_timeout_s())
        except HeapfitError as error:
            self._problem = str(error)
            self._ended = isinstance(error, Gone)
        else:
            self._problem = ""
            self._take_in(snapshot)
        finally:
            self._looking = False
        self._show()

    def _ledger_timeout_s(self) -> float | None:
        """Return None unless somebody looks at the ledger: it takes the process longer."""
        shown = self.query_one(TabbedContent).active == "ledger"
        return LEDGER_TIMEOUT_S if shown else None

    def _take_in(self, snapshot: Snapshot) -> None:
        before = self._snapshot
        self._rates = rates_between(before.stats, snapshot.stats) if before else None
        self._snapshot = snapshot
        for figure in figures.memory(snapshot):
            self._history[figure.name].append(figure.value)
        if self._rates:
            for figure in figures.activity(snapshot, self._rates):
                self._history[figure.name].append(figure.value)

    # -------------------------------------------------------------- what shows

    def _show(self) -> None:
        """Show what is known, unless the screen is being closed and half of it is gone."""
        if not self.is_running or len(self.query(SheetTable)) < len(_SHEETS):
            return
        self._show_title()
        if self._snapshot is not None:
            self._show_panels(self._snapshot)
            self._show_tables(self._snapshot)

    def _show_title(self) -> None:
        process = self._client.process
        title = Text.assemble((f"{process.pid} ", "bold"), process.command_line, no_wrap=True)
        self.query_one("#title", Static).update(Text(" ").join([*self._marks(), title]))
        problem = self.query_one("#problem", Static)
        problem.update(Text(self._problem))
        problem.display = bool(self._problem)

    def _marks(self) -> list[Text]:
        marks = []
        if self._snapshot and self._snapshot.stats.shrunk:
            marks.append(Text(" SHRUNK ", "black on yellow"))
        if self._paused:
            marks.append(Text(" PAUSED ", "black on cyan"))
        return marks

    def _show_panels(self, snapshot: Snapshot) -> None:
        for name, found in (
            ("memory", figures.memory(snapshot)),
            ("activity", figures.activity(snapshot, self._rates)),
        ):
            panel = self.query_one(f"#{name}", Static)
            panel.update(self._with_sparks(found, _NAMES[name], panel.content_size.width))
        self.query_one("#thresholds", Static).update(self._thresholds(snapshot))

    def _with_sparks(self, found: list[Figure], names: int, width: int) -> Table:
        room = width - names - _FIGURES - _GAPS
        rows = _grid(names, _FIGURES)
        rows.add_column(no_wrap=True)
        for figure in found:
            bars = text.spark(self._history[figure.name], room)
            rows.add_row(figure.name, Text(figure.text, "bold"), Text(bars, "cyan"))
        return rows

    def _thresholds(self, snapshot: Snapshot) -> Table:
        rows = _grid(None, None)
        in_force = dict(figures.thresholds(snapshot))
        options = {option.name: option for option in snapshot.options}
        for name, value in in_force.items():
            option = options[name]
            changed = option.in_force != option.initial
            rows.add_row(name, Text(value, "bold yellow" if changed else "bold"))
        return rows

    def _show_tables(self, snapshot: Snapshot) -> None:
        for name, sheet_of in _SHEETS.items():
            table = self.query_one(f"#{name}-table", SheetTable)
            table.show_sheet(sheet_of(snapshot, self._rates))

    # ---------------------------------------------------------------- the keys

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._paused = not self._paused
        self._show()

    def action_tab(self, name: str) -> None:
        """Show one of the tables."""
        self.query_one(TabbedContent).active = name
        self.query_one(f"#{name}-table").focus()
        self._tick()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the way back only where the process was chosen among others."""
        return action != "back" or self._chosen

    def action_back(self) -> None:
        """Go back to the choice of processes."""
        self.app.pop_screen()

    def action_shrink(self) -> None:
        """Turn speed for memory."""
        self._steer(lambda: f"{text.size(self._client.shrink())} returned")

    def action_restore(self) -> None:
        """Put the options in force again."""
        self._steer(self._restored)

    def _restored(self) -> str:
        self._client.restore()
        return "the options are active again"

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
