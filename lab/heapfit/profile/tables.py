"""The tables of a profile, one for each section that has one. Every text is as it was recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from heapfit.profile.content import Cell, Table
from heapfit.profile.model import (
    Amount,
    Bursts,
    Calls,
    Distribution,
    LeakSite,
    LifetimeRow,
    Part,
    Profile,
    Recording,
    Rounding,
    Site,
    SizePart,
)
from heapfit.profile.words import (
    count,
    percent,
    size,
    size_range,
    size_text,
    span,
)
from heapfit.report.units import DASH

# A page shows so many rows of what may be thousands; the largest come first.
_MOST_ROWS = 40
_MOST_FREQUENT = 12
_BRIEF_SIZES = 5
# So many programs' most frequent sizes stand side by side.
_MOST_PROGRAMS = 6
_CALLED_BY = "\N{LEFTWARDS ARROW} "
_CALLERS = 4


def recordings(profile: Profile) -> Table | None:
    """The recorded processes, where there are several."""
    if len(profile.recordings) < 2:
        return None
    return Table(
        [
            "Process",
            "Most live",
            "Most resident",
            "Live at the end",
            "Allocations",
            "Threads",
            "Time",
        ],
        [_recording(each) for each in _most_first(profile.recordings)],
    )


def _most_first(recordings: Sequence[Recording]) -> list[Recording]:
    return sorted(recordings, key=lambda each: -each.peak.bytes)[:_MOST_ROWS]


def _recording(each: Recording) -> list[Cell]:
    return [
        Cell(process(each), detail=each.name),
        _bytes(each.peak),
        _size(each.resident_most) if each.resident_most else Cell(DASH, ""),
        _bytes(each.end),
        _objects(each.allocations),
        Cell(f"{each.threads:,}", each.threads),
        Cell(span(each.duration_ns), each.duration_ns),
    ]


def program(recording: Recording) -> str:
    """Return the name by which a recorded process is known."""
    return Path(recording.program).name or recording.name


def process(recording: Recording) -> str:
    """Return what tells a recorded process from others of its program."""
    return f"{program(recording)} ({recording.pid})"


def peak(profile: Profile) -> Table | None:
    """Who holds the peak: call sites, or without them the threads that allocated it."""
    parts, column = profile.peak.sites, "Allocated by"
    if not parts:
        parts, column = profile.peak.threads, "Allocated by the thread"
    if not parts:
        return None
    columns = [column, "Bytes", "Of the peak", "Blocks", "Mean size"]
    return Table(columns, [_part(each) for each in parts[:_MOST_ROWS]])


def _part(part: Part) -> list[Cell]:
    return [
        Cell(part.name),
        _bytes(part.amount),
        _share(part.share),
        _objects(part.amount),
        _mean(part.amount),
    ]


def sizes(profile: Profile) -> Table | None:
    """The most frequent sizes: of one program with all that is known, of several side by side."""
    programs = profile.sizes.programs[:_MOST_PROGRAMS]
    if not programs:
        return None
    if len(programs) == 1:
        columns = ["Size", "Of the allocations", "This and above", "Allocations", "Bytes"]
        return Table(columns, _frequent(programs[0]), brief=_BRIEF_SIZES)
    ranks = range(min(_MOST_FREQUENT, max(len(each.frequent) for each in programs)))
    return Table(
        ["Rank", *(each.name for each in programs)],
        [
            [Cell(f"{rank + 1}.", rank), *(_ranked(each, rank) for each in programs)]
            for rank in ranks
        ],
        brief=_BRIEF_SIZES,
    )


def _frequent(program: Distribution) -> list[list[Cell]]:
    return [
        [
            Cell(size_text(each.size), each.size),
            _share(each.share),
            _share(each.cumulative),
            _objects(each.amount),
            _bytes(each.amount),
        ]
        for each in program.frequent[:_MOST_FREQUENT]
    ]


def _ranked(program: Distribution, rank: int) -> Cell:
    if rank >= len(program.frequent):
        return Cell(DASH, "")
    each = program.frequent[rank]
    return Cell(f"{size_text(each.size)} ({percent(each.share)})", each.share)


def rounding(profile: Profile) -> Table | None:
    """What each allocator's size classes add."""
    known = profile.waste.allocators
    if not known:
        return None
    columns = ["Allocator", "Adds to the peak", "Of the peak", "Of all asked for", "Version"]
    return Table(columns, [_rounding(each) for each in known])


