"""What cutting, merging and anonymising traces have in common.

All of them read a trace's events in order, batch by batch, change or leave out some, and write
what remains as a new trace. The tables that events refer to (threads, sites, what was mapped) and
the marks go along: each is written before the first event that needs it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapfit.errors import UsageError
from heapfit.files import check_new
from heapfit.trace.blocks import rows
from heapfit.trace.native import Columns, Mark, Progress, Reader, Thread, Writer

BATCH_ROWS = 1 << 18
END_NS = (1 << 64) - 1  # no time is later
_UNKNOWN = -1


class ThreadNumbers:
    """Numbers threads anew, in the order in which they appear, and writes what is known of them."""

    def __init__(self, writer: Writer, describe: Callable[[Thread], Thread] | None = None) -> None:
        """`describe` may change what is written of a thread, whose new number it finds in it."""
        self._writer = writer
        self._describe = describe or (lambda thread: thread)
        self.next = 0

    def begin(self, thread: Thread) -> int:
        """Write a thread that is new in the file, and return its number there."""
        number, self.next = self.next, self.next + 1
        self.write(number, thread)
        return number

    def write(self, number: int, thread: Thread) -> None:
        """Write what is known of a thread, anew where that has changed."""
        told = self._describe(Thread(number, thread.tid, thread.name))
        self._writer.thread(number, told.tid, told.name)


class ThreadMap:
    """From the numbers of one trace's threads to those in the file that is written."""

    def __init__(
        self, reader: Reader, numbers: ThreadNumbers, begin: Callable[[Thread], int] | None = None
    ) -> None:
        """`begin` writes a thread and returns its new number, where that need not be the next."""
        self._reader = reader
        self._new = numbers
        self._begin = begin or numbers.begin
        self._numbers = np.empty(0, np.int64)
        self._names: dict[int, bytes] = {}  # as they were written

    def renumbered(self, events: Columns) -> Columns:
        """Return events with the new numbers; threads that are new are written first."""
        old = events["thread"]
        if not len(old):
            return events
        if int(old.max()) >= len(self._numbers):
            grown = np.full(2 * int(old.max()) + 2, _UNKNOWN, np.int64)
            grown[: len(self._numbers)] = self._numbers
            self._numbers = grown
        found, first = np.unique(old, return_index=True)
        new = found[np.argsort(first)]
        new = new[self._numbers[new] == _UNKNOWN]
        if len(new):
            known = self._reader.thread_rows()  # in the order of their numbers
            for row in known[new]:
                number = int(row["index"])
                self._numbers[number] = self._begin(_thread(row))
                self._names[number] = row["name"]
        return {**events, "thread": self._numbers[old].astype(np.uint32)}

    def finish(self) -> None:
        """Write the names that have changed: many a thread takes its own later."""
        for row in self._reader.thread_rows():
            number = int(row["index"])
            if self._names.get(number, row["name"]) != row["name"]:
                self._new.write(int(self._numbers[number]), _thread(row))


def _thread(row: Any) -> Thread:
    return Thread(int(row["index"]), int(row["tid"]), row["name"].decode(errors="replace"))


class SiteCopy:
    """Writes the sites of a reader as it comes to know them, under the same numbers."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        self._reader, self._writer = reader, writer
        self._next = 1

    def write(self) -> None:
        """Write those that are new."""
        for caller, _, address in self._reader.sites(self._next).tolist():
            self._writer.site(caller, self.address(address))
            self._next += 1

    def address(self, address: int) -> int:
        """Return the address to write for one that was read."""
        return address


class Marks:
    """The marks of a reader that have not been taken yet."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._taken = 0

    def until(self, ns: int) -> list[Mark]:
        """Take those up to a time."""
        found = []
        for at, _, _, resident, anonymous, lost in self._reader.marks(self._taken).tolist():
            if at > ns:
                break
            self._taken += 1
            # One that knows nothing the writer makes by itself, where it is due.
            if resident or lost:
                found.append(Mark(at, resident, anonymous, lost))
        return found


def write_interleaved(writer: Writer, events: Columns, marks: list[Mark]) -> None:
    """Write events, and each mark after the events before it. Both are in order of time."""
    at = 0
    for mark in marks:
        to = int(np.searchsorted(events["ns"], np.uint64(mark.ns)))
        if to > at:
            writer.events(rows(events, slice(at, to)))
            at = to
        writer.mark(mark)
    if at < len(events["ns"]):
        writer.events(rows(events, slice(at, None)))


def batches(reader: Reader, on_progress: Progress | None) -> Iterator[Columns]:
    """Yield a trace's events in order of time; the next batch takes the place of one."""
    size = reader.path.stat().st_size
    for events in reader.events(BATCH_ROWS):
        if on_progress:
            on_progress(reader.position, size)
        yield events


def check_target(target: Path, sources: list[Path]) -> None:
    """Raise UsageError when the new file would take the place of one that is there."""
    if any(target.exists() and target.samefile(source) for source in sources if source.exists()):
        raise UsageError(f"{target} is the trace itself; name another file with --out")
    check_new(target)


def shifted(ns: NDArray[Any], by: int) -> NDArray[np.uint64]:
    """Return times that count from `by` on; none is before it.

    >>> shifted(np.array([5, 7], np.uint64), 5).tolist()
    [0, 2]
    """
    return np.asarray(np.maximum(ns, np.uint64(by)) - np.uint64(by))
