"""Compare every allocator with the best of its peers, workload by workload, and combine.

A figure's cost on a workload is its metric (of a rate the inverse, so that more is always worse).
Its ratio is to the *peer* of the smallest geometric mean: among those that the figure names, or all
allocators but the subject. It is the ratio of the two's verdict on that workload. Ratios of all
workloads combine by their geometric mean, each with the same weight (P. J. Fleming and J. J.
Wallace, "How not to lie with statistics: the correct way to summarize benchmark results",
Communications of the ACM 29 (1986), 218-221).

The best of several noisy means is on average too good, so a combined ratio errs against the
allocator. Its interval makes up for that: it is for the ratio to the peers that are truly best.

- For the lower bound, each half of the blocks chooses a peer on every workload, and the other half
  gives its mean, which is then not too good. Where a half chooses a peer that is not truly the
  best, the bound is only lower.
- The upper bound is the largest that any choice of peers would have. The choice of the peers that
  are truly the best is among them.

The bounds of single workloads are simultaneous over all pairs of allocators and all workloads,
because the best and the worst workload are chosen too.

`benchmarks/peers_errors.py` counts how often such an interval holds the truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from heapfit.records import (
    PRIMARY,
    Combined,
    FigureDefinition,
    PeerComparison,
    Study,
    Trial,
    TrialStatus,
)
from heapfit.statistics.observations import Flags, Floats, Integers
from heapfit.statistics.verdict import (
    FEWEST_BLOCKS,
    Pairs,
    adjusted_for,
    average,
    critical_t,
    judge,
    mean_of_known,
    pairs,
)

# What two halves find of a workload is correlated, by less than a half: where the peer that one
# half chose by a low figure is judged by the other half, that half chose another for its own.
_OF_HALVES = 1.5


@dataclass(frozen=True)
class Costs:
    """One workload's costs: a row per allocator, a column per block, NaN where a trial failed."""

    workload: str
    values: Floats

    @cached_property
    def means(self) -> Floats:
        """The allocators' geometric means, as logarithms; NaN where there is none."""
        return mean_of_known(np.log(self.values))

    def best(self, peers: Flags) -> int:
        """Return the peer of the smallest mean."""
        return int(np.nanargmin(np.where(peers, self.means, np.nan)))

    def has(self, peers: Flags) -> bool:
        return bool(np.isfinite(self.means[peers]).any())


@dataclass(frozen=True)
class _Against:
    """Every allocator against every other one on a workload; arrays are [allocator, peer]."""

    costs: Costs
    best: int  # the peer of the smallest mean
    mean: Floats  # of differences of logarithms
    variance: Floats  # of that mean
    df: Floats
    comparisons: Integers

    @property
    def ratios(self) -> Floats:
        return np.exp(self.mean[:, self.best])


def compare_with_peers(
    definition: FigureDefinition,
    measured: Sequence[tuple[Study, Sequence[Trial]]],
    allocators: Sequence[str],
    subject: str,
) -> PeerComparison:
    """Return the figure `definition` over all workloads in `measured` that have it.

    An allocator without a single good trial on some workload has no combined ratio: a mean over
    fewer workloads could not be compared with the others'.
    """
    costs = [costs_of(study, trials, definition, allocators) for study, trials in measured]
    return compare_costs(definition, costs, allocators, subject)


def compare_costs(
    definition: FigureDefinition, costs: Sequence[Costs], allocators: Sequence[str], subject: str
) -> PeerComparison:
    """Return the figure `definition` over all workloads whose `costs` are given."""
    peers = np.array([_is_peer(name, definition, subject) for name in allocators])
    found = [_against(each, peers) for each in costs if each.has(peers)]
    return PeerComparison(
        definition=definition,
        best_peer={each.costs.workload: allocators[each.best] for each in found},
        ratios={each.costs.workload: _by_allocator(each.ratios, allocators) for each in found},
        combined=_combined(found, peers, allocators),
    )


def interval_to_best(costs: Sequence[Costs], peers: Flags) -> tuple[Floats, Floats]:
    """Return each allocator's interval for the mean logarithm of its ratio to the best `peers`."""
    return _interval([_against(each, peers) for each in costs], peers)


def _is_peer(name: str, definition: FigureDefinition, subject: str) -> bool:
    return name in definition.peers if definition.peers else name != subject


def costs_of(
    study: Study,
    trials: Sequence[Trial],
    definition: FigureDefinition,
    allocators: Sequence[str],
) -> Costs:
    """Return a workload's costs by the figure `definition`."""
    wanted = study.primary_metric if definition.metric == PRIMARY else definition.metric
    is_rate = any(m.name == wanted and m.better == "higher" for m in study.metrics)
    columns = {name: column for column, name in enumerate(allocators)}
    rows: dict[tuple[str | None, int], Floats] = {}
    for trial in trials:
        figure = trial.metrics.get(wanted, 0.0)
        column = columns.get(trial.planned.allocator)
        if trial.status is TrialStatus.OK and not trial.planned.warmup and column is not None:
            row = rows.setdefault(trial.block, np.full(len(allocators), np.nan))
            if figure > 0:  # A ratio to nothing says nothing.
                row[column] = 1 / figure if is_rate else figure
    values = np.array(list(rows.values())).reshape(-1, len(allocators))
    return Costs(study.name, values.T)


def _against(costs: Costs, peers: Flags) -> _Against:
    """Compare all allocators; the ratio of one to itself is 1 without any scatter."""
    found = pairs(costs.values, steady=False)
    own = (~np.isnan(costs.values)).sum(axis=1)

    def square(upper: Floats, lower: Floats, itself: Floats) -> Floats:
        made = np.diag(itself)
        made[found.first, found.second], made[found.second, found.first] = upper, lower
        return made

    nothing = np.where(own > 0, 0.0, np.nan)
    return _Against(
        costs,
        costs.best(peers),
        square(found.mean, -found.mean, nothing),
        square(found.variance, found.variance, nothing),
        square(found.df, found.df, np.maximum(own - 1.0, 1.0)),
        found.comparisons,
    )


