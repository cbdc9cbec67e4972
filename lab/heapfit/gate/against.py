"""A program's heap against the one that was saved: which figures have grown, and at which calls.

The totals decide. The bound of a figure is the highest run that was saved, times what is allowed,
plus as much as the saved runs lay apart. It has failed when every run lies above, and passed when
most do not. Few runs show no growth, since a figure may vary that was alike in them: `are_enough`.
Call sites say where the growth is: they are the same site when
their functions are, in the order in which they call within these, whatever line or address that
is now.
"""

import os
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import starmap, zip_longest

from heapfit.errors import HeapfitError, unknown
from heapfit.gate.condition import Condition, parse
from heapfit.gate.decision import Decision, Outcome, Place
from heapfit.gate.heap import FIGURES, INSTRUCTIONS, Heap, Site
from heapfit.text import counted

# Instructions are allowed to grow by a thousandth: the linker and the environment move them.
_USUAL = {INSTRUCTIONS: 1.001}
# Of a figure; of all four together at most one check in a hundred fails without a reason.
_MOST_FALSE = 0.01 / 4
_MOST_PLACES = 5
_LEFT_RUNNING = (
    "the program left a process running in the background: what that does is not in these figures; "
    "if it turns into a daemon, have it stay in the foreground"
)
_STARTED_OTHERS = (
    "the program started other processes, which are not in these figures; to count them, too, save "
    "with --attach-children"
)
_SPOKEN = {name: name.replace("_", " ") for name in (*FIGURES, INSTRUCTIONS)}
_POSITION = re.compile(r"(?::|\+0x)([0-9a-f]+)$")


class FigureDecision(Decision):
    """A figure of each run, before and now, the lowest first, and the most that is allowed."""

    metric: str
    before: list[int]
    now: list[int]
    allowed: float


@dataclass(frozen=True)
class _Pair:
    """A call site before and now; None: not among those that are kept. One of them is there."""

    before: Site | None
    now: Site | None

    def growth(self, metric: str) -> int:
        was, is_now = (
            each.figures.get(metric, 0) if each else 0 for each in (self.before, self.now)
        )
        return is_now - was

    @property
    def moved(self) -> bool:
        if self.before is None or self.now is None:
            return False
        return self.before.calls != self.now.calls


def allowances(texts: Sequence[str]) -> dict[str, Condition]:
    """Return what `--allow` says of each figure; UsageError where there is no such one."""
    found = [parse(text, "--allow", "<=", "allocations<=1.01") for text in texts]
    for each in found:
        if each.treatment or each.metric not in _SPOKEN:
            raise unknown("figure", each.text.partition("<")[0].strip(), _SPOKEN)
    return {each.metric: each for each in found}


def compare(before: Heap, now: Heap, allowed: Mapping[str, Condition]) -> list[FigureDecision]:
    """Return a decision for each figure that was saved. HeapfitError: the program has failed."""
    if now.exit_code != before.exit_code:
        raise HeapfitError(
            f"the program ended with exit code {now.exit_code}, and with {before.exit_code} "
            "when it was saved, so nothing is compared"
        )
    pairs = list(_paired(before.sites, now.sites))
    return [_decide(metric, before, now, allowed, pairs) for metric in before.figures]


def are_enough(saved: int, now: int) -> bool:
    """Whether so many runs can show growth.

    A figure with two values, the higher with probability p, is low in all saved runs and high in
    all others with probability (1 - p)^saved * p^now, which is greatest at p = now / (saved + now).

    >>> are_enough(5, 5), are_enough(4, 5), are_enough(1, 5), are_enough(5, 1)
    (True, True, False, False)
    """
    high = now / (saved + now)
    return (1 - high) ** saved * high**now <= _MOST_FALSE


def is_settled(before: Heap, now: Heap, allowed: Mapping[str, Condition]) -> bool:
    """Return whether one run is enough: nothing that was saved scatters, and nothing has grown."""
    return all(
        saved[0] == saved[-1] and now.figures[metric][-1] <= _bound(metric, saved, allowed)
        for metric, saved in before.figures.items()
    )


def left_out(now: Heap) -> list[str]:
    """Return which processes of the program no figure is of."""
    told = ((now.left_running, _LEFT_RUNNING), (now.started_others, _STARTED_OTHERS))
    return [note for is_so, note in told if is_so]


def notes(before: Heap, now: Heap) -> list[str]:
    """Return what else is different, and what one should know of the figures."""
    found = left_out(now)
    if before.command != now.command:
        found.append(f"what was saved is of another command: {shlex.join(before.command)}")
    if before.machine != now.machine:
        found.append(f"it was saved on {before.machine}, and this is {now.machine}")
    moved = sum(pair.moved for pair in _paired(before.sites, now.sites))
    if moved:
        found.append(f"{counted(moved, 'call site')} moved to another line or address")
    return found


def _bound(metric: str, saved: Sequence[int], allowed: Mapping[str, Condition]) -> float:
    low, high = saved[0], saved[-1]
    own = allowed.get(metric)
    if own and own.is_difference:
        return high + own.bound + (high - low)
    return high * (own.bound if own else _USUAL.get(metric, 1.0)) + (high - low)


