"""The figures of a snapshot as people read them: which there are, in which order, with which words.

The terminal's full-screen view and the tables that are printed once show the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from heapfit.live.ledger import Cause
from heapfit.live.records import Heap, LiveOption, Node, SizeClass
from heapfit.live.snapshot import Rates, Snapshot
from heapfit.text import count, percent, size, suffixed

NONE_YET = "none"


def share(value: float | None) -> str:
    """Return a part of a whole.

    >>> share(0.123), share(None)
    ('12 %', 'none')
    """
    return NONE_YET if value is None else percent(value)


# ------------------------------------------------------------------------ memory


@dataclass(frozen=True)
class Figure:
    """A name, what it is now as a number and in words."""

    name: str
    value: float
    text: str


def memory(snapshot: Snapshot) -> list[Figure]:
    """Return what the memory is used for, and what of it is resident."""
    total = snapshot.stats.total
    figures = [
        ("live", total.live_bytes),
        ("free", total.free_bytes),
        ("cached", total.cached_bytes),
        ("dirty", total.dirty_bytes),
        ("zeroed", total.zeroed_bytes),
        ("contexts", total.context_bytes),
        ("footprint", total.footprint),
        ("resident", total.resident),
    ]
    figures += [("process", snapshot.memory.resident)] if snapshot.memory else []
    return [Figure(name, value, size(value)) for name, value in figures]


def activity(snapshot: Snapshot, rates: Rates | None) -> list[Figure]:
    """Return how often the allocator leaves its fast path, per second, and huge pages."""
    if rates is None:
        left = [Figure(name, 0.0, NONE_YET) for name in (*_LEAVES, _ZEROED)]
    else:
        left = _left(
            (rates.purges, rates.purged_bytes, rates.commits, rates.refills, rates.remote_batches),
            rates.zeroed_hit_share,
            "/s",
        )
    return [*left, *_huge_pages(snapshot), *_heaps(snapshot)]


def since_start(snapshot: Snapshot) -> list[Figure]:
    """Return the same of the whole life of the process."""
    total = snapshot.stats.total
    asked = total.zeroed_hits + total.zeroed_misses
    left = _left(
        (total.purges, total.purged, total.commits, total.refills, total.remote_batches),
        total.zeroed_hits / asked if asked else None,
    )
    return [*left, *_huge_pages(snapshot), *_heaps(snapshot)]


# What an allocator leaves its fast path for, and how that is counted.
_LEAVES = {
    "purges": count,
    "returned": size,
    "commits": count,
    "refills": count,
    "remote batches": count,
}
_ZEROED = "zeroed hits"


def _left(numbers: Sequence[float], hits: float | None, unit: str = "") -> list[Figure]:
    shown = zip(_LEAVES.items(), numbers, strict=True)
    left = [Figure(name, number, f"{text(number)}{unit}") for (name, text), number in shown]
    return [*left, Figure(_ZEROED, hits or 0.0, share(hits))]


def _huge_pages(snapshot: Snapshot) -> list[Figure]:
    of_process = snapshot.memory
    if of_process is None:
        return [Figure("huge pages", 0.0, NONE_YET), Figure("huge share", 0.0, NONE_YET)]
    part = of_process.huge_share
    return [
        Figure("huge pages", of_process.huge, size(of_process.huge)),
        Figure("huge share", part, share(part)),
    ]


def _heaps(snapshot: Snapshot) -> list[Figure]:
    total = snapshot.stats.total
    busy = total.heaps - total.heaps_idle
    return [Figure("heaps in use", busy, f"{busy} of {total.heaps}")]


# ----------------------------------------------------------------------- options

# What bounds and ages the memory that is kept, and what decides how it is obtained.
_THRESHOLDS = (
    "free_page_threshold",
    "thread_span_threshold",
    "shared_span_threshold",
    "decay_ms",
    "zeroed_reserve",
    "huge_pages",
    "remote_free_batch",
    "lockless_threads",
)


def thresholds(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Return the names and the values in force of the options that steer memory."""
    options = {option.name: option for option in snapshot.options}
    known = [options[name] for name in _THRESHOLDS if name in options]
    return [(option.name, value_text(option, option.in_force)) for option in known]


def value_text(option: LiveOption, value: str) -> str:
    """Return a value as a person would write it.

    >>> value_text(LiveOption(name="x", kind="size", value="0", in_force="0"), "262144")
    '256k'
    """
    if option.kind != "size" or not value.isdecimal():
        return value
    return suffixed(int(value)) if int(value) else value


# ------------------------------------------------------------------------ tables


@dataclass(frozen=True)
class Cell:
    """What stands in a table, and the number that the table is sorted by."""

    value: float
    text: str


