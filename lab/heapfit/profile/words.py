"""Numbers of a profile as people read them: bytes, counts, shares, times.

Bytes and counts are written as `heapfit top` writes them, but for round ones, which sentences name.
"""

import re
from dataclasses import dataclass

from heapfit import text
from heapfit.profile.model import Amount
from heapfit.text import DASH, bytes_text, part_of

percent = part_of

# A fraction of nothing but zeros.
_ROUND = re.compile(r"\.0+(?=\D|$)")
_FINE = 10
# Above, the last digits of a size tell nothing about a program.
_EXACT = 100_000
# The first of the bins of sizes holds all up to the alignment that malloc promises.
_FIRST_BIN = 16
# From which number of nanoseconds on a time is written in a unit, the largest first.
_UNITS = [(3600e9, "h"), (60e9, "min"), (1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]
# A time in minutes or hours is read from 3 of them on; 90 s is clearer than 1.5 min.
_SMALLEST_SPAN = {"h": 3.0, "min": 3.0}


def size(value: float) -> str:
    """Return a number of bytes, to three digits.

    >>> size(32 << 10), size(1536)
    ('32 KiB', '1.50 KiB')
    """
    return _ROUND.sub("", text.size(value))


def count(value: float) -> str:
    """Return a number of things, to three digits; a mean below ten to two.

    >>> count(12_345), count(20_000), count(7.21)
    ('12.3k', '20k', '7.2')
    """
    if value < _FINE and value != int(value):
        return f"{value:.1f}"
    return _ROUND.sub("", text.count(value))


def blocks(number: float) -> str:
    """
    >>> blocks(1), blocks(12_345)
    ('1 block', '12.3k blocks')
    """
    return f"{count(number)} block{'' if number == 1 else 's'}"


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


def size_text(value: int) -> str:
    """Return the size of one object as a program asks for it: exact up to five digits.

    >>> size_text(24), size_text(1536), size_text(2 << 20)
    ('24 B', '1,536 B', '2 MiB')
    """
    return f"{value:,} B" if value < _EXACT else bytes_text(value)


def size_range(largest: int) -> str:
    """Return the sizes of a bin that holds `largest` and what is more than half of it.

    >>> size_range(16), size_range(64), size_range(1024), size_range(2048)
    ('1\u201316 B', '33\u201364 B', '0.5\u20131 KiB', '1\u20132 KiB')
    """
    if largest <= _FIRST_BIN:
        return f"1{DASH}{largest} B"
    if largest < 1024:
        return f"{largest // 2 + 1}{DASH}{largest} B"
    number, unit = bytes_text(largest).split()
    return f"{float(number) / 2:g}{DASH}{number} {unit}"


def bytes_with_error(amount: Amount) -> str:
    """Return an amount's bytes, of an estimate with the standard error."""
    error = f" \N{PLUS-MINUS SIGN} {size(amount.bytes_error)}" if amount.bytes_error else ""
    return f"{size(amount.bytes)}{error}"


def objects_with_error(amount: Amount) -> str:
    """Return how many objects an amount is, of an estimate with the standard error."""
    error = f" \N{PLUS-MINUS SIGN} {count(amount.objects_error)}" if amount.objects_error else ""
    return f"{count(amount.objects)}{error}"
