"""Stacks of calls and what they have allocated, for the page's flame graph."""

from itertools import chain
from operator import sub

from heapfit.names import passes_on, shortened, started
from heapfit.profile.flames import stacks
from heapfit.profile.flames.tree import Tree, grow
from heapfit.profile.tally import Tally
from heapfit.profile.trace import Trace

# Sites of one trace that are told apart, those with most bytes: more than a screen has room for,
# and a page of a few megabytes at most.
APART = 1 << 17
TITLES = ("live at the peak", "live at the end", "allocated in all", "short-lived")


def count(trace: Trace, tally: Tally) -> None:
    """Count by stack, if sites were recorded."""
    found = stacks.count(trace, APART)
    if not found.places:
        return
    labels = {place: _labels(place) for place in set(found.places.values())}
    for site, amounts in found.amounts.items():
        names = [name for place in found.chain(site) for name in labels[place]]
        names = names[: started(names)]
        stack = names[::-1] or [shortened(name) for name, _ in found.frames(site)[:1]]
        tally.add("flames", tuple(stack), chain.from_iterable(amounts))


def _labels(place: stacks.Place) -> list[str]:
    """What is shown of a place, innermost first."""
    names = [shortened(name) for name, _ in place.frames]
    return [name for name in names if not passes_on(name)]


def difference(old: Tally, new: Tally) -> Tree:
    """Return the tree of what stacks have more in one of two tallies than in the other."""
    before, after = old.sums["flames"], new.sums["flames"]
    nothing = (0,) * 2 * len(TITLES)
    rows = {}
    for stack in before.keys() | after.keys():
        apart = tuple(map(sub, after.get(stack, nothing), before.get(stack, nothing)))
        grown, shrunk = ([max(sign * each, 0) for each in apart] for sign in (1, -1))
        # Of each title the one and the other, side by side.
        pairs = (each[at : at + 2] for at in range(0, len(nothing), 2) for each in (grown, shrunk))
        rows[stack] = tuple(chain.from_iterable(pairs))
    return grow(rows, [f"{title}: {way}" for title in TITLES for way in ("more", "less")])


def finish(tally: Tally) -> Tree:
    """Return the tree of all stacks; none where no sites were recorded."""
    return grow(tally.sums["flames"], TITLES)
