"""The ledger: what the resident memory of a process is there for.

The process puts every page under a cause, row by row (`hf_ledger` in `heapfit.h`). Here the rows
are added up: by cause, by thread, by file.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from heapfit.live.records import LedgerRow

# In the order in which a reader goes from what the program has to what it could have back.
_IN_HEAP = {
    "live": "objects, in blocks rounded up",
    "pools": "objects in pools",
    "contexts": "memory of contexts",
    "guarded": "guarded objects, live or freed",
    "pinned": "free, on pages with a live object",
    "kept": "free pages that threads keep in spans in use",
    "cached": "free spans that threads keep",
    "on_the_way": "freed by another thread, not taken in yet",
    "orphaned": "free pages that threads left behind",
    "decaying": "free, returned as the program allocates, or by trim",
    "zeroed": "cleared for calloc",
    "never_used": "part of a huge page that was never asked for",
    "tables": "heapfit's own",
}
_OUTSIDE = {
    "file": "programs, libraries and other files",
    "stack": "stacks of threads",
    "brk": "the program break",
    "jit": "code without a file",
    "anonymous": "other mappings of the program",
    "shared": "shared memory",
    "kernel": "the kernel's pages in every process",
}
_UNKNOWN = "a cause of a later version"


@dataclass(frozen=True)
class Cause:
    """Bytes that are there for one cause."""

    name: str
    in_heap: bool
    resident: int
    swapped: int

    @property
    def meaning(self) -> str:
        """What it is, in a few words."""
        return (_IN_HEAP if self.in_heap else _OUTSIDE).get(self.name, _UNKNOWN)


@dataclass(frozen=True)
class ThreadShare:
    """What the heap of one thread has. `thread` is as `hf_heap_stats.thread`."""

    heap: int
    thread: int
    resident: dict[str, int]  # by cause

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self.resident.values())


@dataclass(frozen=True)
class Ledger:
    """The rows of a process at one moment; `complete`: of all of its memory."""

    rows: list[LedgerRow]
    complete: bool

    @property
    def resident(self) -> int:
        """What the kernel counts as resident."""
        return sum(row.resident for row in self.rows)

    @property
    def heap_resident(self) -> int:
        """What of it is heapfit's."""
        return sum(row.resident for row in self.rows if row.in_heap)

    @property
    def pinned(self) -> int:
        """What of that is free on pages with a live object."""
        return sum(row.resident for row in self.rows if row.in_heap and row.cause == "pinned")

    def causes(self) -> list[Cause]:
        """Return the causes that there are, those of the heap first."""
        grouped = _grouped(self.rows, lambda row: (not row.in_heap, row.cause))
        found = [
            Cause(cause, not outside, _resident(rows), sum(row.swapped for row in rows))
            for (outside, cause), rows in grouped.items()
        ]
        order = [*_IN_HEAP, *_OUTSIDE]
        places = {name: place for place, name in enumerate(order)}
        return sorted(
            found, key=lambda each: (not each.in_heap, places.get(each.name, len(order)), each.name)
        )

    def threads(self) -> list[ThreadShare]:
        """Return what each thread's heap has, the largest first, and at the end what no thread has:
        large blocks, and what ended threads have left."""
        ours = [row for row in self.rows if row.in_heap]
        grouped = _grouped(ours, lambda row: (row.heap, row.thread))
        found = [
            ThreadShare(heap, thread, {row.cause: row.resident for row in rows})
            for (heap, thread), rows in grouped.items()
        ]
        return sorted(found, key=lambda each: (each.heap < 0, -each.total, each.heap))

    def files(self) -> list[tuple[str, int]]:
        """Return the bytes of each file, the largest first."""
        mapped = [row for row in self.rows if row.cause == "file"]
        grouped = _grouped(mapped, lambda row: row.name)
        found = [(name, _resident(rows)) for name, rows in grouped.items()]
        return sorted(found, key=lambda each: (-each[1], each[0]))


_Key = TypeVar("_Key", bound=Hashable)


def _grouped(
    rows: Iterable[LedgerRow], key: Callable[[LedgerRow], _Key]
) -> dict[_Key, list[LedgerRow]]:
    grouped: dict[_Key, list[LedgerRow]] = {}
    for row in rows:
        grouped.setdefault(key(row), []).append(row)
    return grouped


def _resident(rows: Iterable[LedgerRow]) -> int:
    return sum(row.resident for row in rows)