@dataclass(frozen=True)
class Sheet:
    """A table with its first column being what the rows are told apart by."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    words: tuple[str, ...] = ()  # the columns that hold words, and no numbers
    main: str = ""  # the column whose largest rows matter most


_Row = TypeVar("_Row")
# Each column's name, and what it says of a row.
_Columns = Mapping[str, Callable[[_Row], Cell]]


def classes(snapshot: Snapshot) -> Sheet:
    """Return the size classes that have memory."""
    columns: _Columns[SizeClass] = {
        "block size": lambda each: Cell(each.block_size, str(each.block_size)),
        "spans": lambda each: _count(each.spans),
        "live": lambda each: _count(each.live_objects),
        "free": lambda each: _count(each.free_objects),
        "live bytes": lambda each: _bytes(each.live_objects * each.block_size),
        "free bytes": lambda each: _bytes(each.free_objects * each.block_size),
    }
    return _sheet([each for each in snapshot.stats.classes if each.spans], columns, "live bytes")


def heaps(snapshot: Snapshot, rates: Rates | None) -> Sheet:
    """Return the heaps: which thread has each, and what it holds."""
    refills = rates.refills_of_heaps if rates else {}
    columns: _Columns[Heap] = {
        "heap": lambda each: Cell(each.number, str(each.number)),
        "thread": lambda each: Cell(each.thread, thread(each.number, each.thread)),
        "spans": lambda each: _count(each.spans),
        "live": lambda each: _bytes(each.live_bytes),
        "free": lambda each: _bytes(each.free_bytes),
        "cached": lambda each: _bytes(each.cached_bytes),
        "refills/s": lambda each: (
            _count(refills[each.number]) if each.number in refills else Cell(0.0, NONE_YET)
        ),
    }
    return _sheet(snapshot.stats.heaps, columns, "live")


def nodes(snapshot: Snapshot) -> Sheet:
    """Return the NUMA nodes; no rows where there is one alone."""
    columns: _Columns[Node] = {
        "node": lambda each: Cell(each.node, str(each.node)),
        "dirty": lambda each: _bytes(each.dirty_bytes),
        "zeroed": lambda each: _bytes(each.zeroed_bytes),
        "crossings": lambda each: _count(each.crossings),
    }
    found = snapshot.stats.nodes
    return _sheet(found if len(found) > 1 else [], columns, "dirty")


def ledger(snapshot: Snapshot) -> Sheet:
    """Return what the resident memory is there for; no rows where that was not asked for."""
    found = snapshot.ledger
    whole = found.resident if found else 0
    columns: _Columns[tuple[int, Cause]] = {
        "cause": lambda row: Cell(row[0], row[1].name.replace("_", " ")),
        "where": lambda row: Cell(not row[1].in_heap, "heap" if row[1].in_heap else "outside"),
        "resident": lambda row: _bytes(row[1].resident),
        "share": lambda row: Cell(row[1].resident, share(row[1].resident / whole)),
        "meaning": lambda row: Cell(row[0], row[1].meaning),
    }
    rows = list(enumerate(found.causes() if whole and found else []))
    return _sheet(rows, columns, "resident", ("cause", "where", "meaning"))


def options(snapshot: Snapshot) -> Sheet:
    """Return all options: the value in force, the default, and what each is for."""
    columns: _Columns[tuple[int, LiveOption]] = {
        "option": lambda row: Cell(row[0], row[1].name),
        "active": lambda row: Cell(0, value_text(row[1], row[1].in_force)),
        "default": lambda row: Cell(0, value_text(row[1], row[1].initial)),
        "while running": lambda row: Cell(row[1].live, "yes" if row[1].live else "no"),
        "meaning": lambda row: Cell(0, row[1].description),
    }
    return _sheet(list(enumerate(snapshot.options)), columns, words=tuple(columns))


def _sheet(
    rows: Sequence[_Row], columns: _Columns[_Row], main: str = "", words: tuple[str, ...] = ()
) -> Sheet:
    cells = [tuple(cell(row) for cell in columns.values()) for row in rows]
    return Sheet(tuple(columns), cells, words, main)


def thread(number: int, thread: int) -> str:
    """Say whose a heap is.

    >>> thread(0, 0), thread(1, 0), thread(1, -1), thread(1, 4711), thread(-1, 0)
    ('threads that are gone', 'none', 'several', '4711', 'no thread')
    """
    if number < 0:
        return "no thread"
    if number == 0:
        return "threads that are gone"
    return {0: "none", -1: "several"}.get(thread, str(thread))


def _bytes(value: int) -> Cell:
    return Cell(value, size(value))


def _count(value: float) -> Cell:
    return Cell(value, count(value))
