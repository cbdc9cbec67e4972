"""Numbers of a profile as people read them: shares, times, rates.

Bytes and counts are written as `heapfit top` writes them (`heapfit.live.figures`).
"""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.live.figures import count, size

__all__ = ["TimeScale", "count", "percent", "rate", "size", "span", "time_scale"]

_NS_PER_S = 1e9
# From which number of nanoseconds on a time is written in a unit, the largest first.
_UNITS = [
    (3600e9, "h"),
    (60e9, "min"),
    (1e9, "s"),
    (1e6, "ms"),
    (1e3, "µs"),
    (1.0, "ns"),
]
# A time in minutes or hours is read from 3 of them on; 90 s is clearer than 1.5 min.
_SMALLEST_SPAN = {"h": 3.0, "min": 3.0}


def percent(part: float, whole: float = 1.0) -> str:
    """Return a part of a whole, never rounded to nothing or to all of it.

    >>> percent(1, 8), percent(0), percent(9999, 10000), percent(1, 10**6), percent(3, 3)
    ('13 %', '0 %', '>99 %', '<0.1 %', '100 %')
    """
    share = 100 * part / whole if whole else 0.0
    if share <= 0:
        return "0 %"
    if share < 0.1:
        return "<0.1 %"
    if share < 9.95:
        return f"{share:.1f} %"
    if 99.5 <= share < 100:
        return ">99 %"
    return f"{share:.0f} %"


def span(ns: float) -> str:
    """Return a length of time, to three digits.

    >>> span(0), span(1500), span(42e9), span(90e9), span(4 * 3600e9)
    ('0 s', '1.5 µs', '42 s', '90 s', '4 h')
    """
    if ns <= 0:
        return "0 s"
    scale = time_scale(ns)
    return f"{float(f'{ns / scale.ns:.3g}'):g} {scale.unit}"


@dataclass(frozen=True)
class TimeScale:
    """The unit of a time axis: `ns` nanoseconds each."""

    unit: str
    ns: float


def time_scale(longest_ns: float) -> TimeScale:
    """Return the largest unit of which `longest_ns` are several.

    >>> time_scale(60e9).unit, time_scale(600e9).unit
    ('s', 'min')
    """
    for ns, unit in _UNITS:
        if longest_ns / ns >= _SMALLEST_SPAN.get(unit, 1.0):
            return TimeScale(unit, ns)
    return TimeScale("ns", 1.0)


def rate(number: float, ns: float) -> str:
    """Return how many a second `number` in `ns` nanoseconds are.

    >>> rate(5_000_000, 10e9)
    '500k/s'
    """
    return f"{count(number / ns * _NS_PER_S)}/s" if ns > 0 else "?"
