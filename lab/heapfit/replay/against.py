"""Does a replay rank the allocators as the real program does?

Both are studies. Kendall's tau counts, over all pairs of allocators that both have, how many stand
in the same order, less those in the opposite one, and divides by all: 1 is the same ranking, -1 the
reverse, 0 none (tau-b, which allows for ties). M. G. Kendall, "A new measure of rank correlation",
Biometrika 30 (1938), 81-93.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from heapfit import meaning
from heapfit.errors import UsageError
from heapfit.records import Record, Summary

if TYPE_CHECKING:
    from heapfit.statistics import Readings

INSTRUCTIONS = "instructions"
_FEWEST_BLOCKS = 4  # of which each half has two

# Of two allocators any ranking agrees or it does not; that says nothing.
_FEWEST = 3


class Place(Record):
    """Where an allocator stands; costs are ratios to the best, ranks count from 1."""

    allocator: str
    real: float
    real_rank: int
    replayed: float
    replayed_rank: int


class Agreement(Record):
    """Two rankings by one of time and memory, in the order of the real program's."""

    what: str
    real_metric: str
    replayed_metric: str
    tau: float
    p: float  # of a tau at least so far from 0, if the rankings had nothing to do with each other
    halves: float | None = None  # tau between the halves of the real study; None: too few blocks
    places: list[Place]


def agreements(
    replayed: Summary, real: Summary, halves: tuple[Summary, Summary] | None = None
) -> list[Agreement]:
    """Return how the rankings by time, by instructions and by memory agree, as far as both studies
    have them. `halves` are those of the real study's blocks.

    Raises UsageError where too few allocators are in both.
    """
    counted = _first_of(replayed, (INSTRUCTIONS,))
    found = [
        _agreement(what, replayed, ours, real, theirs)
        for what, ours, theirs in (
            ("time", meaning.REPLAYED_TIME, _real_time(real)),
            ("instructions", counted, _first_of(real, (INSTRUCTIONS,)) or _real_time(real)),
            ("memory", meaning.REPLAYED_MEMORY, _first_of(real, meaning.PEAKS)),
        )
        if theirs is not None and ours is not None
    ]
    if halves is None:
        return found
    return [each.model_copy(update={"halves": _between(halves, each)}) for each in found]


def check_common(names: Iterable[str], real: Summary) -> None:
    """Raise UsageError where too few of these allocators are in the real study."""
    _check_enough({each.allocator for each in real.estimates}.intersection(names), real)


def _check_enough(common: Collection[str], real: Summary) -> None:
    if len(common) < _FEWEST:
        raise UsageError(
            f"the replay and {real.study.name} have {len(common)} allocators in common; a "
            f"ranking needs {_FEWEST}"
        )


def halved(readings: Readings) -> tuple[Summary, Summary] | None:
    """Return every second block of a study, and the others; None where there are fewer than four.

    Neighbours in time go to different halves, so that drift is in both.
    """
    from heapfit.statistics import read, summarise  # They load SciPy.

    blocks = sorted({each.block for each in readings.trials if not each.planned.warmup})
    if len(blocks) < _FEWEST_BLOCKS:
        return None
    first = set(blocks[::2])
    parts = (
        [each for each in readings.trials if (each.block in first) == is_first]
        for is_first in (True, False)
    )
    one, other = (summarise(read(readings.study, part)) for part in parts)
    return one, other


def _between(halves: tuple[Summary, Summary], found: Agreement) -> float | None:
    """Tau between the halves, over the allocators that the rankings have."""
    one, other = (_costs(half, found.real_metric) for half in halves)
    names = [each.allocator for each in found.places]
    if any(name not in one or name not in other for name in names):
        return None
    return _tau([one[name] for name in names], [other[name] for name in names])[0]


def _real_time(real: Summary) -> str | None:
    """What its study is decided by, unless that is memory."""
    primary = real.study.primary_metric
    return _first_of(real, (meaning.WALL if primary.endswith("_bytes") else primary,))


def _first_of(summary: Summary, names: Sequence[str]) -> str | None:
    measured = {estimate.metric for estimate in summary.estimates}
    return next((name for name in names if name in measured), None)


def _agreement(what: str, replayed: Summary, ours: str, real: Summary, theirs: str) -> Agreement:
    replayed_costs, real_costs = _costs(replayed, ours), _costs(real, theirs)
    common = sorted(real_costs.keys() & replayed_costs.keys(), key=lambda name: real_costs[name])
    _check_enough(common, real)
    real_side = [real_costs[name] for name in common]
    replayed_side = [replayed_costs[name] for name in common]
    tau, p = _tau(real_side, replayed_side)
    ranks = zip(common, _ranked(real_side), _ranked(replayed_side), strict=True)
    return Agreement(
        what=what,
        real_metric=theirs,
        replayed_metric=ours,
        tau=tau,
        p=p,
        places=[
            Place(
                allocator=name,
                real=real_ratio,
                real_rank=real_rank,
                replayed=ratio,
                replayed_rank=rank,
            )
            for name, (real_ratio, real_rank), (ratio, rank) in ranks
        ],
    )


def _tau(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """Kendall's tau and its probability."""
    from scipy.stats import kendalltau  # takes a third of a second, and few want a comparison

    outcome = kendalltau(first, second)
    return float(outcome.statistic), float(outcome.pvalue)


def _costs(summary: Summary, name: str) -> dict[str, float]:
    """Return what each allocator costs: the geometric mean of its medians over all settings.

    Only of those that have a figure in every setting; of a rate, its inverse.
    """
    metric = next(metric for metric in summary.study.metrics if metric.name == name)
    medians: dict[str, list[float]] = {}
    for estimate in summary.estimates:
        if estimate.metric == name and estimate.median > 0:
            medians.setdefault(estimate.allocator, []).append(estimate.median)
    settings = len(summary.study.settings())
    means = {
        allocator: geometric_mean(figures)
        for allocator, figures in medians.items()
        if len(figures) == settings
    }
    is_rate = metric.better == "higher"
    return {name: 1 / mean if is_rate else mean for name, mean in means.items()}


def _ranked(costs: Sequence[float]) -> list[tuple[float, int]]:
    """Return each cost as a ratio to the best, with its rank; equal costs have the same.

    >>> _ranked([2.0, 1.0, 2.0, 3.0])
    [(2.0, 2), (1.0, 1), (2.0, 2), (3.0, 4)]
    """
    best = min(costs)
    return [(cost / best, 1 + sum(other < cost for other in costs)) for cost in costs]