def _by_allocator(ratios: Floats, allocators: Sequence[str]) -> dict[str, float]:
    pairs = zip(allocators, ratios, strict=True)
    return {name: float(ratio) for name, ratio in pairs if np.isfinite(ratio)}


def _combined(
    found: Sequence[_Against], peers: Flags, allocators: Sequence[str]
) -> dict[str, Combined]:
    if not found:
        return {}
    rows = np.array([each.ratios for each in found])
    low, high = (np.exp(each) for each in _interval(found, peers))
    each_low, each_high = (np.exp(each) for each in _of_workloads(found, peers))
    combined: dict[str, Combined] = {}
    for column, name in enumerate(allocators):
        own = rows[:, column]
        if np.isfinite(own).all():
            best, worst = int(own.argmin()), int(own.argmax())
            combined[name] = Combined(
                geometric_mean=float(np.exp(np.log(own).mean())),
                low=_known(low[column]),
                high=_known(high[column]),
                best=float(own[best]),
                best_low=_known(each_low[:, column].min()),
                best_high=_known(each_high[:, column].min()),
                best_workload=found[best].costs.workload,
                worst=float(own[worst]),
                worst_low=_known(each_low[:, column].max()),
                worst_high=_known(each_high[:, column].max()),
                worst_workload=found[worst].costs.workload,
            )
    return combined


def _interval(found: Sequence[_Against], peers: Flags) -> tuple[Floats, Floats]:
    """The bounds of each allocator's mean logarithm, by the peers that are truly the best."""
    chosen = _averaged([(a.mean[:, a.best], a.variance[:, a.best], a.df[:, a.best]) for a in found])
    own = judge(chosen)
    if peers.sum() == 1:  # Nothing is chosen.
        return own.low, own.high
    low = judge(_averaged([_by_halves(each, peers) for each in found])).low
    return np.minimum(low, own.high), _highest(found, peers, chosen, own.high)


def _by_halves(found: _Against, peers: Flags) -> tuple[Floats, Floats, Floats]:
    """The mean, its variance and degrees of freedom by the peer that the other half chose."""
    costs = found.costs
    logs = np.log(costs.values)
    halves = logs[:, ::2], logs[:, 1::2]  # What drifts is in both.
    chosen = [Costs(costs.workload, np.exp(half)) for half in reversed(halves)]
    parts = [
        (half - half[peer], peer)
        for half, other in zip(halves, chosen, strict=True)
        if other.has(peers)
        for peer in [other.best(peers)]
    ]
    nothing = np.full(len(logs), np.nan)
    if not parts:
        return nothing, nothing, nothing
    weights = np.array([(~np.isnan(gaps)).sum(axis=1) for gaps, _ in parts], dtype=float)
    weights[:, weights.sum(axis=0) == 0] = np.nan
    weights /= weights.sum(axis=0)
    means = np.array([np.nan_to_num(mean_of_known(gaps)) for gaps, _ in parts])
    judges = [peer for _, peer in parts]
    variances = found.variance[:, judges].T
    return (
        (weights * means).sum(axis=0),
        _OF_HALVES * (weights * variances).sum(axis=0),
        found.df[:, judges].min(axis=1),
    )


def _averaged(parts: Sequence[tuple[Floats, Floats, Floats]]) -> Pairs:
    """Average means over workloads, with their variances and degrees of freedom. Each allocator is
    a family of its own."""
    mean, variance, df = (np.array(each) for each in zip(*parts, strict=True))
    count = mean.shape[1]
    of_workloads = Pairs(
        first=np.arange(count),
        second=np.arange(count),
        mean=mean,
        variance=variance,
        df=df,
        blocks=np.where(np.isnan(df), 0, df + 1).astype(np.int64),
        comparisons=np.ones(len(parts), dtype=np.int64),
    )
    return average(of_workloads, np.isfinite(mean))


def _highest(found: Sequence[_Against], peers: Flags, chosen: Pairs, high: Floats) -> Floats:
    """The largest upper bound of any choice of peers, or more.

    A bound is M + t sqrt(V), M and V sums over the workloads. As sqrt(V) is at most V / 2 S + S / 2
    whatever S, each workload's peer can be looked for alone.
    """
    count = len(found)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = count * np.sqrt(chosen.variance)
        reach = count * (high - chosen.mean)  # t times the spread
        slope = np.where(spread > 0, reach / (2 * spread**2), 0.0)
    means = np.array([each.mean for each in found])
    more = np.nan_to_num(np.array([each.variance for each in found])) * slope[:, None]
    largest = np.fmax.reduce(np.where(peers, means + more, -np.inf), axis=2)
    return np.asarray((largest.sum(axis=0) + reach / 2) / count)


def _of_workloads(found: Sequence[_Against], peers: Flags) -> tuple[Floats, Floats]:
    """The bounds of each workload's ratio, [workload, allocator]; they hold all at once."""
    lows, highs = [], []
    for each in found:
        told = each.df >= FEWEST_BLOCKS - 1
        df = np.where(told, each.df, np.nan)
        bound = critical_t(adjusted_for(each.comparisons, len(found)), df)
        reach = bound * np.sqrt(each.variance)
        lows.append((each.mean - reach)[:, each.best])
        highest = np.fmax.reduce(np.where(peers, each.mean + reach, -np.inf), axis=1)
        highs.append(np.where(told[:, each.best], highest, np.nan))
    return np.array(lows), np.array(highs)


def _known(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
