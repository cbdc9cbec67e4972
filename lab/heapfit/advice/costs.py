"""The costs of every trial and what they come to, by allocator and setting.

A trial's cost of a goal is its figure, of a rate the inverse. Its score is the weighted geometric
mean of its costs. The logarithm of the score is a weighted sum of those of the costs, so that one
analysis of variance of it, blocks and all, says which allocators can be told apart under the
weights, whatever the correlation of time and memory in a trial. Geometric means are the only ones
under which the ranking does not depend on what the ratios are to: P. J. Fleming and J. J. Wallace,
"How not to lie with statistics: the correct way to summarize benchmark results", CACM 29 (1986),
218-221.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from heapfit.advice.goals import Goal
from heapfit.records import ALLOCATOR
from heapfit.statistics.assumptions import check, holds
from heapfit.statistics.comparisons import (
    Compared,
    compare_overall,
    compare_within,
    tukey_procedure,
)
from heapfit.statistics.fitted import Fitted, fit_on, model_of
from heapfit.statistics.observations import Floats, Layout, Readings, Sample, figures_of, sample
from heapfit.statistics.tukey import Estimates

# Scatter of the logarithms of scores below that is rounding: the figures are exact.
_ROUNDING = 1e-20


@dataclass(frozen=True)
class Costs:
    """What the trials of a study cost. Arrays have a column per allocator, a row per setting."""

    allocators: list[str]
    by_goal: dict[str, Floats]  # logarithms of geometric means
    figures: dict[str, Floats]  # by metric: one per allocator, over all settings
    sample: Sample
    fitted: Fitted | None  # None: too few trials, or no scatter
    exact: bool

    def log_scores(self, goals: Sequence[Goal]) -> Floats:
        """Return the logarithms of the scores."""
        total = sum(goal.weight for goal in goals)
        parts = [goal.weight / total * self.by_goal[goal.name] for goal in goals]
        return np.asarray(np.sum(parts, axis=0))

    def overall(self) -> Compared | None:
        """Return the allocators' scores compared over all settings."""
        if self.fitted is None:
            return None
        return compare_overall(self.fitted, _estimates(self.fitted), ALLOCATOR)

    def within_settings(self) -> list[Compared]:
        """Return the allocators' scores compared in each setting."""
        if self.fitted is None:
            return []
        procedure = tukey_procedure(_estimates(self.fitted), self.fitted.exponent)
        return compare_within(self.sample.layout, ALLOCATOR, procedure)


def costs_of(readings: Readings, goals: Sequence[Goal]) -> Costs | None:
    """Return the trials' costs under `goals`; None where fewer than two allocators have any."""
    raw = {goal.name: figures_of(readings, goal.metric.name) for goal in goals}
    logs = {goal.name: _log_cost(goal, raw[goal.name]) for goal in goals}
    total = sum(goal.weight for goal in goals)
    score = np.sum([goal.weight / total * logs[goal.name] for goal in goals], axis=0)
    grid = sample(readings, np.exp(score), "what is weighed")
    if grid is None or grid.layout.factors[0].name != ALLOCATOR:
        return None
    layout = grid.layout
    model = model_of(layout)
    fitted = fit_on(grid, model, exponent=0) if model else None
    exact = fitted is not None and fitted.fit.sum_sq <= _ROUNDING * len(grid.figures)
    by_goal = {}
    for name, of_trials in logs.items():
        own = replace(grid, figures=np.exp(of_trials[layout.rows]))
        means = fit_on(own, model, exponent=0).fit.means if model else _plain_means(own)
        by_goal[name] = _settings_by_allocators(layout, means)
    return Costs(
        allocators=layout.factors[0].levels,
        by_goal=by_goal,
        figures={g.metric.name: _figures(layout, g, raw[g.name], by_goal[g.name]) for g in goals},
        sample=grid,
        fitted=None if exact else fitted,
        exact=exact,
    )


def _log_cost(goal: Goal, figures: Floats) -> Floats:
    """Counts may be zero, which has no logarithm: half the smallest count then stands for zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        smallest = np.nanmin(np.where(figures > 0, figures, np.nan))
        logs = np.log(np.where(figures == 0, smallest / 2, figures))
    return -logs if goal.metric.better == "higher" else logs


def _plain_means(grid: Sample) -> Floats:
    cell, cells = grid.layout.cell, grid.layout.cells
    sizes = np.bincount(cell, minlength=cells)
    return np.asarray(np.bincount(cell, np.log(grid.figures), cells) / sizes)


def _settings_by_allocators(layout: Layout, means: Floats) -> Floats:
    """The allocator is the first factor of a study."""
    return means.reshape(layout.shape[0], -1).T


def _figures(layout: Layout, goal: Goal, raw: Floats, logs: Floats) -> Floats:
    """An allocator's figure: the geometric mean; the arithmetic one of figures that may be zero."""
    kept = raw[layout.rows]
    if kept.min() > 0:
        sign = -1 if goal.metric.better == "higher" else 1
        return np.asarray(np.exp(sign * logs.mean(axis=0)))
    sizes = np.bincount(layout.cell, minlength=layout.cells)
    means = np.bincount(layout.cell, kept, layout.cells) / sizes
    return np.asarray(_settings_by_allocators(layout, means).mean(axis=0))


def _estimates(fitted: Fitted) -> Estimates:
    checks = check(fitted.fit.residuals, fitted.sample.layout.cell)
    return fitted.pooled if holds(checks, "equal-variance") else fitted.separate
