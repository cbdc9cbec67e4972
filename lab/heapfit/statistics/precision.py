"""How narrow the intervals are that a reader decides by.

These are of the primary metric and of peak memory, which the headline and the recommendation read:
of every pair, in every setting. How far an interval of a ratio reaches to either side is the root
of its upper bound over its lower one, less 1: on the scale of logarithms it is symmetric. A metric
whose figures can be zero has no ratio, and no precision; it is not waited for. Nor is processor
time where it decides: whether it does is not known before the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from heapfit.meaning import PROCESSOR, deciding_metrics
from heapfit.records import Metric, Precision, Verdict
from heapfit.statistics.observations import Readings, figures_of
from heapfit.statistics.verdict import between_settings, in_settings


def precision_of(readings: Readings) -> Precision | None:
    """Return the widest of the intervals that matter; None where no two can be compared."""
    metrics = [each for each in deciding_metrics(readings.study) if each.name != PROCESSOR]
    ratios = (each for each in _verdicts(readings, metrics) if each.subject == "ratio")
    return max(map(_precision, ratios), key=lambda each: each.reached, default=None)


def _verdicts(readings: Readings, metrics: Iterable[Metric]) -> Iterator[Verdict]:
    for metric in metrics:
        if readings.study.is_of_one:
            yield from between_settings(readings, metric)
        else:
            for found in in_settings(readings, figures_of(readings, metric.name), metric):
                yield from found


def _precision(verdict: Verdict) -> Precision:
    reached = math.inf
    if verdict.low and verdict.high is not None:  # A bound of nothing is one below all numbers.
        reached = math.sqrt(verdict.high / verdict.low) - 1
    return Precision(
        reached=reached,
        metric=verdict.metric,
        first=verdict.first,
        second=verdict.second,
        at=verdict.at,
        blocks=verdict.blocks,
    )
