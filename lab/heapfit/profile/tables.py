"""The tables of a profile, one for each section that has one. Every text is as it was recorded."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

from heapfit.profile import model
from heapfit.profile.content import Cell, Table
from heapfit.profile.model import Amount, Profile, Recording
from heapfit.profile.sections.sites import without_wrappers
from heapfit.profile.words import count, percent, size, size_range, size_text, span
from heapfit.text import DASH

# A page shows so many rows of what may be thousands; the largest come first.
_MOST_ROWS = 40
_MOST_SITES = 20
# Beside a figure a longer table would leave the figure alone.
_MOST_BESIDE = 10
_MOST_FREQUENT = 12
_BRIEF_SIZES = 5
# So many programs' most frequent sizes stand side by side.
_MOST_PROGRAMS = 6
# Between a call and the one that led to it, in a name that holds several.
_WITHIN = " < "
_CALLED_BY = " \N{LEFTWARDS ARROW} "
_CALLERS = 5

_Row = TypeVar("_Row")
# Each column's name, and what it says of a row.
_Columns = Mapping[str, Callable[[_Row], Cell]]


def recordings(profile: Profile) -> Table | None:
    """The recorded processes, where there are several."""
    columns: _Columns[Recording] = {
        "Process": lambda each: Cell(process(each), detail=each.name),
        "Peak live": lambda each: _bytes(each.peak),
        "Peak resident": lambda each: _size(each.resident_most or None),
        "Live at the end": lambda each: _bytes(each.end),
        "Allocations": lambda each: _objects(each.allocations),
        "Threads": lambda each: Cell(f"{each.threads:,}", each.threads),
        "Time": lambda each: Cell(span(each.duration_ns), each.duration_ns),
    }
    several = profile.recordings if len(profile.recordings) > 1 else []
    return _table(sorted(several, key=lambda each: -each.peak.bytes)[:_MOST_ROWS], columns)


def program(recording: Recording) -> str:
    """Return the name by which a recorded process is known: as it was called, since one file may
    be several programs; of a process that has given itself a title, what stands before a colon, as
    in `php-fpm: pool www`."""
    called = recording.arguments[0].partition(": ")[0] if recording.arguments else ""
    return Path(called).name or Path(recording.program).name or recording.name


def process(recording: Recording) -> str:
    """Return what tells a recorded process from others of its program."""
    return f"{program(recording)} ({recording.pid})"


def peak(profile: Profile) -> Table | None:
    """Who holds the peak: call sites, or without them the threads that allocated it."""
    columns: _Columns[model.Part] = {
        "Bytes": lambda each: _bytes(each.amount),
        "Of the peak": lambda each: _share(each.share),
        "Blocks": lambda each: _objects(each.amount),
        "Mean size": lambda each: _mean(each.amount),
    }
    label = "Allocated by" if profile.peak.sites else "Allocated by the thread"
    parts = (profile.peak.sites or profile.peak.threads)[:_MOST_BESIDE]
    return _by_place(label, [each.chain or [each.name] for each in parts], parts, columns)


def pinned(profile: Profile) -> Table | None:
    """Whose blocks hold free memory."""
    columns: _Columns[model.PinningSite] = {
        "Holds": lambda each: _size(each.bytes),
        "Of all held": lambda each: _share(each.share),
        "Live": lambda each: _bytes(each.amount),
        "Blocks": lambda each: _objects(each.amount),
        "Mean age": lambda each: Cell(span(each.mean_age_ns), each.mean_age_ns),
    }
    parts = profile.pinned.sites[:_MOST_BESIDE]
    return _by_place("Allocated by", [each.chain or [each.name] for each in parts], parts, columns)


def sizes(profile: Profile) -> Table | None:
    """The most frequent sizes: of one program with all that is known, of several side by side."""
    programs = profile.sizes.programs[:_MOST_PROGRAMS]
    if len(programs) > 1:
        ranks = range(min(_MOST_FREQUENT, max(len(each.frequent) for each in programs)))
        return Table(
            ["Rank", *(each.name for each in programs)],
            [
                [Cell(f"{rank + 1}.", rank), *(_ranked(each, rank) for each in programs)]
                for rank in ranks
            ],
            brief=_BRIEF_SIZES,
        )
    columns: _Columns[model.FrequentSize] = {
        "Size": lambda each: Cell(size_text(each.size), each.size),
        "Of the allocations": lambda each: _share(each.share),
        "This and above": lambda each: _share(each.cumulative),
        "Allocations": lambda each: _objects(each.amount),
        "Bytes": lambda each: _bytes(each.amount),
    }
    frequent = [size for program in programs for size in program.frequent[:_MOST_FREQUENT]]
    return _table(frequent, columns, brief=_BRIEF_SIZES)


def _ranked(program: model.Distribution, rank: int) -> Cell:
    if rank >= len(program.frequent):
        return _NONE
    each = program.frequent[rank]
    return Cell(f"{size_text(each.size)} ({percent(each.share)})", each.share)


def rounding(profile: Profile) -> Table | None:
    """What each allocator's size classes add."""
    columns: _Columns[model.Rounding] = {
        "Allocator": lambda each: Cell(
            each.title, each.allocator, "recorded under it" if each.recorded else ""
        ),
        "Adds to the peak": lambda each: _size(each.peak_bytes),
        "Of the peak": lambda each: _share(each.peak_waste),
        "Of all requested": lambda each: _share(each.waste),
        "Version": lambda each: Cell(each.version),
    }
    return _table(profile.waste.allocators, columns)


