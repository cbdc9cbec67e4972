"""The costs of every trial and what they come to, by allocator and setting.

A trial's cost of a goal is its figure, of a rate the inverse. Its score is the weighted geometric
mean of its costs. The logarithm of the score is a weighted sum of those of the costs, so that
scores are compared within blocks like any figure, whatever the correlation of time and memory in a
trial. So are costs: each allocator's with the baseline's in the blocks that have both, as verdicts
are. One that fails in slow blocks would look quick by the mean of its own. Geometric means are the
only ones under which the ranking does not depend on what the ratios are to: P. J. Fleming and J. J.
Wallace, "How not to lie with statistics: the correct way to summarize benchmark results", CACM 29
(1986), 218-221.

A goal whose figures may be zero has no cost: what is shown of it counts, but it cannot be weighed
against others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heapfit.advice.goals import Goal
from heapfit.records import Metric, Verdict
from heapfit.statistics.observations import Flags, Floats, Readings, figures_of
from heapfit.statistics.verdict import (
    by_block,
    in_full_grid,
    in_settings,
    mean_of_known,
    overall,
    subject_of,
)

SCORE = Metric(name="score", label="Score", unit="", better="lower", source="advice")


@dataclass(frozen=True)
class Costs:
    """What the trials of a study cost. Arrays have a row per setting, a column per allocator; NaN
    where an allocator, or a setting, is left out."""

    kept: list[int]  # the allocators that have figures in the settings that are compared
    by_goal: dict[str, Floats]  # logarithms of geometric means; of goals that have ratios
    figures: dict[str, Floats]  # by metric: one per allocator, over the settings
    scores: Floats  # of each trial; NaN: none

    def of(self, goal: str) -> Floats:
        """Return an allocator's cost over all settings, as a ratio to the best; NaN: left out."""
        logs = np.nanmean(self.by_goal[goal][:, self.kept], axis=0)
        costs = np.full(self.by_goal[goal].shape[1], np.nan)
        costs[self.kept] = np.exp(logs - logs.min())
        return costs


def costs_of(readings: Readings, goals: Sequence[Goal]) -> Costs | None:
    """Return the trials' costs under `goals`; None where fewer than two allocators have any."""
    raw = {goal.name: figures_of(readings, goal.metric.name) for goal in goals}
    logs = {g.name: _log_cost(g, raw[g.name]) for g in goals if has_ratios(g, raw[g.name])}
    total = sum(goal.weight for goal in goals if goal.name in logs)
    parts = [g.weight / total * logs[g.name] for g in goals if g.name in logs]
    score = np.exp(np.sum(parts, axis=0)) if parts else np.ones(len(readings.block))
    there = np.all([np.isfinite(each) for each in raw.values()], axis=0)
    score = np.where(there, score, np.nan)
    grid = in_full_grid(readings, score, SCORE.name)
    if grid is None:
        return None
    kept = np.flatnonzero(grid.any(axis=0)).tolist()
    baseline = [each.name for each in readings.study.allocators].index(readings.study.baseline)
    to = baseline if baseline in kept else kept[0]
    return Costs(
        kept=kept,
        by_goal={name: _means(readings, each, grid, to) for name, each in logs.items()},
        figures={g.metric.name: _figures(readings, g, raw[g.name], grid, to) for g in goals},
        scores=score,
    )


def score_verdicts(
    readings: Readings, costs: Costs, times: int
) -> tuple[list[Verdict], list[list[Verdict]]]:
    """Return the verdicts on the scores over all settings, and in each, there adjusted for so many
    `times` as many pairs."""
    in_each = in_settings(readings, costs.scores, SCORE, times)
    return overall(readings, costs.scores, SCORE), in_each


def has_ratios(goal: Goal, figures: Floats) -> bool:
    """Return whether a goal's figures can be weighed: those that may be zero have no ratio."""
    return subject_of(goal.metric.name, figures) == "ratio"


def _log_cost(goal: Goal, figures: Floats) -> Floats:
    logs = np.log(figures)
    return -logs if goal.metric.better == "higher" else logs


def _means(readings: Readings, logs: Floats, grid: Flags, to: int) -> Floats:
    """The mean of each setting and allocator that is compared: beside that of the allocator `to`,
    what it is to that one in the blocks that have both; its own where there is no such block."""
    table = by_block(readings, logs)
    reference = np.broadcast_to(table[:, to : to + 1], table.shape)
    shared = ~np.isnan(table) & ~np.isnan(reference)
    shared |= ~shared.any(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        moved = mean_of_known(reference) - mean_of_known(np.where(shared, reference, np.nan))
        return np.where(grid, mean_of_known(np.where(shared, table, np.nan)) + moved, np.nan)


def _figures(readings: Readings, goal: Goal, raw: Floats, grid: Flags, to: int) -> Floats:
    """An allocator's figure: the geometric mean; the arithmetic one of figures that may be zero."""
    ratios = has_ratios(goal, raw)
    averages = mean_of_known(_means(readings, np.log(raw) if ratios else raw, grid, to).T)
    return np.exp(averages) if ratios else averages


def pareto_front(costs: Sequence[Sequence[float]]) -> list[bool]:
    """Return, for each vector of costs, whether no other is as low everywhere and lower somewhere:
    the Pareto front, of those that no other one beats in everything.

    References: V. Pareto, "Manuale di economia politica" (1906); H. T. Kung, F. Luccio and F. P.
    Preparata, "On finding the maxima of a set of vectors", JACM 22 (1975), 469-476, for the notion
    of dominance.

    >>> pareto_front([(1, 3), (2, 2), (2, 3), (1, 3)])
    [True, True, False, True]
    """
    return [not any(_dominates(other, own) for other in costs) for own in costs]


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
