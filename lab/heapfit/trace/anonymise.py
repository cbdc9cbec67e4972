"""Take out of a trace what tells whose it is, and keep what tells how it uses its heap.

Taken out: the program's path and arguments, the names of threads and their numbers in the system,
processes' numbers, which files were mapped, the addresses of code, the allocator's path, the time
of day. Kept: the order and the time of events, sizes, alignments, which threads and which call
sites, how sites call each other, how much memory was resident.

Addresses of blocks are moved in ranges of 64 GiB, each as a whole: what is the same address stays
one, distances within a range and places within 2 MiB stay as they are, and where the ranges were
is lost.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapfit.errors import HeapfitError
from heapfit.trace.blocks import none
from heapfit.trace.edit import (
    END_NS,
    Marks,
    SiteCopy,
    ThreadMap,
    ThreadNumbers,
    batches,
    check_target,
    write_interleaved,
)
from heapfit.trace.ending import ended_early
from heapfit.trace.native import Columns, Problems, Progress, Reader, Thread, Writer

# What of a trace's first block says nothing about whose it is.
_KEPT = (
    "heapfit",
    "format",
    "arch",
    "pointer_bytes",
    "page_size",
    "cores",
    "sample",
    "sites",
    "began_late",
    "live_before",
)
_KEPT_OF_END = ("processor_ns",)
_RANGE_BITS = 36
_PLACE_BITS = 40  # what a range becomes is so far from the next that no block reaches into it
_RANGES_MAX = 1 << 20
_KEPT_BITS = 21  # of an address, its place within a huge page
_CODE = 0x1000  # the address of the first call site


@dataclass(frozen=True)
class Anonymised:
    """What became a trace that tells nobody's name."""

    events: int
    problems: Problems


def anonymise(source: Path, target: Path, on_progress: Progress | None = None) -> Anonymised:
    """Write `source` without what tells whose it is to `target`."""
    check_target(target, [source])
    with Reader(source) as reader:
        kept = {name: _harmless(value) for name, value in reader.info.items() if name in _KEPT}
        with Writer(target, {**kept, "anonymous": True}) as writer:
            return _copy(reader, writer, on_progress)


def _harmless(value: Any) -> Any:
    """Return a number as it is, and of a text no more than could be a version or a processor."""
    if isinstance(value, str):
        return "".join(letter for letter in value[:16] if letter.isalnum() or letter in "._")
    return value if isinstance(value, int | float) else None


def _copy(reader: Reader, writer: Writer, on_progress: Progress | None) -> Anonymised:
    threads = ThreadMap(reader, ThreadNumbers(writer, _nameless))
    sites, places, marks = _Sites(reader, writer), _Places(), Marks(reader)
    count = 0
    for events in batches(reader, on_progress):
        sites.write()
        made = places.moved(threads.renumbered(events))
        write_interleaved(writer, made, marks.until(int(events["ns"][-1])))
        count += len(events["ns"])
    write_interleaved(writer, none(), marks.until(END_NS))
    reason = "not told" if ended_early(reader.end) else "anonymised"
    problems = reader.problems
    used = {name: (reader.end or {}).get(name) for name in _KEPT_OF_END}
    known = {name: value for name, value in used.items() if isinstance(value, int)}
    writer.end = {"reason": reason, "problems": problems.told, **known}
    return Anonymised(count, problems)


def _nameless(thread: Thread) -> Thread:
    return Thread(thread.index, thread.index + 1, "")


class _Sites(SiteCopy):
    """Call sites whose addresses only say which are the same."""

    def __init__(self, reader: Reader, writer: Writer) -> None:
        super().__init__(reader, writer)
        self._seen: dict[int, int] = {}

    def address(self, address: int) -> int:
        return self._seen.setdefault(address, _CODE + len(self._seen))


class _Places:
    """Where blocks are moved to, by the range that their address is in."""

    def __init__(self) -> None:
        self._moves: dict[int, int] = {}  # by range: what is added, modulo 2^64

    def moved(self, events: Columns) -> Columns:
        """Return events with other addresses."""
        columns = ("old", "address")
        return {**events, **{name: self._column(events[name]) for name in columns}}

    def _column(self, column: NDArray[np.uint64]) -> NDArray[np.uint64]:
        there = np.flatnonzero(column)
        addresses = column[there]
        ranges = addresses >> np.uint64(_RANGE_BITS)
        found, first, which = np.unique(ranges, return_index=True, return_inverse=True)
        for place in np.argsort(first):
            self._learn(int(found[place]), int(addresses[first[place]]))
        moves = np.array([self._moves[int(each)] for each in found], np.uint64)
        made = column.copy()
        made[there] = addresses + moves[which]
        return made

    def _learn(self, range_: int, address: int) -> None:
        """Fix where a range comes to lie: its first block in the middle of a place of its own."""
        if range_ not in self._moves:
            if len(self._moves) == _RANGES_MAX:
                raise HeapfitError(
                    "addresses are scattered in a way that no program's are; is it damaged?"
                )
            middle = (2 * len(self._moves) + 1) << (_PLACE_BITS - 1)
            self._moves[range_] = (middle - (address >> _KEPT_BITS << _KEPT_BITS)) % (1 << 64)
