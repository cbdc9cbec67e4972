"""The full-screen view of a running process, in Textual; first a choice among those that listen."""

from typing import ClassVar

from textual.app import App
from textual.binding import Binding, BindingType

from heapfit.live.client import Client
from heapfit.live.top.chooser import Chooser
from heapfit.live.top.watch import Watch

_WIDE_COLUMNS = 110  # from here on the thresholds have a place beside the figures


class TopApp(App[None]):
    """`heapfit top`. Without a client the user chooses."""

    CSS_PATH = "top.tcss"
    TITLE = "heapfit top"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE_COLUMNS, "-wide")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, client: Client | None, interval_s: float) -> None:
        super().__init__()
        self._client = client
        self._interval_s = interval_s

    def on_mount(self) -> None:
        if self._client is None:
            self.push_screen(Chooser(self._interval_s))
        else:
            self.push_screen(Watch(self._client, self._interval_s, chosen=False))
