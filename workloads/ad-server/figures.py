"""Latencies of answers, of all of them and of those that met a reload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Span:
    """A stretch of time, in seconds of CLOCK_MONOTONIC."""

    begin: float
    end: float

    @property
    def length(self) -> float:
        return self.end - self.begin

    def meets(self, other: Span) -> bool:
        return self.begin < other.end and other.begin < self.end


def percentile(sorted_figures: Sequence[float], part: float) -> float:
    """The smallest figure that at least `part` of all do not exceed.

    >>> percentile([1, 2, 3, 4], 0.5)
    2
    """
    return sorted_figures[max(0, math.ceil(part * len(sorted_figures)) - 1)]


def corrected(latencies: Iterable[float], interval: float) -> list[float]:
    """The latencies, with those of requests that a stall kept from being sent.

    A user who waits does not ask. Had one asked every `interval` all the same, the requests during
    a stall would have waited for its rest (the correction of HdrHistogram).

    >>> corrected([1.0, 3.5], 1.0)
    [1.0, 3.5, 2.5, 1.5]
    """
    all_of_them: list[float] = []
    for latency in latencies:
        all_of_them.append(latency)
        missing = latency - interval
        while missing >= interval:
            all_of_them.append(missing)
            missing -= interval
    return all_of_them


def latencies(answers: Sequence[Span], reloads: Sequence[Span]) -> dict[str, float]:
    """The figures, by name; those about reloads are missing where no answer met one."""
    every = sorted(answer.length for answer in answers)
    met = sorted(a.length for a in answers if any(a.meets(reload) for reload in reloads))
    figures = {
        "latency_mean_s": fmean(every),
        "latency_p50_s": percentile(every, 0.5),
        "latency_p99_s": percentile(every, 0.99),
        "latency_p999_s": percentile(every, 0.999),
    }
    if met:
        usual = fmean(every)  # a user asks again at once: an answer's time is the interval
        figures |= {
            "reload_latency_p50_s": percentile(met, 0.5),
            "reload_latency_p99_s": percentile(met, 0.99),
            "reload_latency_p999_s": percentile(met, 0.999),
            "reload_latency_p999_corrected_s": percentile(sorted(corrected(met, usual)), 0.999),
        }
    return figures
