"""A summary, indexed the way that every report reads it: by setting, metric and allocator.

Knows the order in which metrics are shown, which allocator is best where, and which cells can be
told apart. The writers only format what this module says, so that all of them say the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from heapfit.records import Estimate, Metric, Setting, Summary
from heapfit.report.settings import setting_of, settings_of
from heapfit.report.units import Scale, scale_for

# The smallest sample whose extremes enclose the median with 95 % confidence: 1 - 2 * 0.5**n
# reaches 0.95 at n = 6. With fewer trials an interval is only their range.
FEWEST_TRIALS = 6

# With more settings than this a reader is better served by tables and plots that line them up.
MOST_OPEN_SETTINGS = 4

# After the primary metric, the ones that most readers look for; the workload's own come next.
_USUAL_ORDER = [
    "wall_s",
    "user_s",
    "system_s",
    "peak_rss_bytes",
    "mean_rss_bytes",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
]


@dataclass(frozen=True)
class Interval:
    """A point with its 95 % interval, in whatever quantity two allocators are compared by."""

    middle: float
    low: float
    high: float

    def overlaps(self, other: Interval) -> bool:
        return self.low <= other.high and other.low <= self.high


class Results:
    """A summary's estimates, indexed. Owned by the report that made it; never changes."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.study = summary.study
        self.baseline = summary.study.baseline
        self.allocators = [allocator.name for allocator in summary.study.allocators]
        self.settings = settings_of(summary.study)
        self._cells = {(setting_of(e), e.metric, e.allocator): e for e in summary.estimates}
        self.metrics = self._ordered_metrics()
        # A report asks for these again in every cell of every table.
        self._scales: dict[tuple[str, int], Scale] = {}
        self._bests: dict[tuple[Setting, str], set[str]] = {}

    def _ordered_metrics(self) -> list[Metric]:
        """The metrics that have a figure anywhere, the primary one first."""
        with_figures = {metric for _, metric, _ in self._cells}
        present = [m for m in self.study.metrics if m.name in with_figures]
        primary = self.study.primary_metric

        def place(metric: Metric) -> tuple[int, int]:
            usual = metric.name in _USUAL_ORDER
            rank = _USUAL_ORDER.index(metric.name) if usual else len(_USUAL_ORDER)
            return (metric.name != primary, rank)

        return sorted(present, key=place)

    def estimate(self, setting: Setting, metric: Metric, allocator: str) -> Estimate | None:
        return self._cells.get((setting, metric.name, allocator))

    def estimates(self, setting: Setting, metric: Metric) -> list[Estimate]:
        """The estimates of one metric in one setting, in the study's order."""
        found = (self.estimate(setting, metric, name) for name in self.allocators)
        return [estimate for estimate in found if estimate is not None]

    def ranked(self, setting: Setting, metric: Metric) -> list[str]:
        """All allocators, the best median first, those without a figure last."""

        def key(name: str) -> float:
            estimate = self.estimate(setting, metric, name)
            return math.inf if estimate is None else _cost(estimate.median, metric)

        return sorted(self.allocators, key=key)

    def best(self, setting: Setting, metric: Metric) -> set[str]:
        """The allocators with the best median; none where there is nothing to choose between."""
        key = (setting, metric.name)
        if key not in self._bests:
            self._bests[key] = self._find_best(setting, metric)
        return self._bests[key]

    def _find_best(self, setting: Setting, metric: Metric) -> set[str]:
        estimates = self.estimates(setting, metric)
        costs = {e.allocator: _cost(e.median, metric) for e in estimates}
        if len(set(costs.values())) < 2:
            return set()
        return {name for name, cost in costs.items() if cost == min(costs.values())}

    def scale(self, metric: Metric, digits: int) -> Scale:
        """The scale of one metric, the same in all settings."""
        key = (metric.name, digits)
        if key not in self._scales:
            values = [e.median for e in self.summary.estimates if e.metric == metric.name]
            self._scales[key] = scale_for(metric.unit, values, digits)
        return self._scales[key]

    def constant(self, setting: Setting, metric: Metric) -> float | None:
        """The value that every single trial gave, if they all gave the same."""
        values = {v for e in self.estimates(setting, metric) for v in (e.minimum, e.maximum)}
        return values.pop() if len(values) == 1 else None

    def comparable(self, setting: Setting, metric: Metric) -> dict[str, Interval]:
        """Each allocator's interval in the quantity that tells allocators apart best.

        That is the ratio to the baseline, taken block by block, where every allocator has one: it
        is free of what a block's moment did to all of them alike. Else it is the median itself.
        """
        estimates = self.estimates(setting, metric)
        ratios = {e.allocator: self._ratio_interval(e) for e in estimates}
        if all(interval is not None for interval in ratios.values()):
            return {name: i for name, i in ratios.items() if i is not None}
        return {e.allocator: Interval(e.median, e.low, e.high) for e in estimates}

    @cached_property
    def has_mere_ranges(self) -> bool:
        """Whether some interval is only a range, of too few trials for 95 % confidence."""
        return any(e.n < FEWEST_TRIALS for e in self.summary.estimates)

    def _ratio_interval(self, estimate: Estimate) -> Interval | None:
        if estimate.allocator == self.baseline:
            return Interval(1.0, 1.0, 1.0)
        if estimate.ratio is None or estimate.ratio_low is None or estimate.ratio_high is None:
            return None
        return Interval(estimate.ratio, estimate.ratio_low, estimate.ratio_high)

    def differs_from_baseline(self, estimate: Estimate) -> bool | None:
        """Whether the ratio's interval excludes 1; None for the baseline or without an interval."""
        interval = self._ratio_interval(estimate)
        if estimate.allocator == self.baseline or interval is None:
            return None
        return not interval.low <= 1.0 <= interval.high

    def ratio(self, estimate: Estimate) -> float | None:
        """The ratio to the baseline; None also where the baseline's figure is zero."""
        if estimate.allocator == self.baseline:
            return 1.0 if estimate.median else None
        return estimate.ratio

    def trials_per_cell(self, setting: Setting, metric: Metric) -> tuple[int, int]:
        """The fewest and the most trials behind an estimate of this metric."""
        counts = [e.n for e in self.estimates(setting, metric)]
        return min(counts, default=0), max(counts, default=0)

    def leaders(self, setting: Setting, metric: Metric, among: Collection[str]) -> set[str]:
        """Of these allocators, the best and every other whose interval overlaps the best one's."""
        every = self.comparable(setting, metric)
        intervals = {name: interval for name, interval in every.items() if name in among}
        best = min(intervals.values(), key=lambda interval: _cost(interval.middle, metric))
        return {name for name, interval in intervals.items() if interval.overlaps(best)}


def _cost(value: float, metric: Metric) -> float:
    return value if metric.better == "lower" else -value
