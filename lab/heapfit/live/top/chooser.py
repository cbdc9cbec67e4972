"""Choose one of the processes that listen."""

import asyncio
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from heapfit.errors import HeapfitError
from heapfit.host.proc import Process
from heapfit.live.client import Client
from heapfit.live.figures import NONE_YET, Cell, Sheet
from heapfit.live.processes import listening
from heapfit.live.records import Stats
from heapfit.live.top.sheet_table import SheetTable
from heapfit.live.top.watch import Watch
from heapfit.text import size

# A process that is stopped must not keep the others from the screen for long.
_TIMEOUT_S = 1.0


class Chooser(Screen[None]):
    """The processes that listen, with what is live in each; Enter opens one."""

    BINDINGS: ClassVar[list[BindingType]] = [("enter", "open", "Watch")]

    def __init__(self, interval_s: float) -> None:
        super().__init__()
        self._interval_s = interval_s
        self._processes: dict[str, Process] = {}

    def compose(self) -> ComposeResult:
        yield Static("heapfit top: which process?", id="title")
        yield SheetTable(name="processes", column="live")
        yield Footer()

    def on_mount(self) -> None:
        self.set_interval(self._interval_s, self._look)
        self._look()

    def on_screen_resume(self) -> None:
        self.query_one(SheetTable).focus()

    @work(exclusive=True)
    async def _look(self) -> None:
        found = await asyncio.to_thread(_look_at_all)
        if not self.query(SheetTable):
            return  # closed meanwhile
        self._processes = {str(process.pid): process for process, _ in found}
        self.query_one(SheetTable).show_sheet(_sheet(found))
        none = "" if found else ": none; start one with: heapfit run --control -- COMMAND"
        self.query_one("#title", Static).update(Text(f"heapfit top: which process?{none}"))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        process = self._processes.get(event.row_key.value or "")
        if process is None:
            return
        try:
            self.app.push_screen(Watch(Client(process.pid), self._interval_s, chosen=True))
        except HeapfitError as error:
            self.notify(str(error), severity="error", markup=False)


def _look_at_all() -> list[tuple[Process, Stats | None]]:
    return [(process, _stats(process)) for process in listening()]


def _stats(process: Process) -> Stats | None:
    try:
        return Client(process.pid, _TIMEOUT_S).stats()
    except HeapfitError:
        return None


def _sheet(found: list[tuple[Process, Stats | None]]) -> Sheet:
    rows = [
        (
            Cell(process.pid, str(process.pid)),
            _bytes(stats.total.live_bytes if stats else None),
            _bytes(stats.total.resident if stats else None),
            Cell(0, process.command_line),
        )
        for process, stats in found
    ]
    return Sheet(("PID", "live", "resident", "command"), rows, words=("command",))


def _bytes(value: int | None) -> Cell:
    return Cell(-1, NONE_YET) if value is None else Cell(value, size(value))