_LIFETIMES: _Columns[model.LifetimeRow] = {
    "Size": lambda row: Cell(size_range(row.size), row.size),
    "Blocks": lambda row: _objects(row.amount),
    "Half die within": lambda row: _outlived(row.ns.p50, span),
    "9 of 10 within": lambda row: _outlived(row.ns.p90, span),
    "Half, allocated meanwhile": lambda row: _outlived(
        row.bytes.p50, lambda value: size(math.ceil(value))
    ),
    "Live at the end": lambda row: _share(row.living.objects / row.amount.objects),
}


def lifetimes(profile: Profile) -> Table | None:
    """How long blocks of each size live: in time, and in bytes that are allocated meanwhile."""
    return _lifetimes(profile, _LIFETIMES)


def sampled_lifetimes(profile: Profile) -> Table | None:
    """The same of a sample, which does not tell what is allocated meanwhile."""
    told = {name: cell for name, cell in _LIFETIMES.items() if "meanwhile" not in name}
    return _lifetimes(profile, told)


def _lifetimes(profile: Profile, columns: _Columns[model.LifetimeRow]) -> Table | None:
    return _table([row for row in profile.lifetimes.rows if row.amount.objects], columns)


def _outlived(value: float | None, shown: Callable[[float], str]) -> Cell:
    """A lifetime, or that most outlive the recording; these sort last."""
    return Cell("longer", "") if value is None else Cell(shown(value), value)


def bursts(profile: Profile) -> Table | None:
    """Each thread's bursts: what one is on average."""
    columns: _Columns[model.Bursts] = {
        "Thread": lambda each: Cell(each.thread),
        "Bursts": lambda each: _count(each.bursts),
        "Allocations each": lambda each: _count(each.allocations),
        "Bytes each": lambda each: _size(each.bytes),
        "Most live": lambda each: _size(each.most_live_bytes),
        "Live on": lambda each: _share(each.survivor_share or 0.0),
        "Of its allocations": lambda each: _share(each.share or 0.0),
        "Median time": lambda each: Cell(span(each.duration_median_ns), each.duration_median_ns),
        "Longest": lambda each: Cell(span(each.duration_most_ns), each.duration_most_ns),
    }
    return _table(profile.transactions.threads[:_MOST_ROWS], columns)


def threads(profile: Profile) -> Table | None:
    """Pairs of threads of which one frees what the other has allocated, most blocks first."""
    sharing, names = profile.sharing, profile.sharing.threads
    columns: _Columns[model.Flow] = {
        "Allocated by → freed by": lambda flow: Cell(
            f"{names[flow.born]} \N{RIGHTWARDS ARROW} {names[flow.died]}"
        ),
        "Blocks": lambda flow: _objects(flow.amount),
        "Of all frees": lambda flow: _share(flow.amount.objects / max(sharing.freed.objects, 1)),
        "Bytes": lambda flow: _bytes(flow.amount),
        "Mean size": lambda flow: _mean(flow.amount),
    }
    pairs = [flow for flow in sharing.flow if flow.born != flow.died and flow.amount.objects]
    return _table(pairs[:_MOST_ROWS], columns)


