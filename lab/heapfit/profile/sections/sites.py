"""Call sites: who asks for the memory, and how much between objects of other sites.

Pools put the objects of one site side by side. That pays for sites whose objects an ordinary heap
mixes with others': where the allocation before, of like size, was mostly another site's.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from heapfit.profile.model import SMALL_BYTES, UNKNOWN, Site, Sites
from heapfit.profile.sections.lifetimes import survival_quantile
from heapfit.profile.tally import Key, Row, Tally, amount, share
from heapfit.profile.trace import Trace
from heapfit.symbols import Frame, own_calls, told

# Sites of one trace that are told apart, those with most bytes, then most allocations.
APART = 4096
CHAIN_SHOWN = 8  # calls ...
CHAIN_READ = 64  # ... of so many, those that compilers and libraries have put in between included
TOLD = 50

# Places in a row of the table `sites`: three amounts, then numbers of objects in UNITS, then the
# reader's own counts of allocations and of those that came after another site's.
ALL, END, PEAK, SMALL, FREED, REMOTE, LATE, COUNTED, SWITCHES = 0, 4, 8, 12, 13, 14, 15, 16, 17
WIDTH = 18

_HAS_LINE = re.compile(r" \([^:()]+:\d+")  # of a call as it is told
REST: Key = ("", ())  # of what belongs to no site told apart


def count(trace: Trace, tally: Tally) -> None:
    """Count objects by site, if sites were recorded."""
    trace.make(
        "apart",
        "SELECT site, allocations, switches FROM sites_table WHERE allocations > 0 "
        f"ORDER BY bytes DESC, allocations DESC, site LIMIT {APART}",
    )
    counted = {site: counts for site, *counts in trace.query("SELECT * FROM apart")}
    names = keys(trace)
    if not names:
        return
    for site, smallest, largest, *row in _sums(trace):
        key = names.get(site, REST)
        tally.add("sites", key, (*map(int, row), *counted.get(site, (0, 0))))
        tally.raise_to("sites", key, (-smallest, largest))
    end = trace.summary.duration_ns
    rows = trace.query(
        f"SELECT site, power_above(coalesce(died_ns, {end}) - born_ns), died_ns IS NULL, "
        f"{trace.objects()} FROM object WHERE site IN (SELECT site FROM apart) GROUP BY ALL"
    )
    for site, bound, living, objects in rows:
        tally.add("site_lives", (names[site], bound, living), (int(objects),))


def keys(trace: Trace) -> dict[int, Key]:
    """Return the keys of the sites that are told apart; `count` has chosen them."""
    frames = _frames(trace)
    changed = frozenset(trace.summary.changed)
    apart = trace.query("SELECT site FROM apart") if frames else []
    return {site: _key(site, frames, changed) for (site,) in apart}


def _sums(trace: Trace) -> list[tuple[int, ...]]:
    late = f"died_ns IS NULL AND {trace.allocated_part(2)} = 1"
    columns = (
        trace.amount(),
        trace.amount("died_ns IS NULL"),
        trace.amount(trace.at_peak()),
        trace.objects(f"size <= {SMALL_BYTES}"),
        trace.objects("died_ns IS NOT NULL"),
        trace.objects("remote"),
        trace.objects(late),
    )
    return trace.query(
        "SELECT CASE WHEN site IN (SELECT site FROM apart) THEN site ELSE 0 END AS told, "
        f"min(size), max(size), {', '.join(columns)} FROM object GROUP BY told"
    )


def _frames(trace: Trace) -> dict[int, tuple[int, Frame]]:
    """Return each site's caller, and what it is."""
    rows = trace.query(
        'SELECT site, caller, address, module, function, file, line, "offset" FROM sites_table'
    )
    return {site: (caller, Frame(*frame)) for site, caller, *frame in rows}


def _key(site: int, frames: dict[int, tuple[int, Frame]], changed: Collection[str]) -> Key:
    """Return the module and the chain of calls by which a site is the same in all traces."""
    chain: list[Frame] = []
    while site in frames and len(chain) < CHAIN_READ:
        site, frame = frames[site]
        # What calls were inlined at an address of a file that has changed is not known any more.
        if frame.module not in changed or frame not in chain[-1:]:
            chain.append(frame)
    module = Path(own_calls(chain)[0][0].module or "").name if chain else ""
    return module, tuple(told(chain)[:CHAIN_SHOWN])


def name(key: Key) -> str:
    """Return what to call a site where there is no room for its chain."""
    _, chain = key
    return " < ".join(chain[:3]) if chain else UNKNOWN


def rows(tally: Tally) -> list[tuple[Key, Row]]:
    """Return the sites' sums; none where no sites were recorded."""
    return list(tally.sums["sites"].items())


def finish(tally: Tally) -> Sites:
    """Return the sites that matter most."""
    named = [(key, row) for key, row in rows(tally) if key != REST]
    all_bytes = sum(row[1] for _, row in rows(tally))
    lives = _lives(tally)
    by_bytes = sorted(named, key=lambda item: (-item[1][1], item[0]))[:TOLD]
    mixed = [item for item in named if item[1][SWITCHES]]
    by_switches = sorted(mixed, key=lambda item: (-item[1][SWITCHES], item[0]))[:TOLD]
    switches = sum(row[SWITCHES] for _, row in named)
    return Sites(
        recorded=bool(named),
        distinct=len(named),
        by_bytes=[_site(key, row, tally, lives, all_bytes) for key, row in by_bytes],
        by_interleaving=[_site(key, row, tally, lives, all_bytes) for key, row in by_switches],
        interleaving=share(switches, sum(row[COUNTED] for _, row in named)),
        without_lines=_without_lines(named, all_bytes),
    )


def _without_lines(named: Sequence[tuple[Key, Row]], all_bytes: int) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for (module, (first, *_)), row in named:
        if not _HAS_LINE.search(first):
            sums[module] += row[1]
    return {module: share(found, all_bytes) or 0.0 for module, found in sums.most_common()}


# By site and by whether they live at the end: numbers of objects by the bounds of their lifetime.
_Lives = defaultdict[tuple[Key, bool], dict[tuple[int, int], int]]


def _lives(tally: Tally) -> _Lives:
    found: _Lives = defaultdict(dict)
    for (key, bound, living), (objects,) in tally.sums["site_lives"].items():
        found[key, living][bound // 2, bound] = objects
    return found


def _site(key: Key, row: Row, tally: Tally, lives: _Lives, all_bytes: int) -> Site:
    module, chain = key
    negative_smallest, largest = tally.most["sites"][key]
    return Site(
        chain=list(chain),
        module=module,
        amount=amount(row),
        share=share(row[1], all_bytes) or 0.0,
        smallest=-negative_smallest,
        largest=largest,
        small_share=share(row[SMALL], row[0]) or 0.0,
        interleaving=share(row[SWITCHES], row[COUNTED]),
        remote_share=share(row[REMOTE], row[FREED]),
        median_ns=survival_quantile(lives[key, False], lives[key, True], 0.5),
        peak=amount(row, PEAK),
        end=amount(row, END),
    )
