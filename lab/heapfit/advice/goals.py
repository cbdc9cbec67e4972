"""What a recommendation weighs: time, memory, fragmentation, and the metric that stands for
each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heapfit.records import Metric, Study
from heapfit.statistics.observations import Readings, figures_of

TIME, MEMORY, FRAGMENTATION = GOALS = ("time", "memory", "fragmentation")

# In the order of preference. In a replay the heap alone: the rest is the replayer's. Proportional
# set size where a study asked for it: it does not count twice what processes share. Peaks before
# averages: memory is provided for the peak.
_METRICS = {
    MEMORY: (
        "replay_peak_bytes",
        "peak_pss_bytes",
        "peak_rss_bytes",
        "mean_pss_bytes",
        "mean_rss_bytes",
    ),
    FRAGMENTATION: ("fragmentation_events", "heap_fragmentation"),
}
_WALL = "wall_s"


@dataclass(frozen=True)
class Goal:
    """Something to be kept low, with what it weighs."""

    name: str
    metric: Metric
    weight: float


def goals(readings: Readings, weights: Mapping[str, float]) -> tuple[list[Goal], list[str]]:
    """Return the goals that count, and a note on each weight that has no metric here.

    Without a weight above zero all goals weigh the same. Raises ValueError for an unknown goal or a
    negative weight.
    """
    for name, weight in weights.items():
        if name not in GOALS:
            raise ValueError(f"unknown weight {name!r}: there are {', '.join(GOALS)}")
        if weight < 0:
            raise ValueError(f"the weight of {name} is negative: {weight:g}")
    asked = {name: weight for name, weight in weights.items() if weight > 0}
    found: list[Goal] = []
    notes: list[str] = []
    for name in GOALS:
        weight = asked.get(name, 0.0) if asked else 1.0
        metric = _metric(name, readings)
        if weight and metric:
            found.append(Goal(name, metric, weight))
        elif name in asked:
            notes.append(
                f"{name.capitalize()} does not count: no metric of this study stands for it."
            )
    return found, notes


def _metric(goal: str, readings: Readings) -> Metric | None:
    """The first metric for `goal` that good trials have, and that is not nil throughout."""
    by_name = {metric.name: metric for metric in readings.study.metrics}
    candidates = _METRICS.get(goal) or _time_metrics(readings.study)
    for name in candidates:
        if name in by_name and (figures_of(readings, name) > 0).any():
            return by_name[name]
    return None


def _time_metrics(study: Study) -> tuple[str, ...]:
    """The primary metric, a rate or latency as a rule, unless it is of another goal."""
    others = {name for names in _METRICS.values() for name in names}
    return (_WALL,) if study.primary_metric in others else (study.primary_metric, _WALL)