def realloc(profile: Profile) -> Table | None:
    """By how much blocks grow."""
    reallocs = profile.reallocs
    if not reallocs.calls.objects:
        return None
    lowest = [0.0, *(each.ratio or 0.0 for each in reallocs.growth)]
    columns: _Columns[tuple[float, model.Growth]] = {
        "New size to old": lambda row: Cell(_growth_label(row[0], row[1].ratio), row[0]),
        "Calls": lambda row: _count(row[1].calls),
        "Of those known": lambda row: _share(row[1].calls / max(reallocs.known, 1)),
    }
    growth = zip(lowest, reallocs.growth, strict=False)
    return _filled([row for row in growth if row[1].calls], columns, brief=len(lowest))


def _growth_label(low: float, high: float | None) -> str:
    if high is None:
        return f"more than {low:g}"
    return f"up to {high:g}" if not low else f"{low:g} to {high:g}"


def calls(profile: Profile) -> Table:
    """Calls by what they were."""
    columns: _Columns[model.Calls] = {
        "Call": lambda each: Cell(each.kind.replace("_", ", ")),
        "Calls": lambda each: _objects(each.amount),
        "Of all": lambda each: _share(each.share),
        "Bytes": lambda each: _bytes(each.amount),
        "Mean size": lambda each: _mean(each.amount),
    }
    return _filled(profile.totals.calls, columns, brief=len(profile.totals.calls))


_SITE_COLUMNS: _Columns[model.Site] = {
    "Bytes": lambda each: _bytes(each.amount),
    "Of all": lambda each: _share(each.share),
    "Interleaved": lambda each: _share(each.interleaving),
    "At the peak": lambda each: _bytes(each.peak),
    "Half die within": lambda each: _outlived(each.median_ns, span),
    "Allocations": lambda each: _objects(each.amount),
    "Size": lambda each: Cell(_sizes_of(each), each.largest),
    "At the end": lambda each: _bytes(each.end),
    "Freed elsewhere": lambda each: _share(each.remote_share),
}


def sites(profile: Profile) -> Table | None:
    """Call sites, those that allocate most bytes first, and those most interleaved among them."""
    every = [*profile.sites.by_bytes, *profile.sites.by_interleaving]
    return _sites(every, _SITE_COLUMNS)


def sampled_sites(profile: Profile) -> Table | None:
    """Call sites of a sample, which does not tell whose blocks stand side by side."""
    told = {name: cell for name, cell in _SITE_COLUMNS.items() if name != "Interleaved"}
    return _sites(profile.sites.by_bytes, told)


def _sites(every: Sequence[model.Site], columns: _Columns[model.Site]) -> Table | None:
    found = {tuple(each.chain): each for each in every}
    ordered = sorted(found.values(), key=lambda each: -each.amount.bytes)[:_MOST_SITES]
    return _by_place("Allocated by", [each.chain for each in ordered], ordered, columns)


def _sizes_of(site: model.Site) -> str:
    if site.smallest == site.largest:
        return size_text(site.largest)
    return f"{size_text(site.smallest)} {DASH} {size_text(site.largest)}"


def end(profile: Profile) -> Table | None:
    """What lives at the end: by site, or without sites by size."""
    columns: _Columns[model.Holder | model.SizePart] = {
        "Bytes": lambda each: _bytes(each.amount),
        "Of what was live": lambda each: _share(each.share),
        "Blocks": lambda each: _objects(each.amount),
    }
    by_site: _Columns[model.Holder] = {
        **columns,
        "Allocated in the 2nd half": lambda each: _share(each.late_share),
    }
    by_size: _Columns[model.SizePart] = {
        "Size": lambda each: Cell(size_range(each.size), each.size),
        **columns,
    }
    sites = profile.leaks.sites[:_MOST_BESIDE]
    if sites:
        return _by_place(
            "Allocated by", [each.chain or [each.name] for each in sites], sites, by_site
        )
    return _table(sorted(profile.leaks.sizes, key=lambda each: -each.amount.bytes), by_size)


# --------------------------------------------------------------------- rows and cells

_NONE = Cell(DASH, "")


def _table(rows: Sequence[_Row], columns: _Columns[_Row], brief: int = Table.brief) -> Table | None:
    """The table of these rows, if there are any."""
    return _filled(rows, columns, brief) if rows else None


def _filled(rows: Sequence[_Row], columns: _Columns[_Row], brief: int) -> Table:
    return Table(list(columns), [[cell(row) for cell in columns.values()] for row in rows], brief)


