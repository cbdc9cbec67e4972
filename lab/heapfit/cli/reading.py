"""How far a command is with a large file: a bar with the time left, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from heapfit.cli.output import messages
from heapfit.live.figures import size

# Into a log file or a pipe, a line no more often than this.
_LINE_INTERVAL_S = 10.0


@contextmanager
def reading(what: str, console: Console = messages) -> Iterator[Callable[[int, int], None]]:
    """Give a function that takes the bytes read so far, and those of the file (or of all files)."""
    if not console.is_terminal:
        yield _Lines(what, console)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _Lines:
    """Says how far it is, but not before it has taken a while."""

    def __init__(self, what: str, console: Console) -> None:
        self._what, self._console = what, console
        self._next = time.monotonic() + _LINE_INTERVAL_S

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_INTERVAL_S
            line = f"{self._what}: {size(done)} of {size(total)}"
            self._console.print(line, markup=False, soft_wrap=True)
