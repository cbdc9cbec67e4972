"""Estimate how long the rest of a study will take, from the trials so far."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from statistics import median

from heapfit.records import PlannedTrial, Setting, Trial

Cell = tuple[str, Setting]

# A median of more tells no more, and of thousands would take longer than a short trial.
_LATEST = 51


def _cell(planned: PlannedTrial) -> Cell:
    return planned.allocator, planned.setting


class RemainingTime:
    """Knows the durations of finished trials by cell of the design."""

    def __init__(self, finished: Iterable[Trial] = ()) -> None:
        """Start from an earlier run's trials."""
        self._durations: dict[Cell, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))
        for trial in finished:
            # Of some, only the program's own time is known.
            took_s = trial.metrics.get("wall_s") if trial.took_s is None else trial.took_s
            if took_s is not None:
                self.add(trial.planned, took_s)

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