def _by_place(
    label: str, chains: Sequence[Sequence[str]], rows: Sequence[_Row], columns: _Columns[_Row]
) -> Table | None:
    """The same, below `label` who allocated each row."""
    made = _table(rows, columns)
    if made is None:
        return None
    places = zip(_places(chains), made.rows, strict=True)
    return Table([label, *made.columns], [[place, *row] for place, row in places], made.brief)


def _places(chains: Sequence[Sequence[str]]) -> list[Cell]:
    """Who allocated: the innermost call that tells the rows apart, and below it the whole chain.

    >>> [cell.text for cell in _places([["new", "a (x.c:1)"], ["new", "b (x.c:9)"], ["f", "main"]])]
    ['a (x.c:1)', 'b (x.c:9)', 'f']
    >>> [cell.text for cell in _places([["f", "main (x.c:1)"], ["f", "main (x.c:9)"]])]
    ['f < main (x.c:1)', 'f < main (x.c:9)']
    """
    told = without_wrappers(chains)
    labels = _told_apart([short[0] if short else DASH for short in told], chains)
    return [
        Cell(label, _WITHIN.join(chain), _chain(short, chain))
        for label, short, chain in zip(labels, told, chains, strict=True)
    ]


def _told_apart(labels: Sequence[str], chains: Sequence[Sequence[str]]) -> list[str]:
    """Return the labels; where several rows have the same one, with the innermost of their calls
    that differ.

    >>> _told_apart(["f", "f", "g"], [["new", "f"], ["zeroed", "f"], ["g"]])
    ['new < f', 'zeroed < f', 'g']
    >>> _told_apart(["f", "f"], [["f", "g"], ["f", "h"]])
    ['f < g', 'f < h']
    """
    found = list(labels)
    for label in {label for label in labels if labels.count(label) > 1}:
        rows = [index for index, each in enumerate(labels) if each == label]
        found_apart = _apart_within(label, [chains[row] for row in rows])
        for row, each in zip(rows, found_apart, strict=True):
            found[row] = each
    return found


def _apart_within(label: str, chains: Sequence[Sequence[str]]) -> list[str]:
    """Return the label with the call in which most of these chains differ, and where several share
    it, with the next such call as well.

    >>> _apart_within("f", [["f", "g", "a"], ["f", "g", "b"], ["f", "h", "c"], ["f", "h", "c"]])
    ['f < a', 'f < b', 'f < c', 'f < c']
    >>> _apart_within("f", [["f", "a", "g"], ["f", "b", "g"], ["f", "a", "h"], ["f", "b", "h"]])
    ['f < a < g', 'f < b < g', 'f < a < h', 'f < b < h']
    >>> len(set(_apart_within("m", [["f", "h", "m"], ["f", "m"], ["f", "h", "k", "m"]])))
    3
    """
    rows = list(zip(*zip_longest(*chains, fillvalue=""), strict=True))  # all of one length
    told: list[int] = []  # places in a row whose calls are named
    rest = list(range(len(rows[0])))
    while len(set(_named(label, rows, told))) < len(set(rows)) and rest:
        best = max(rest, key=lambda at: len(set(_named(label, rows, [*told, at]))))
        told.append(best)
        rest.remove(best)
    return _named(label, rows, told)


def _named(label: str, rows: Sequence[Sequence[str]], places: Sequence[int]) -> list[str]:
    """Return the label of each row among its calls at these places, innermost first."""
    names = []
    for row in rows:
        own = [row.index(label)] if label in row else []
        calls = [row[at] for at in sorted({*places, *own}) if row[at]]
        names.append(_WITHIN.join(calls if own else [*calls, label]))
    return names


def _chain(short: Sequence[str], chain: Sequence[str]) -> str:
    """The calls of a chain, innermost first; those behind the label where that is the innermost."""
    if len(short) < len(chain):
        return _CALLED_BY.join(chain[:_CALLERS])
    return "".join(f"{_CALLED_BY}{call}" for call in chain[1:_CALLERS]).strip()


def _bytes(amount: Amount) -> Cell:
    return _size(amount.bytes)


def _objects(amount: Amount) -> Cell:
    return _count(amount.objects)


def _mean(amount: Amount) -> Cell:
    return _size(amount.bytes / amount.objects if amount.objects else 0.0)


def _size(value: float | None) -> Cell:
    return _NONE if value is None else Cell(size(value), value)


def _count(value: float) -> Cell:
    return Cell(count(value), value)


def _share(value: float | None) -> Cell:
    return _NONE if value is None else Cell(percent(value), value)
