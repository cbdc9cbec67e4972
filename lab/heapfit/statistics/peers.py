"""Set every allocator against the best of its peers, workload by workload, and combine.

A figure's cost on a workload is its metric (of a rate the inverse, so that more is always worse).
Its ratio is to the *peer* of the smallest geometric mean: among those that the figure names, or all
allocators but the subject. It is the ratio of the two's verdict on that workload. Ratios of all
workloads combine by their geometric mean, each with the same weight (P. J. Fleming and J. J.
Wallace, "How not to lie with statistics: the correct way to summarize benchmark results",
Communications of the ACM 29 (1986), 218-221), as `verdict.average` does over settings; its interval
is from there too.

The best of several noisy means is on average too good; ratios therefore err against the subject,
not for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from heapfit.statistics.observations import Flags, Floats
from heapfit.statistics.verdict import Pairs, average, judge, mean_of_known, pairs


@dataclass(frozen=True)
class _Costs:
    """One workload's costs: a row per allocator, a column per block, NaN where a trial failed."""

    workload: str
    values: Floats

    @cached_property
    def means(self) -> Floats:
        """The allocators' geometric means, as logarithms; NaN where there is none."""
        return mean_of_known(np.log(self.values))


@dataclass(frozen=True)
class _Against:
    """Every allocator against the best peer of one workload: columns are allocators."""

    workload: str
    best: int
    found: Pairs  # of means and variances of differences of logarithms
    low: Floats  # of the verdicts; NaN: untold
    high: Floats

    @property
    def ratios(self) -> Floats:
        return np.exp(self.found.mean)


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
    peers = np.array([_is_peer(name, definition, subject) for name in allocators])
    costs = [_costs(study, trials, definition, allocators) for study, trials in measured]
    found = [_against(each, peers) for each in costs if np.isfinite(each.means[peers]).any()]
    return PeerComparison(
        definition=definition,
        best_peer={each.workload: allocators[each.best] for each in found},
        ratios={each.workload: _by_allocator(each.ratios, allocators) for each in found},
        combined=_combined(found, allocators),
    )


def _is_peer(name: str, definition: FigureDefinition, subject: str) -> bool:
    return name in definition.peers if definition.peers else name != subject


def _costs(
    study: Study,
    trials: Sequence[Trial],
    definition: FigureDefinition,
    allocators: Sequence[str],
) -> _Costs:
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
    return _Costs(study.name, values.T)


def _against(costs: _Costs, peers: Flags) -> _Against:
    means = costs.means
    best = int(np.nanargmin(np.where(peers, means, np.nan)))
    found = pairs(costs.values, to=best)
    judged = judge(found)
    blocks = (~np.isnan(costs.values[best])).sum()

    def every(others: Floats, itself: float = 0.0) -> Floats:
        """Of all allocators, the best among them."""
        return np.insert(others, best, itself)

    return _Against(
        costs.workload,
        best,
        Pairs(
            first=np.arange(len(means)),
            second=np.full(len(means), best),
            mean=every(found.mean),
            variance=every(found.variance),
            df=every(found.df, max(blocks - 1.0, 1.0)),
            blocks=np.insert(found.blocks, best, blocks),
            treatments=np.array(2),  # the mean of one allocator is a family of its own
        ),
        every(judged.low),
        every(judged.high),
    )


def _by_allocator(ratios: Floats, allocators: Sequence[str]) -> dict[str, float]:
    pairs = zip(allocators, ratios, strict=True)
    return {name: float(ratio) for name, ratio in pairs if np.isfinite(ratio)}


def _combined(found: Sequence[_Against], allocators: Sequence[str]) -> dict[str, Combined]:
    if not found:
        return {}
    rows = np.array([each.ratios for each in found])
    lows, highs = (np.exp([getattr(each, end) for each in found]) for end in ("low", "high"))
    together = judge(average(_stacked([each.found for each in found]), np.isfinite(rows)))
    combined: dict[str, Combined] = {}
    for column, name in enumerate(allocators):
        own = rows[:, column]
        if np.isfinite(own).all():
            best, worst = int(own.argmin()), int(own.argmax())
            combined[name] = Combined(
                geometric_mean=float(np.exp(together.mean[column])),
                low=_known(np.exp(together.low[column])),
                high=_known(np.exp(together.high[column])),
                best=float(own[best]),
                best_low=_known(lows[:, column].min()),
                best_high=_known(highs[:, column].min()),
                best_workload=found[best].workload,
                worst=float(own[worst]),
                worst_low=_known(lows[:, column].max()),
                worst_high=_known(highs[:, column].max()),
                worst_workload=found[worst].workload,
            )
    return combined


def _stacked(parts: Sequence[Pairs]) -> Pairs:
    """Those of all workloads, the first axis."""
    columns = ("mean", "variance", "df", "blocks", "treatments")
    stacked = {name: np.array([getattr(each, name) for each in parts]) for name in columns}
    return replace(parts[0], **stacked)


def _known(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
