"""What a recommendation weighs: time, memory, fragmentation, and the metric that stands for
each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heapfit import meaning
from heapfit.records import Metric, Study
from heapfit.statistics.observations import Readings, figures_of
from heapfit.text import mid_sentence

TIME, MEMORY, FRAGMENTATION, MEAN_MEMORY = GOALS = (
    "time",
    "memory",
    "fragmentation",
    "mean-memory",
)
# What each weighs where nobody says. Mean memory would be memory counted twice.
_USUAL = {TIME: 1.0, MEMORY: 1.0, FRAGMENTATION: 1.0, MEAN_MEMORY: 0.0}

# The metrics that stand for a goal, in the order of preference. Means also stand for memory, where
# there is nothing better.
_METRICS = {
    MEAN_MEMORY: meaning.MEAN_MEMORY,
    MEMORY: meaning.MEMORY,
    FRAGMENTATION: meaning.FRAGMENTATION,
}


def title_of(goal: str, metric: Metric | None = None) -> str:
    """Return what a sentence calls a goal: one that decides in place of time, and is no time, by
    the label of its metric."""
    if metric and _is_metric(goal, metric):
        return mid_sentence(metric.label)
    return goal.replace("-", " ")


def _is_metric(goal: str, metric: Metric) -> bool:
    """Whether it is the metric that decides, in place of time, and that is no time."""
    return goal == TIME and not meaning.is_time(metric)


@dataclass(frozen=True)
class Goal:
    """Something to be kept low, with what it weighs."""

    name: str
    metric: Metric
    weight: float

    @property
    def title(self) -> str:
        return title_of(self.name, self.metric)

    @property
    def is_turned(self) -> bool:
        """Whether its title is of something that is better when it is higher."""
        return _is_metric(self.name, self.metric) and self.metric.better == "higher"

    @property
    def cost(self) -> str:
        """What it is that more or less is needed of."""
        return f"cost in {self.title}" if self.is_turned else self.title

    @property
    def is_counted(self) -> bool:
        """Whether there are fewer of it, not less."""
        is_a_count = _is_metric(self.name, self.metric) and self.metric.unit == "count"
        return is_a_count and self.metric.better == "lower"


def goals(readings: Readings, weights: Mapping[str, float]) -> tuple[list[Goal], list[str]]:
    """Return the goals that count, and a note on each weight that has no metric here, and on each
    usual goal that has no weight, or one on all of them.

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
    unweighted: list[str] = []
    for name in GOALS:
        weight = asked.get(name, 0.0) if asked else _USUAL[name]
        metric = _metric(name, readings)
        if weight and metric:
            found.append(Goal(name, metric, weight))
        elif name in asked:
            notes.append(f"{_does_not_count(name)}: no metric of this study stands for it.")
        elif metric and asked and _USUAL[name]:
            unweighted.append(name)
    if len(found) == 1 and len(unweighted) > 1:
        notes.append(f"Judged by {mid_sentence(found[0].metric.label)} alone.")
    else:
        notes += [f"{_does_not_count(each)}: it has no weight." for each in unweighted]
    return found, [*notes, *missing_words(readings)]


def _does_not_count(what: str) -> str:
    return f"{title_of(what).capitalize()} does not count"


def missing_words(readings: Readings) -> list[str]:
    """Return a note where no good trial has the metric that was asked for."""
    study = readings.study
    labels = [each.label for each in study.metrics if each.name == study.primary_metric]
    figures = figures_of(readings, study.primary_metric)
    is_missing = len(figures) > 0 and not np.isfinite(figures).any()
    return [f"{each} does not count: no trial has it." for each in labels if is_missing]


def goal_of(metric: str) -> str:
    """Return the goal that a metric is of.

    >>> [goal_of(each) for each in ("mean_rss_bytes", "peak_pss_bytes", "wall_s", "requests_per_s")]
    ['mean-memory', 'memory', 'time', 'time']
    """
    return next((goal for goal, names in _METRICS.items() if metric in names), TIME)


def _metric(goal: str, readings: Readings) -> Metric | None:
    """The first metric for `goal` that good trials have; none that is nil throughout, but for the
    one that was asked for."""
    by_name = {metric.name: metric for metric in readings.study.metrics}
    primary = readings.study.primary_metric
    candidates = _METRICS.get(goal) or _time_metrics(readings.study)
    if goal_of(primary) == goal != TIME:
        candidates = (primary, *candidates)
    for name in candidates:
        figures = figures_of(readings, name) if name in by_name else np.zeros(0)
        if (np.isfinite(figures) if name == primary else figures > 0).any():
            return by_name[name]
    return None


def _time_metrics(study: Study) -> tuple[str, ...]:
    """The primary metric alone, a rate or latency as a rule, unless it is of another goal; before
    wall time processor time, which a study has where it decides."""
    others = {name for names in _METRICS.values() for name in names}
    if study.primary_metric in (*others, meaning.WALL):
        return (meaning.PROCESSOR, meaning.WALL)
    return (study.primary_metric,)
