"""Units that people read: one scale per metric, so that a column's numbers compare by eye.

The records hold base units (seconds, bytes, counts, 1/s). A scale is chosen from all the values
that will be shown together, never value by value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# Each ladder: (unit as printed, its size in the base unit), smallest first.
_LADDERS: dict[str, list[tuple[str, float]]] = {
    "s": [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)],
    "bytes": [("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30)],
    "count": [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)],
    "1/s": [("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)],
}
# Counts are exact, so they are abbreviated only from five digits on.
_SMALLEST_SCALED = {"count": 10.0, "1/s": 10.0}

TERMINAL_DIGITS = 3
PAGE_DIGITS = 4
_MOST_DECIMALS = 6

DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Scale:
    """How the values of one metric are printed: `value / divisor`, with so many decimals."""

    unit: str
    divisor: float
    decimals: int

    @property
    def suffix(self) -> str:
        """The unit as it follows a label: ` (ms)`; nothing where there is none."""
        return f" ({self.unit})" if self.unit else ""

    def scaled(self, value: float) -> float:
        return value / self.divisor

    def number(self, value: float) -> str:
        """Return the value without its unit.

        >>> Scale("ms", 1e-3, 1).number(0.4123)
        '412.3'
        """
        if not math.isfinite(value):
            return "∞" if value > 0 else "-∞" if value < 0 else "?"
        return f"{self.scaled(value):,.{self.decimals}f}"

    def difference(self, value: float) -> str:
        """Return a difference of two values, with its sign and without its unit.

        >>> Scale("ms", 1e-3, 1).difference(-0.0123), Scale("", 1.0, 0).difference(1200)
        ('-12.3', '+1,200')
        """
        if not round(self.scaled(value), self.decimals):
            return self.number(0.0)
        return self.number(value) if value < 0 else f"+{self.number(value)}"

    def difference_text(self, value: float) -> str:
        """Return a difference with its sign and its unit."""
        return f"{self.difference(value)} {self.unit}".rstrip()

    def text(self, value: float) -> str:
        """Return the value with its unit.

        >>> Scale("MiB", 2.0**20, 0).text(64 * 2**20)
        '64 MiB'
        """
        return f"{self.number(value)} {self.unit}".rstrip()


def scale_for(unit: str, values: Iterable[float], digits: int = TERMINAL_DIGITS) -> Scale:
    """Return the scale that shows the smallest of `values` with at least `digits` digits.

    >>> scale_for("s", [0.98, 1.05]).text(1.05)
    '1,050 ms'
    """
    magnitudes = [abs(value) for value in values if value and math.isfinite(value)]
    smallest = min(magnitudes, default=1.0)
    name, divisor = _rung(unit, smallest)
    scaled = [magnitude / divisor for magnitude in magnitudes]
    if all(value == int(value) for value in scaled):
        return Scale(name, divisor, 0)
    if not name:  # small counts: only the median of an even number of trials has a fraction
        return Scale(name, divisor, 1)
    return Scale(name, divisor, _decimals(smallest / divisor, digits))


def _rung(unit: str, smallest: float) -> tuple[str, float]:
    ladder = _LADDERS.get(unit)
    if ladder is None:
        return unit, 1.0
    threshold = _SMALLEST_SCALED.get(unit, 1.0)
    fitting = [rung for rung in ladder if smallest / rung[1] >= threshold]
    return fitting[-1] if fitting else ladder[0]


def _decimals(smallest: float, digits: int) -> int:
    leading = math.floor(math.log10(smallest)) + 1
    return min(max(digits - leading, 0), _MOST_DECIMALS)


def ratio(value: float | None, sign: str = "x", decimals: int = 2) -> str:
    """Return a ratio to the baseline, or nothing where there is none.

    >>> ratio(0.8712)
    '0.87x'
    """
    return "" if value is None else f"{value:.{decimals}f}{sign}"


def bytes_text(value: int) -> str:
    """Return a size of the machine with its unit, to one decimal.

    >>> bytes_text(16 * 2**30 + 2**29)
    '16.5 GiB'
    """
    name, divisor = _rung("bytes", float(value))
    return f"{value / divisor:.1f}".removesuffix(".0") + f" {name}"
