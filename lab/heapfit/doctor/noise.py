"""How steady this machine is: the same small work, timed again and again for about a second."""

from __future__ import annotations

import statistics
import time

from heapfit.doctor.finding import Finding

_DURATION_S = 1.0
# Long enough for the clock's own cost to vanish, short enough for some hundred repeats.
_SPIN = 40_000
_ENOUGH_REPEATS = 5

# Spread of the middle half above which differences of a few percent drown in noise.
_NOISY = 0.02


def examine() -> list[Finding]:
    """Return what a second of equal work says about this machine."""
    times = _repeat()
    quarter, median, three_quarters = statistics.quantiles(times, n=4)
    spread, worst = (three_quarters - quarter) / median, max(times) / median
    state = (
        f"middle half within {spread:.1%} of the median, "
        f"slowest {worst:.2f} times it ({len(times)} repeats)"
    )
    advice = "" if spread < _NOISY else "use more replicates, and a quieter machine if you can"
    return [Finding(topic="noise", state=state, advice=advice)]


def _repeat() -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + _DURATION_S
    while time.perf_counter() < end or len(times) < _ENOUGH_REPEATS:
        start = time.perf_counter()
        for _ in range(_SPIN):
            pass
        times.append(time.perf_counter() - start)
    return times
