"""How long the rest of a study will take, and when one that has a rule for that stops.

A stopping rule stands in place of a number of replicates. To reach a precision, the figures are
looked at after `LOOKS` blocks, and the plan goes on to the next look until every interval that
matters (`statistics.precision_of`) is narrow enough. A look asks how wide intervals are, never
where they lie, so that it cannot wait for a difference to show. Widths scatter, and the study ends
more readily where they are too narrow by chance: verdicts make up for that (`verdict.OF_STOPPING`).
Looks lie so far apart that each has a quarter more blocks than the one before: more looks would
save little and cost more of that.

With a time limit, a trial does not begin if it would not end within the limit, judging by earlier
ones; nor does a block, except the first.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import inf
from statistics import median
from typing import TYPE_CHECKING

from heapfit.records import (
    PlannedTrial,
    Precision,
    Setting,
    StoppingRule,
    Study,
    Trial,
    TrialStatus,
)

if TYPE_CHECKING:
    from heapfit.study.journal import Journal

LOOKS = (8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 80, 100)
# As many blocks as a verdict needs: what a study that runs until time is up plans at first.
_FEWEST = 3


def first_replicates(rule: StoppingRule) -> int:
    """Return how many replicates a study with this rule begins with."""
    return _FEWEST if rule.precision is None else LOOKS[0]


Cell = tuple[str, Setting]

# The median of more durations is no better, and of thousands would take longer than a short trial.
_LATEST = 51


def cell_of(planned: PlannedTrial) -> Cell:
    """Return the treatment of a trial and its setting."""
    return planned.allocator, planned.setting


# One time-out may be the machine's fault. A cell that has timed out twice, and never ended, would
# cost the study a time-out in every block.
MOST_TIMEOUTS = 2


def never_finish(study: Study, trials: Iterable[Trial]) -> set[Cell]:
    """Return the cells of which no trial has ended and `MOST_TIMEOUTS` ran into the time-out.

    Cells of a reference are not among them: the study ends without these.
    """
    timeouts = Counter(cell_of(t.planned) for t in trials if t.status is TrialStatus.TIMEOUT)
    ended = {cell_of(t.planned) for t in trials if t.status is not TrialStatus.TIMEOUT}
    return {
        cell
        for cell, count in timeouts.items()
        if count >= MOST_TIMEOUTS and cell not in ended and study.reference_of(cell[0]) != cell[0]
    }


class RemainingTime:
    """Knows the durations of finished trials by cell of the design."""

    def __init__(self, finished: Iterable[Trial] = ()) -> None:
        """Start from an earlier run's trials."""
        self._durations: dict[Cell, deque[float]] = defaultdict(lambda: deque(maxlen=_LATEST))
        for trial in finished:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        if trial.took_s is not None:
            self._durations[cell_of(trial.planned)].append(trial.took_s)

    def of(self, remaining: Iterable[PlannedTrial]) -> float | None:
        """Return the seconds that `remaining` will take, or None while there is nothing to go by.

        A trial takes the median of its cell; where that has not run yet, the median of those that
        have.
        """
        if not self._durations:
            return None
        medians = {cell: median(durations) for cell, durations in self._durations.items()}
        typical = median(medians.values())
        return sum(medians.get(cell_of(planned), typical) for planned in remaining)


class Stopping:
    """Decides when a journal's study has enough trials: at the end of its plan unless it has a
    rule."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._times = RemainingTime()
        self._rule = journal.study.rule or StoppingRule()
        self.precision: Precision | None = None  # at the last look
        self._spent_s: dict[str | None, float] = defaultdict(float)  # by the trials of each machine
        self._begun: set[int] = set()  # the blocks that have a trial which is no warm-up
        for trial in journal.trials:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Count a trial that is in the journal."""
        self._times.add(trial)
        self._spent_s[trial.machine] += trial.took_s or 0.0
        if not trial.planned.warmup:
            self._begun.add(trial.planned.block)

    def time_is_up(self, missing: Sequence[PlannedTrial], machine: str | None = None) -> bool:
        """Return whether the first of the `missing` trials must not begin on `machine`."""
        limit_s = self._rule.max_time_s
        if limit_s is None or not missing:
            return False
        first = missing[0]
        whole = bool(self._begun) and first.block not in self._begun and not first.warmup
        block = takewhile(lambda planned: planned.block == first.block, missing)
        next_up = list(block) if whole else [first]
        return self._spent(machine) + (self._times.of(next_up) or 0.0) > limit_s

    def goes_on(self) -> bool:
        """Extend the plan, all of which has run, unless the study has enough."""
        study = self._journal.study
        if study.rule is None:
            return False
        replicates = self._next(study.replicates)
        if replicates is None:
            return False
        self._journal.extend(replicates)
        return True

    def remaining_s(self, missing: Sequence[PlannedTrial], machines: int = 1) -> float | None:
        """Return how long the study will still take, with the blocks that are not planned yet."""
        limit_s = self._rule.max_time_s
        in_time_s = inf if limit_s is None else max(0.0, limit_s - self._spent())
        if limit_s is not None and self._rule.precision is None:
            return in_time_s  # more will be planned until it is full
        left_s = self._times.of(missing)
        if left_s is None:
            return None
        return min((left_s + self._unplanned_s()) / machines, in_time_s)

    def _next(self, replicates: int) -> int | None:
        """Return the number of replicates to extend the plan to; None where it is not extended."""
        if self._rule.precision is None:
            return replicates + self._that_fit()
        if replicates in LOOKS and self._is_narrow(self._rule.precision):
            return None
        return next((look for look in LOOKS if look > replicates), None)

    def _is_narrow(self, wanted: float) -> bool:
        # SciPy takes a while to load, which is not wanted before the first trial.
        from heapfit.statistics import precision_of, read

        self.precision = precision_of(read(self._journal.study, self._journal.trials))
        return self.precision is None or self.precision.reached <= wanted

    def _that_fit(self) -> int:
        """Return how many more blocks the time left has room for; at least 1, which does not begin
        unless it fits."""
        limit_s = self._rule.max_time_s or 0.0
        block_s = self._block_s()
        return max(1, int((limit_s - self._spent()) / block_s)) if block_s else 1

    def _unplanned_s(self) -> float:
        """Return how long the blocks will take that the precision needs beyond the plan, as
        estimated at the last look."""
        if self.precision is None or self._rule.precision is None:
            return 0.0
        planned = self._journal.study.replicates
        needed = needed_blocks(self.precision, self._rule.precision)
        look = next((look for look in LOOKS if look >= needed), LOOKS[-1])
        return max(0, look - planned) * (self._block_s() or 0.0)

    def _block_s(self) -> float | None:
        last = self._journal.study.plan[-1].block
        return self._times.of([p for p in self._journal.study.plan if p.block == last])

    def _spent(self, machine: str | None = None) -> float:
        """Return what the trials have taken so far: on `machine`, or on the slowest."""
        if machine is not None:
            return self._spent_s[machine]
        return max(self._spent_s.values(), default=0.0)


def needed_blocks(precision: Precision, wanted: float) -> float:
    """Return how many blocks that precision would take, if scatter stays as it is.

    >>> from heapfit.records import Precision
    >>> reached = Precision(reached=0.04, metric="wall_s", first="a", second="b", at={}, blocks=10)
    >>> needed_blocks(reached, 0.02)
    40.0
    """
    return precision.blocks * (precision.reached / wanted) ** 2