def _decide(
    metric: str,
    before: Heap,
    now: Heap,
    allowed: Mapping[str, Condition],
    pairs: Sequence[_Pair],
) -> FigureDecision:
    saved, found = before.figures[metric], now.figures[metric]
    bound = _bound(metric, saved, allowed)
    most_within = found[len(found) // 2] <= bound
    is_above = found[0] > bound
    is_shown = is_above and are_enough(len(saved), len(found))
    outcome: Outcome = "passed" if most_within else "failed" if is_shown else "untold"
    limit = "" if outcome == "passed" else f"; at most {bound:,.0f} allowed"
    if _range(found) == _range(saved):
        why = f"{_range(found)}, as when it was saved{limit}"
    else:
        why = f"{_range(found)} ({_range(saved)} when saved{limit})"
    if outcome == "untold" and is_above:
        why += (
            f"; {counted(len(saved), 'saved run')} and {len(found)} now are too few to show "
            "growth, for a figure may vary: take 5 of each (--runs), saving again, or use --allow"
        )
    elif outcome == "untold":
        why += (
            f"; its {counted(len(found), 'run')} lie on both sides of the limit: allow more with "
            "--allow"
        )
    return FigureDecision(
        name=_SPOKEN[metric],
        outcome=outcome,
        why=why,
        places=[] if outcome == "passed" else _places(metric, pairs),
        metric=metric,
        before=saved,
        now=found,
        allowed=bound,
    )


def _range(runs: Sequence[int]) -> str:
    low, high = runs[0], runs[-1]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _places(metric: str, pairs: Sequence[_Pair]) -> list[Place]:
    """Return where a figure has grown most, and then where it has shrunk most.

    A function that one build puts into its caller and the other does not is another site: only
    together do what came and what went say what the change is.
    """
    by_growth = sorted(pairs, key=lambda each: -each.growth(metric))
    grown = [each for each in by_growth if each.growth(metric) > 0]
    shrunk = [each for each in reversed(by_growth) if each.growth(metric) < 0]
    return [
        *(_grown(metric, each) for each in grown[:_MOST_PLACES]),
        *(_shrunk(metric, each) for each in shrunk[:_MOST_PLACES]),
    ]


def _shrunk(metric: str, pair: _Pair) -> Place:
    """Of no file: nobody need look at a line that allocates less."""
    there = pair.now or pair.before
    assert there is not None
    gone = "" if pair.now else " (no longer there)"
    return Place(what=f"{pair.growth(metric):,}: {' < '.join(there.calls)}{gone}")


def _grown(metric: str, pair: _Pair) -> Place:
    assert pair.now is not None
    was = "" if pair.before else " (new since it was saved)"
    if pair.before and pair.moved:
        was = f" (was {' < '.join(pair.before.calls)})"
    what = f"+{pair.growth(metric):,}: {' < '.join(pair.now.calls)}{was}"
    for call in pair.now.calls:
        # A file in this folder is the user's; others are the libraries' that they call.
        where = call.rpartition(" at ")[2]
        file, colon, line = where.rpartition(":")
        if colon and line.isdecimal() and not file.startswith("/") and os.path.isfile(file):
            return Place(what=what, file=file, line=int(line))
    return Place(what=what)


# ------------------------------------------------------------------------- the same site


def _paired(before: Sequence[Site], now: Sequence[Site]) -> Iterator[_Pair]:
    """Yield every site of now with the one that it was, and those that are gone."""
    old, new = _grouped(before), _grouped(now)
    for functions in {**new, **old}:
        yield from _aligned(old.get(functions, []), new.get(functions, []))


def _grouped(sites: Sequence[Site]) -> dict[tuple[str, ...], list[Site]]:
    """Return sites by the functions of their calls, in the order of the places in these."""
    groups: dict[tuple[str, ...], list[Site]] = defaultdict(list)
    for site in sorted(sites, key=lambda site: [_position(call) for call in site.calls]):
        kind = INSTRUCTIONS if INSTRUCTIONS in site.figures else ""
        groups[(kind, *map(_function, site.calls))].append(site)
    return groups


def _function(call: str) -> str:
    """Return the function of a call, or its module where there is none.

    >>> _function("f(int) at x.c:3"), _function("libc.so.6+0x12")
    ('f(int)', 'libc.so.6')
    """
    function, divider, where = call.rpartition(" at ")
    return function if divider else where.rpartition("+")[0]


def _position(call: str) -> int:
    found = _POSITION.search(call)
    if found is None:
        return 0
    return int(found[1], 16 if "+0x" in found[0] else 10)


def _aligned(old: Sequence[Site], new: Sequence[Site]) -> Iterator[_Pair]:
    """Yield the sites of one group in order; those of the same figures are the same."""
    if len(old) == len(new):
        yield from map(_Pair, old, new)
        return
    figures = [[tuple(site.figures.values()) for site in sites] for sites in (old, new)]
    matcher = SequenceMatcher(None, figures[0], figures[1], autojunk=False)
    for _, first, last, start, end in matcher.get_opcodes():
        yield from starmap(_Pair, zip_longest(old[first:last], new[start:end]))
