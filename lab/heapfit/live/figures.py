"""The figures of a snapshot as people read them: which there are, in which order, with which words.

The terminal's full-screen view and the tables that are printed once show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from heapfit.live.rates import Rates
from heapfit.live.records import LiveOption
from heapfit.live.snapshot import Snapshot

NONE_YET = "none"
_DIGITS = 3
_SPARKS = "▁▂▃▄▅▆▇"  # Without a full block, so that lines below each other stay apart.


# ----------------------------------------------------------------------- numbers


def size(value: float) -> str:
    """Return a number of bytes, to three digits.

    >>> size(0), size(1000), size(1536), size(1023.9 * 2**20)
    ('0 B', '1000 B', '1.50 KiB', '1024 MiB')
    """
    return _scaled(value, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB"))


def count(value: float) -> str:
    """Return a number of things, to three digits.

    >>> count(12), count(12_345), count(0.25)
    ('12', '12.3k', '0.25')
    """
    return _scaled(value, 1000.0, ("", "k", "M", "G", "T"))


def share(value: float | None) -> str:
    """Return a part of a whole.

    >>> share(0.123), share(None)
    ('12 %', 'none')
    """
    return NONE_YET if value is None else f"{value * 100:.0f} %"


def _scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    if value < 0:
        return f"-{_scaled(-value, step, units)}"
    rung = 0
    while value >= step and rung < len(units) - 1:
        value /= step
        rung += 1
    return f"{_three_digits(value, whole=rung == 0)}{units[rung]}"


def _three_digits(value: float, *, whole: bool) -> str:
    if whole and value == int(value):
        return str(int(value))
    leading = math.floor(math.log10(value)) + 1 if value >= 1 else 1
    return f"{value:.{max(_DIGITS - leading, 0)}f}"


def spark(values: Iterable[float], width: int) -> str:
    """Return the last `width` of `values` as a line of bars, from 0 to the largest of them.

    >>> spark([0, 1, 2, 4], 6)
    '▁▂▄▇'
    """
    last = list(values)[-width:] if width > 0 else []
    most = max(last, default=0)
    steps = len(_SPARKS) - 1
    return "".join(_SPARKS[math.floor(each / most * steps) if most else 0] for each in last)


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
    shown = [Figure(name, value, size(value)) for name, value in figures]
    if snapshot.memory:
        resident = snapshot.memory.resident
        shown.append(Figure("process", resident, size(resident)))
    return shown


def activity(snapshot: Snapshot, rates: Rates | None) -> list[Figure]:
    """Return how often the allocator leaves its fast path, per second, and huge pages."""
    return [*_per_second(rates), *_huge_pages(snapshot), *_heaps(snapshot)]


def since_start(snapshot: Snapshot) -> list[Figure]:
    """Return the same of the whole life of the process."""
    return [*_counted(snapshot), *_huge_pages(snapshot), *_heaps(snapshot)]


def _per_second(rates: Rates | None) -> list[Figure]:
    names = ("purges", "given back", "commits", "refills", "remote batches", "zeroed hits")
    if rates is None:
        return [Figure(name, 0.0, NONE_YET) for name in names]
    hits = rates.zeroed_hit_share
    return [
        Figure("purges", rates.purges, f"{count(rates.purges)}/s"),
        Figure("given back", rates.purged_bytes, f"{size(rates.purged_bytes)}/s"),
        Figure("commits", rates.commits, f"{count(rates.commits)}/s"),
        Figure("refills", rates.refills, f"{count(rates.refills)}/s"),
        Figure("remote batches", rates.remote_batches, f"{count(rates.remote_batches)}/s"),
        Figure("zeroed hits", hits or 0.0, share(hits)),
    ]


def _counted(snapshot: Snapshot) -> list[Figure]:
    total = snapshot.stats.total
    asked = total.zeroed_hits + total.zeroed_misses
    hits = total.zeroed_hits / asked if asked else None
    return [
        Figure("purges", total.purges, count(total.purges)),
        Figure("given back", total.purged, size(total.purged)),
        Figure("commits", total.commits, count(total.commits)),
        Figure("refills", total.refills, count(total.refills)),
        Figure("remote batches", total.remote_batches, count(total.remote_batches)),
        Figure("zeroed hits", hits or 0.0, share(hits)),
    ]


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

    >>> value_text(LiveOption(name="decay_ms", kind="size", value="0"), "262144")
    '256k'
    """
    if option.kind != "size" or not value.isdecimal():
        return value
    number = int(value)
    for suffix, unit in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if number and number % unit == 0:
            return f"{number // unit}{suffix}"
    return value


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


def classes(snapshot: Snapshot) -> Sheet:
    """Return the size classes that have memory."""
    columns = ("block size", "spans", "live", "free", "live bytes", "free bytes")
    rows = [
        (
            Cell(each.block_size, str(each.block_size)),
            Cell(each.spans, count(each.spans)),
            Cell(each.live_objects, count(each.live_objects)),
            Cell(each.free_objects, count(each.free_objects)),
            _bytes(each.live_objects * each.block_size),
            _bytes(each.free_objects * each.block_size),
        )
        for each in snapshot.stats.classes
        if each.spans
    ]
    return Sheet(columns, rows, main="live bytes")


def heaps(snapshot: Snapshot, rates: Rates | None) -> Sheet:
    """Return the heaps: which thread has each, and what it holds."""
    columns = ("heap", "thread", "spans", "live", "free", "cached", "refills/s")
    refills = rates.refills_of_heaps if rates else {}
    rows = [
        (
            Cell(each.number, str(each.number)),
            Cell(each.thread, _thread(each.number, each.thread)),
            Cell(each.spans, count(each.spans)),
            _bytes(each.live_bytes),
            _bytes(each.free_bytes),
            _bytes(each.cached_bytes),
            _rate(refills.get(each.number)),
        )
        for each in snapshot.stats.heaps
    ]
    return Sheet(columns, rows, main="live")


def nodes(snapshot: Snapshot) -> Sheet:
    """Return the NUMA nodes; no rows where there is one alone."""
    columns = ("node", "dirty", "zeroed", "crossings")
    found = snapshot.stats.nodes
    rows = [
        (
            Cell(each.node, str(each.node)),
            _bytes(each.dirty_bytes),
            _bytes(each.zeroed_bytes),
            Cell(each.crossings, count(each.crossings)),
        )
        for each in found
        if len(found) > 1
    ]
    return Sheet(columns, rows, main="dirty")


def options(snapshot: Snapshot) -> Sheet:
    """Return all options: the value in force, the default, and what each is for."""
    columns = ("option", "in force", "default", "while running", "meaning")
    rows = [
        (
            Cell(place, each.name),
            Cell(0, value_text(each, each.in_force)),
            Cell(0, value_text(each, each.initial)),
            Cell(each.live, "yes" if each.live else "no"),
            Cell(0, each.description),
        )
        for place, each in enumerate(snapshot.options)
    ]
    return Sheet(columns, rows, words=columns)


def _thread(number: int, thread: int) -> str:
    """Say whose a heap is.

    >>> _thread(0, 0), _thread(1, 0), _thread(1, -1), _thread(1, 4711)
    ('threads that are gone', 'none', 'several', '4711')
    """
    if number == 0:
        return "threads that are gone"
    return {0: "none", -1: "several"}.get(thread, str(thread))


def _bytes(value: int) -> Cell:
    return Cell(value, size(value))


def _rate(value: float | None) -> Cell:
    return Cell(value or 0.0, NONE_YET if value is None else count(value))