def _rounding(each: Rounding) -> list[Cell]:
    return [
        Cell(each.title, each.allocator, "recorded under it" if each.recorded else ""),
        _size(each.peak_bytes),
        _share(each.peak_waste) if each.peak_waste is not None else Cell(DASH, ""),
        _share(each.waste),
        Cell(each.version),
    ]


def lifetimes(profile: Profile) -> Table | None:
    """How long blocks of each size live: in time, and in bytes that are allocated meanwhile."""
    rows = [row for row in profile.lifetimes.rows if row.amount.objects]
    if not rows:
        return None
    columns = [
        "Size",
        "Blocks",
        "Half die within",
        "9 of 10 within",
        "Half, allocated meanwhile",
        "Live at the end",
    ]
    return Table(columns, [_lifetime(row, size_range(row.size)) for row in rows])


def _lifetime(row: LifetimeRow, label: str) -> list[Cell]:
    return [
        Cell(label, row.size),
        _objects(row.amount),
        _outlived(row.ns.p50, span),
        _outlived(row.ns.p90, span),
        _outlived(row.bytes.p50, size),
        _share(row.living.objects / row.amount.objects),
    ]


def _outlived(value: float | None, shown: Callable[[float], str]) -> Cell:
    """A lifetime, or that most outlive the recording; these sort last."""
    return Cell("longer", "") if value is None else Cell(shown(value), value)


def bursts(profile: Profile) -> Table | None:
    """Each thread's bursts: what one is on average."""
    threads = profile.transactions.threads
    if not threads:
        return None
    columns = [
        "Thread",
        "Bursts",
        "Allocations each",
        "Bytes each",
        "Most live",
        "Live on",
        "Of its allocations",
        "Median time",
        "Longest",
    ]
    return Table(columns, [_burst(each) for each in threads[:_MOST_ROWS]])


def _burst(each: Bursts) -> list[Cell]:
    return [
        Cell(each.thread),
        _count(each.bursts),
        _count(each.allocations),
        _size(each.bytes),
        _size(each.most_live_bytes),
        _share(each.survivor_share or 0.0),
        _share(each.share or 0.0),
        Cell(span(each.duration_median_ns), each.duration_median_ns),
        Cell(span(each.duration_most_ns), each.duration_most_ns),
    ]


