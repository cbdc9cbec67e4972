"""Whether the machine changed under the study: each trial against its own cell's median, in order.

Allocators differ, so a raw value by time says little. Divided by the median of its own cell
(allocator and setting), every trial should scatter around 1 from the first to the last. The random
order keeps a drift from favouring an allocator; it still widens the intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from heapfit.records import Metric, Setting, Trial, TrialStatus
from heapfit.report.text import visible

# Thirds: enough trials in each for a median, and a slow rise shows between first and last.
_PARTS = 3
_FEWEST_TRIALS = 12
# Below this the medians of two thirds differ by chance on a quiet machine.
NOTABLE = 0.02


@dataclass(frozen=True)
class Deviation:
    """One successful trial: its value over the median of its own cell."""

    trial: Trial
    value: float
    relative: float


def deviations(trials: Sequence[Trial], metric: Metric) -> list[Deviation]:
    """Return the deviation of every successful trial with this metric, in the order they ran."""
    usable = sorted(
        (t for t in trials if counts(t) and metric.name in t.metrics),
        key=lambda t: t.planned.index,
    )
    cells: dict[tuple[str, Setting], list[float]] = defaultdict(list)
    for trial in usable:
        cells[trial.planned.allocator, trial.planned.setting].append(trial.metrics[metric.name])
    middle = {cell: median(values) for cell, values in cells.items()}
    result = []
    for trial in usable:
        centre = middle[trial.planned.allocator, trial.planned.setting]
        value = trial.metrics[metric.name]
        if centre:
            result.append(Deviation(trial, value, value / centre))
    return result


def counts(trial: Trial) -> bool:
    """Whether a trial is behind the estimates: it succeeded and was no warm-up."""
    return trial.status is TrialStatus.OK and not trial.planned.warmup


def describe(found: Sequence[Deviation], metric: Metric) -> str:
    """Return one sentence about the drift between the first and the last third of the study."""
    label = visible(metric.label)
    if len(found) < _FEWEST_TRIALS:
        return f"Too few trials to judge whether {label} drifted during the study."
    part = len(found) // _PARTS
    first = median(d.relative for d in found[:part])
    if not first:
        return f"{label} is mostly zero: no drift to judge."
    change = median(d.relative for d in found[-part:]) / first
    shown = f"{abs(change - 1):.1%}".replace("%", " %")
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
