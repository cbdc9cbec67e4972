"""Call sites: who asks for the memory, and how much between objects of other sites.

Pools put the objects of one site side by side. That pays for sites whose objects an ordinary heap
mixes with others': where the allocation before, of like size, was mostly another site's.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Sequence
from itertools import takewhile
from pathlib import Path

from heapfit.profile.model import EIGHTHS, HELD_AFTER, SMALL_BYTES, UNKNOWN, Site, Sites
from heapfit.profile.sections import levels
from heapfit.profile.sections.lifetimes import survival_quantile
from heapfit.profile.tally import Key, Row, Tally, add_up, amount, share
from heapfit.profile.trace import Trace
from heapfit.symbols import Frame, own_calls, told
from heapfit.text import join_words

# Sites of one trace that are told apart, those with most bytes, then most allocations.
APART = 4096
CHAIN_SHOWN = 8  # calls ...
CHAIN_READ = 64  # ... of so many, without those that are inlined
TOLD = 50

# Places in a row of the table `sites`: four amounts, the last at the other moment that may be the
# peak of a sample, or else at the peak, too; then numbers of objects in UNITS, ...
ALL, END, PEAK, RIVAL, SMALL, FREED, REMOTE = 0, 4, 8, 12, 16, 17, 18
# ... then bytes: live after so many eighths (HELD_AFTER) of all allocations; of those live at the
# end, and at the peak, what is of the later half of all allocations, of the last quarter and the
# last tenth; ...
HELD, OF_END, OF_PEAK = 19, 23, 26
LATE, RECENT, YOUNG = 0, 1, 2  # within each of the latter two
# ... then the reader's own counts of allocations and of those that came after another site's; ...
COUNTED, SWITCHES = 29, 30
# ... then bytes: the most live within each eighth, and the least (levels.py).
HIGHEST, LOWEST, WIDTH = 31, 31 + EIGHTHS, 31 + levels.WIDTH

# The site of an object, 0 for all that are not told apart.
_TOLD = "CASE WHEN site IN (SELECT site FROM apart) THEN site ELSE 0 END"

# A call as it is told, where its line is known.
_CALL = re.compile(r"(?P<function>.+) \((?P<file>[^:()]+):(?P<line>\d+)(, .*)?\)")
_WRAPPERS = 3  # of malloc, one within the other
# Of the bytes live at a moment: rows with less are not added to those of their function.
_ADDED = 0.01
# A site with so much of its function's bytes is named alone; else so many lines are.
_NEARLY_ALL, _LINES_NAMED = 0.9, 4
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
    reached = levels.of_sites(trace, _TOLD)
    tally.add("levels", (), reached[None])
    for site, smallest, largest, *row in _sums(trace):
        key = names.get(site, REST)
        counts = (*counted.get(site, (0, 0)), *reached[site])
        tally.add("sites", key, (*map(int, row), *counts))
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
    parts = [f"{trace.allocated_part(of)} = {of - 1}" for of in (2, 4, 10)]
    columns = (
        trace.amount(),
        trace.amount("died_ns IS NULL"),
        trace.amount(trace.at_peak()),
        trace.amount(trace.at_rival()),
        trace.objects(f"size <= {SMALL_BYTES}"),
        trace.objects("died_ns IS NOT NULL"),
        trace.objects("remote"),
        *(trace.total("size", trace.after(part, EIGHTHS)) for part in HELD_AFTER),
        *(
            trace.total("size", f"{live} AND {part}")
            for live in ("died_ns IS NULL", trace.at_peak())
            for part in parts
        ),
    )
    return trace.query(
        f"SELECT {_TOLD} AS told, min(size), max(size), {', '.join(columns)} FROM object "
        "GROUP BY told"
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
    read = 0
    while site in frames and read < CHAIN_READ:
        caller, frame = frames[site]
        read += caller <= site  # a higher one is of the function that this is inlined in
        site = caller
        # What calls were inlined at an address of a file that has changed is not known any more.
        if frame.module not in changed or frame not in chain[-1:]:
            chain.append(frame)
    module = Path(own_calls(chain)[0][0].module or "").name if chain else ""
    return module, tuple(told(chain)[:CHAIN_SHOWN])


def name(key: Key) -> str:
    """Return what to call a site where there is no room for its chain."""
    _, chain = key
    return _shown(chain)


def _shown(chain: Sequence[str]) -> str:
    return " < ".join(chain[:3]) or UNKNOWN


def function(call: str = "") -> str:
    """Return the function of a call as it is told, without its place.

    >>> function("load (a.py:7, dict)")
    'load'
    """
    return call.partition(" (")[0]


def without_wrappers(chains: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the chains from the innermost call on that tells them apart.

    A call that leads several of the chains, from different functions, is a wrapper of malloc, as
    far as they are concerned.

    >>> without_wrappers([["new", "a (x.c:1)"], ["new", "b (x.c:9)"], ["f", "main"]])
    [['a (x.c:1)'], ['b (x.c:9)'], ['f', 'main']]
    """
    found = list(chains)
    for _ in range(_WRAPPERS):
        callers: dict[str, set[str]] = {}
        for chain in found:
            callers.setdefault(chain[0] if chain else "", set()).add(function(*chain[1:2]))
        found = [
            chain[1:] if len(chain) > 1 and len(callers[chain[0]]) > 1 else chain for chain in found
        ]
    return found