def threads(profile: Profile) -> Table | None:
    """Pairs of threads of which one frees what the other has allocated, most blocks first."""
    sharing = profile.sharing
    pairs = [flow for flow in sharing.flow if flow.born != flow.died and flow.amount.objects]
    if not pairs:
        return None
    names = numbered(sharing.threads)
    rows = [
        [
            Cell(f"{names[flow.born]} \N{RIGHTWARDS ARROW} {names[flow.died]}"),
            _objects(flow.amount),
            _share(flow.amount.objects / max(sharing.freed.objects, 1)),
            _bytes(flow.amount),
            _mean(flow.amount),
        ]
        for flow in pairs[:_MOST_ROWS]
    ]
    return Table(["Allocated by → freed by", "Blocks", "Of all frees", "Bytes", "Mean size"], rows)


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names, those that several threads have with a number.

    >>> numbered(["main", "worker", "worker"])
    ['main', 'worker 1', 'worker 2']
    """
    seen: dict[str, int] = {}
    found: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(f"{name} {seen[name]}" if names.count(name) > 1 else name)
    return found


def realloc(profile: Profile) -> Table | None:
    """By how much blocks grow."""
    reallocs = profile.reallocs
    if not reallocs.calls.objects:
        return None
    rows, before = [], 0.0
    for each in reallocs.growth:
        label = _growth_label(before, each.ratio)
        rows.append(
            [Cell(label, before), _count(each.calls), _share(each.calls / max(reallocs.known, 1))]
        )
        before = each.ratio or before
    return Table(["New size to old", "Calls", "Of those known"], rows, brief=len(rows))


def _growth_label(low: float, high: float | None) -> str:
    if high is None:
        return f"more than {low:g}"
    return f"up to {high:g}" if not low else f"{low:g} to {high:g}"


def calls(profile: Profile) -> Table:
    """Calls by what they were."""
    rows = [_call(each) for each in profile.totals.calls]
    return Table(["Call", "Calls", "Of all", "Bytes", "Mean size"], rows, brief=len(rows))


def _call(each: Calls) -> list[Cell]:
    return [
        Cell(each.kind.replace("_", ", ")),
        _objects(each.amount),
        _share(each.share),
        _bytes(each.amount),
        _mean(each.amount),
    ]


def sites(profile: Profile) -> Table | None:
    """Call sites, those that allocate most bytes first, and those most interleaved among them."""
    found = {tuple(each.chain): each for each in profile.sites.by_bytes}
    found |= {tuple(each.chain): each for each in profile.sites.by_interleaving}
    if not found:
        return None
    ordered = sorted(found.values(), key=lambda each: -each.amount.bytes)[:_MOST_ROWS]
    columns = [
        "Allocated by",
        "Bytes",
        "Of all",
        "Interleaved",
        "At the peak",
        "Half die within",
        "Allocations",
        "Size",
        "At the end",
        "Freed elsewhere",
    ]
    return Table(columns, [_site(each) for each in ordered])


def _site(each: Site) -> list[Cell]:
    return [
        Cell(each.chain[0], detail=_callers(each)),
        _bytes(each.amount),
        _share(each.share),
        _share(each.interleaving) if each.interleaving is not None else Cell(DASH, ""),
        _bytes(each.peak),
        _outlived(each.median_ns, span),
        _objects(each.amount),
        Cell(_sizes_of(each), each.largest),
        _bytes(each.end),
        _share(each.remote_share) if each.remote_share is not None else Cell(DASH, ""),
    ]


def _callers(site: Site) -> str:
    """The calls that led to a site, as far as a reader needs them to tell it from others."""
    callers = site.chain[1 : 1 + _CALLERS]
    return " ".join(f"{_CALLED_BY}{name}" for name in callers)


def _sizes_of(site: Site) -> str:
    if site.smallest == site.largest:
        return size_text(site.largest)
    return f"{size_text(site.smallest)} {DASH} {size_text(site.largest)}"


def end(profile: Profile) -> Table | None:
    """What lives at the end: by site, or without sites by size."""
    leaks = profile.leaks
    if leaks.sites:
        columns = ["Allocated by", "Bytes", "Of what is left", "Blocks", "Born in the second half"]
        return Table(columns, [_leak(each) for each in leaks.sites[:_MOST_ROWS]])
    if not leaks.sizes:
        return None
    rows = sorted(leaks.sizes, key=lambda each: -each.amount.bytes)
    return Table(["Size", "Bytes", "Of what is left", "Blocks"], [_left(each) for each in rows])


def _leak(each: LeakSite) -> list[Cell]:
    return [
        Cell(each.name),
        _bytes(each.amount),
        _share(each.share),
        _objects(each.amount),
        _share(each.late_share),
    ]


def _left(each: SizePart) -> list[Cell]:
    return [
        Cell(size_range(each.size), each.size),
        _bytes(each.amount),
        _share(each.share),
        _objects(each.amount),
    ]


# -------------------------------------------------------------------------- cells


def _bytes(amount: Amount) -> Cell:
    return Cell(size(amount.bytes), amount.bytes)


def _objects(amount: Amount) -> Cell:
    return Cell(count(amount.objects), amount.objects)


def _mean(amount: Amount) -> Cell:
    mean = amount.bytes / amount.objects if amount.objects else 0.0
    return Cell(size(mean), mean)


def _size(value: float) -> Cell:
    return Cell(size(value), value)


def _count(value: float) -> Cell:
    return Cell(count(value), value)


def _share(value: float) -> Cell:
    return Cell(percent(value), value)
