"""What a fit is to make less: time, memory, or time where memory has a limit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from heapfit.errors import UsageError, unknown
from heapfit.options import size_in_bytes
from heapfit.records import Study

MEMORY, MEAN, TIME, BALANCE = GOALS = ("memory", "mean", "time", "balance")

_LIMIT = re.compile(r"(peak|mean)\s*<=\s*([0-9]+[kmg]?)")
# Of a replay, the heap alone.
_BOUNDED = {
    "peak": ("replay_peak_bytes", "peak_rss_bytes"),
    "mean": ("replay_mean_bytes", "mean_rss_bytes"),
}
PEAK_METRICS, MEAN_METRICS = _BOUNDED.values()


@dataclass(frozen=True)
class Limit:
    """So many bytes may be resident, at the most or on average."""

    what: str
    size: int

    def metric(self, study: Study) -> str:
        """Return the metric of `study` that it bounds."""
        return first_of(study, _BOUNDED[self.what])


@dataclass(frozen=True)
class Goal:
    """A goal as it was asked for, what it weighs, as of a study, and which settings serve it."""

    text: str
    weights: Mapping[str, float] = field(hash=False)
    gives: Literal["time", "memory", "both"]
    limit: Limit | None = None

    @property
    def is_of_mean(self) -> bool:
        """Whether memory over time counts, not its peak."""
        return self.text == MEAN or (self.limit is not None and self.limit.what == "mean")


# Balance: both the same.
_USUAL = {
    MEMORY: Goal(MEMORY, {"memory": 1.0}, "memory"),
    MEAN: Goal(MEAN, {"mean-memory": 1.0}, "memory"),
    TIME: Goal(TIME, {"time": 1.0}, "time"),
    BALANCE: Goal(BALANCE, {"time": 1.0, "memory": 1.0}, "both"),
}


def parse(text: str) -> Goal:
    """Return the goal; UsageError, naming the nearest one, where `text` is none.

    >>> parse("peak<=2g").limit
    Limit(what='peak', size=2147483648)
    """
    if text in GOALS:
        return _USUAL[text]
    found = _LIMIT.fullmatch(text.strip().lower())
    if found is None and "<" in text:
        raise UsageError(f"--goal takes a limit such as 'peak<=2g' or 'mean<=500m', not {text!r}")
    if found is None:
        raise unknown("goal", text, [*GOALS, "peak<=SIZE", "mean<=SIZE"])
    what, size = found.groups()
    return Goal(text, _USUAL[TIME].weights, "both", Limit(what, size_in_bytes(size)))


def first_of(study: Study, names: tuple[str, ...]) -> str:
    """Return which of `names` is a metric of `study`, the first of them first."""
    known = {each.name for each in study.metrics}
    return next(each for each in names if each in known)
