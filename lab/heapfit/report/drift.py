"""Whether the machine changed under the study: each trial against its own cell's median, in order.

Allocators differ, so a raw value by time says little. Divided by the median of its own cell
(allocator and setting), every trial should scatter around 1 from the first to the last. The random
order keeps a drift from favouring an allocator; it still widens the intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from heapfit.records import Metric
from heapfit.statistics.median import cell_medians
from heapfit.statistics.observations import Floats, Integers, Readings, figures_of
from heapfit.text import percent, visible

# Thirds: enough trials in each for a median, and a slow rise shows between first and last.
_PARTS = 3
_FEWEST_TRIALS = 12
# Below this the medians of two thirds differ by chance on a quiet machine.
NOTABLE = 0.02


@dataclass(frozen=True)
class Deviations:
    """Trials in the order in which they ran: each one's value over the median of its own cell."""

    rows: Integers  # the trials, as indices of the readings
    values: Floats
    relative: Floats


def deviations(readings: Readings, metric: Metric) -> Deviations:
    """Return the deviation of every trial behind the estimates of `metric`."""
    figures = figures_of(readings, metric.name)
    order = np.argsort(readings.index, kind="stable")
    order = order[~np.isnan(figures[order])]
    values = figures[order]
    cell = readings.cell[order]
    centres = cell_medians(values, cell)[cell]
    rows = np.flatnonzero(centres)
    return Deviations(order[rows], values[rows], values[rows] / centres[rows])


def describe(found: Deviations, metric: Metric) -> str:
    """Return one sentence about the drift between the first and the last third of the study."""
    label = visible(metric.label)
    relative = found.relative
    if len(relative) < _FEWEST_TRIALS:
        return f"Too few trials to judge whether {label} drifted during the study."
    part = len(relative) // _PARTS
    first = float(np.median(relative[:part]))
    if not first:
        return f"{label} is mostly zero: no drift to judge."
    change = float(np.median(relative[-part:])) / first
    shown = percent(abs(change - 1))
    if abs(change - 1) < NOTABLE:
        return (
            f"{label}: no notable drift; the last third of the trials differs from the first "
            f"by {shown}."
        )
    direction = "higher" if change > 1 else "lower"
    return (
        f"{label} drifted: the last third of the trials is {shown} {direction} than the first. "
        "The order is random, so no allocator is favoured, but the intervals are wider for it."
    )
