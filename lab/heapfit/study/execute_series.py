"""Run a study of many parts, one after the other; what fails does not stop the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from heapfit.errors import FolderBusy, HeapfitError, StudyStopped
from heapfit.records import PlannedTrial, Study, Trial
from heapfit.study.execute import Progress, execute
from heapfit.study.series import SeriesPlan, running_in, save_problem, save_series
from heapfit.study.timing import RemainingTime

# Runs the missing trials of a study in its folder; see `execute`.
Run = Callable[[Study, Path, Progress, Path | None], None]


class SeriesProgress(Progress):
    """Told about the course of a series. The time left is that of the whole series."""

    def abandoned(self, study: Study, undone: int, problem: str) -> None:
        """The part that `study` is cannot be measured; `undone` of its trials will not run."""


def execute_series(
    plan: SeriesPlan,
    folder: Path,
    progress: SeriesProgress,
    data: Mapping[str, Path],
    unprepared: Mapping[str, str],
    run: Run = execute,
) -> dict[str, str]:
    """Run the missing trials of `plan` in `folder`; return why parts failed, by name.

    `data` has the data folders of the workloads that have one, `unprepared` what went wrong with
    the preparation of others, which are not run. `run` runs one study: `execute` does here.
    Raises `UsageError` if the folder holds another study, `FolderBusy` if it is being run there by
    another process, `HeapfitError` if it cannot be written to, and lets `KeyboardInterrupt` and
    `StudyStopped` through.
    """
    with running_in(folder):
        return _execute(plan, folder, progress, data, unprepared, run)


def _execute(
    plan: SeriesPlan,
    folder: Path,
    progress: SeriesProgress,
    data: Mapping[str, Path],
    unprepared: Mapping[str, str],
    run: Run,
) -> dict[str, str]:
    clock = _Clock(plan.studies, plan.done_in(folder))
    save_series(plan.series, folder)
    problems: dict[str, str] = {}
    for study in plan.studies:
        display = _Display(study, progress, clock)
        workload = study.workload.name
        problem: str | HeapfitError | None = unprepared.get(workload)
        if problem is None:
            problem = _run(run, study, folder / study.name, display, data.get(workload))
        if problem is not None:
            problems[study.name] = str(problem)
            progress.abandoned(study, len(clock.missing[study.name]), str(problem))
        if not isinstance(problem, FolderBusy):  # That is true now, and not when a report is read.
            save_problem(folder, study.name, None if problem is None else str(problem))
        clock.over(study)
    return problems


def _run(
    run: Run, study: Study, folder: Path, progress: Progress, data: Path | None
) -> HeapfitError | None:
    try:
        run(study, folder, progress, data)
    except StudyStopped:
        raise
    except HeapfitError as error:
        return error
    return None


class _Clock:
    """Estimates the time left of all studies, those that have not begun included."""

    def __init__(self, studies: Sequence[Study], done: Mapping[str, list[Trial]]) -> None:
        self.missing = {study.name: _missing(study, done[study.name]) for study in studies}
        self._times = {study.name: RemainingTime(done[study.name]) for study in studies}
        self._durations: list[float] = []

    def begin(self, study: Study, done: Sequence[Trial]) -> None:
        """Count anew what is missing: trials of what has changed since are no longer there."""
        self.missing[study.name] = _missing(study, done)

    def ran(self, study: Study, planned: PlannedTrial, duration_s: float) -> None:
        self.missing[study.name].pop(planned.index, None)
        self._durations.append(duration_s)

    def over(self, study: Study) -> None:
        self.missing[study.name].clear()

    def after(self, study: Study) -> float:
        """Return the seconds that the studies other than `study` will still take.

        By their own earlier trials where there are any, else by the median of all trials so far.
        """
        typical = median(self._durations) if self._durations else 0.0
        left = 0.0
        for name, missing in self.missing.items():
            if name != study.name and missing:
                own = self._times[name].of(missing.values())
                left += typical * len(missing) if own is None else own
        return left


def _missing(study: Study, done: Sequence[Trial]) -> dict[int, PlannedTrial]:
    indexes = {trial.planned.index for trial in done}
    return {planned.index: planned for planned in study.plan if planned.index not in indexes}


class _Display(Progress):
    """Passes on the course of one study, with the time of those after it added."""

    def __init__(self, study: Study, series: SeriesProgress, clock: _Clock) -> None:
        self._study = study
        self._series = series
        self._clock = clock
        self._started_s = 0.0

    def begin(self, study: Study, done: list[Trial]) -> None:
        self._clock.begin(study, done)
        self._series.begin(study, done)

    def noticed(self, sentence: str) -> None:
        self._series.noticed(f"{self._study.name}: {sentence}")

    def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
        self._started_s = time.monotonic()
        self._series.started(planned, self._whole(remaining_s))

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        duration_s = time.monotonic() - self._started_s
        self._clock.ran(self._study, trial.planned, duration_s)
        self._series.finished(trial, self._whole(remaining_s))

    def _whole(self, own_s: float | None) -> float | None:
        return None if own_s is None else own_s + self._clock.after(self._study)
