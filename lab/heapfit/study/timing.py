"""Estimate how long the rest of a study will take, from the trials so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from heapfit.records import PlannedTrial, Setting, Trial

Cell = tuple[str, Setting]


def _cell(planned: PlannedTrial) -> Cell:
    return planned.allocator, planned.setting


class RemainingTime:
    """Knows the durations of finished trials by cell of the design."""

    def __init__(self, finished: Iterable[Trial] = ()) -> None:
        """Start from an earlier run's trials, of which only the program's own time is known."""
        self._durations: dict[Cell, list[float]] = defaultdict(list)
        for trial in finished:
            if "wall_s" in trial.metrics:
                self.add(trial.planned, trial.metrics["wall_s"])

    def add(self, planned: PlannedTrial, duration_s: float) -> None:
        self._durations[_cell(planned)].append(duration_s)

    def of(self, remaining: Iterable[PlannedTrial]) -> float | None:
        """Return the seconds that `remaining` will take, or None while there is nothing to go by.

        A trial takes the median of its cell; where that has not run yet, the median of those that
        have.
        """
        if not self._durations:
            return None
        medians = {cell: median(durations) for cell, durations in self._durations.items()}
        typical = median(medians.values())
        return sum(medians.get(_cell(planned), typical) for planned in remaining)