def by_function(tally: Tally, at: int) -> list[tuple[str, Row]]:
    """Return the sums of functions' sites, with their names, by the bytes of the amount at `at`."""
    of = sum(row[at + 1] for _, row in rows(tally))
    large = [(key, row) for key, row in rows(tally) if row[at] and row[at + 1] >= _ADDED * of]
    large.sort(key=lambda item: (-item[1][at + 1], item[0]))
    groups: defaultdict[Hashable, list[tuple[Key, Sequence[str], Row]]] = defaultdict(list)
    chains = without_wrappers([chain for (_, chain), _ in large])
    for (key, row), chain in zip(large, chains, strict=True):
        call = chain[0] if chain else ""
        placed = _CALL.fullmatch(call)
        groups[placed.group("function", "file") if placed else call].append((key, chain, row))
    found = []
    for group in groups.values():
        first, _, most = group[0]
        row = add_up((each for _, _, each in group), WIDTH)
        alone = most[at + 1] >= _NEARLY_ALL * row[at + 1]
        found.append((name(first) if alone else _together([each for _, each, _ in group]), row))
    return sorted(found, key=lambda item: (-item[1][at + 1], item[0]))


def _together(chains: Sequence[Sequence[str]]) -> str:
    """Return one name for chains that begin in one function, with the calls that led to all.

    >>> _together([["load (a.py:9)", "f"], ["load (a.py:7, dict)", "f"], ["load (a.py:9)", "g"]])
    'load (a.py, lines 7 and 9)'
    >>> _together([["load (a.py:9, list)", "f", "a"], ["load (a.py:9, dict)", "f", "b"]])
    'load (a.py:9) < f'
    >>> _together([["new", "grow", "push"], ["new", "grow", "insert"]])
    'new < grow'
    """
    placed = [each for chain in chains for each in [_CALL.fullmatch("".join(chain[:1]))] if each]
    lines = sorted({int(each["line"]) for each in placed})
    is_one = all(chain[:1] == chains[0][:1] for chain in chains)
    levels = zip(*(chain[0 if is_one else 1 :] for chain in chains), strict=False)
    shared = [calls[0] for calls in takewhile(lambda calls: len(set(calls)) == 1, levels)]
    if is_one or not placed:
        return _shown(shared or chains[0][:1])
    if len(lines) < 2:
        return _shown([f"{placed[0]['function']} ({placed[0]['file']}:{lines[0]})", *shared])
    more = [f"{len(lines) - _LINES_NAMED} more"] if len(lines) > _LINES_NAMED else []
    named = join_words([*map(str, lines[:_LINES_NAMED]), *more])
    return _shown([f"{placed[0]['function']} ({placed[0]['file']}, lines {named})", *shared])


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
        if not _CALL.fullmatch(first):
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
