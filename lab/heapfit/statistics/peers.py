"""Set every allocator against the best of its peers, workload by workload, and combine.

A figure's cost on a workload is the median over replicates of its metric (of the inverse of a rate,
so that more is always worse). Its ratio is to the smallest cost among the *peers*: those that the
figure names, or all allocators but the subject. Ratios of all workloads combine by their geometric
mean, each with the same weight (P. J. Fleming and J. J. Wallace, "How not to lie with statistics:
the correct way to summarize benchmark results", Communications of the ACM 29 (1986), 218-221).

The interval of a geometric mean is a percentile bootstrap over blocks: within each workload whole
blocks are drawn again, so that what the trials of a block have in common stays together, and
everything is computed anew from them, the choice of the best peer included (B. Efron and R. J.
Tibshirani, "An Introduction to the Bootstrap", 1993, chapters 8 and 13). The best of several noisy
medians is on average too good; ratios therefore err against the subject, not for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heapfit.records import (
    PRIMARY,
    Combined,
    FigureDefinition,
    PeerComparison,
    Study,
    Trial,
    TrialStatus,
)
from heapfit.statistics.median import CONFIDENCE

# With fewer blocks, no interval of a median reaches 95 % either (`median.py`).
FEWEST_BLOCKS = 6
_RESAMPLES = 1000
_SEED = 1  # the same study always has the same interval

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Costs:
    """One workload's costs: a row per block, a column per allocator, NaN where a trial failed."""

    workload: str
    values: Floats

    def medians(self) -> Floats:
        return _medians(self.values)

    def resampled(self, generator: np.random.Generator) -> Floats:
        """Medians of resampled blocks: a row per resample, a column per allocator."""
        blocks = len(self.values)
        drawn = generator.integers(blocks, size=(_RESAMPLES, blocks))
        return _medians(self.values[drawn])


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
    found = [_costs(study, trials, definition, allocators) for study, trials in measured]
    costs = [each for each in found if np.isfinite(each.medians()[peers]).any()]
    ratios = {each.workload: _ratios(each.medians(), peers) for each in costs}
    return PeerComparison(
        definition=definition,
        best_peer={name: _best(row, allocators, peers) for name, row in ratios.items()},
        ratios={name: _by_allocator(row, allocators) for name, row in ratios.items()},
        combined=_combined(costs, ratios, allocators, peers),
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
    rows: dict[int, Floats] = {}
    for trial in trials:
        figure = trial.metrics.get(wanted, 0.0)
        column = columns.get(trial.planned.allocator)
        if trial.status is TrialStatus.OK and not trial.planned.warmup and column is not None:
            row = rows.setdefault(trial.planned.block, np.full(len(allocators), np.nan))
            if figure > 0:  # A ratio to nothing says nothing.
                row[column] = 1 / figure if is_rate else figure
    values = np.array([rows[block] for block in sorted(rows)]).reshape(-1, len(allocators))
    return _Costs(study.name, values)


def _medians(values: Floats) -> Floats:
    """Medians over the last but one axis, ignoring NaN; NaN where there is nothing else."""
    if values.shape[-2] == 0:
        return np.full((*values.shape[:-2], values.shape[-1]), np.nan)
    ordered = np.sort(values, axis=-2)  # NaN goes last
    counts = np.isfinite(values).sum(axis=-2, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(counts - 1, 0) // 2, axis=-2)
    high = np.take_along_axis(ordered, np.maximum(counts, 1) // 2, axis=-2)
    # An odd count makes both the middle one; a count of zero takes a NaN.
    middle: Floats = np.where(counts % 2 == 1, low, (low + high) / 2)
    return middle.squeeze(axis=-2)


def _ratios(medians: Floats, peers: NDArray[np.bool_]) -> Floats:
    best = np.min(np.where(peers & np.isfinite(medians), medians, np.inf), axis=-1, keepdims=True)
    ratios: Floats = medians / best
    return ratios


def _best(ratios: Floats, allocators: Sequence[str], peers: NDArray[np.bool_]) -> str:
    return allocators[int(np.nanargmin(np.where(peers, ratios, np.nan)))]


def _by_allocator(ratios: Floats, allocators: Sequence[str]) -> dict[str, float]:
    pairs = zip(allocators, ratios, strict=True)
    return {name: float(ratio) for name, ratio in pairs if np.isfinite(ratio)}


def _combined(
    costs: Sequence[_Costs],
    ratios: Mapping[str, Floats],
    allocators: Sequence[str],
    peers: NDArray[np.bool_],
) -> dict[str, Combined]:
    if not costs:
        return {}
    rows = np.array([ratios[each.workload] for each in costs])
    means = np.exp(np.log(rows).mean(axis=0))
    lows, highs = _intervals(costs, peers)
    combined: dict[str, Combined] = {}
    for column, name in enumerate(allocators):
        if np.isfinite(rows[:, column]).all():
            best, worst = int(rows[:, column].argmin()), int(rows[:, column].argmax())
            combined[name] = Combined(
                geometric_mean=float(means[column]),
                low=_known(lows[column]),
                high=_known(highs[column]),
                best=float(rows[best, column]),
                best_workload=costs[best].workload,
                worst=float(rows[worst, column]),
                worst_workload=costs[worst].workload,
            )
    return combined


def _intervals(costs: Sequence[_Costs], peers: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """The bounds of every allocator's geometric mean; NaN where there are too few blocks."""
    unknown = np.full(len(peers), np.nan)
    if min(len(each.values) for each in costs) < FEWEST_BLOCKS:
        return unknown, unknown
    generator = np.random.default_rng(_SEED)
    logs = [np.log(_ratios(each.resampled(generator), peers)) for each in costs]
    means = np.exp(np.mean(logs, axis=0))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return low, high


def _known(bound: float) -> float | None:
    return float(bound) if np.isfinite(bound) else None
