"""Run what a study's plan still lacks, one trial after the other.

A trial is in the journal before the next one starts. So Ctrl-C, a kill or a power cut costs the
running trial and nothing else, and the same call goes on where it stopped.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from heapfit.records import PlannedTrial, Study, Trial, TrialStatus
from heapfit.study.baseline import reference, stop_if_pointless
from heapfit.study.journal import Journal
from heapfit.study.timing import RemainingTime
from heapfit.trial import run_trial
from heapfit.trial.launcher import find_launcher

WORKSPACE = "scratch"


class Progress:
    """Told about the course of a study; override what you want to show.

    Whatever runs while a trial runs (a display that redraws itself) takes processor time from it.
    """

    def begin(self, study: Study, done: list[Trial]) -> None:
        """The study as it is run (perhaps longer than asked for) and the trials it already has."""

    def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
        """A trial starts; `remaining_s` is the time left for it and all after it, if known."""

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        """A trial is in the journal; `remaining_s` is the time left for those after it."""


def execute(
    study: Study,
    folder: Path,
    on_progress: Progress | None = None,
    data: Path | None = None,
) -> None:
    """Run the missing trials of `study`, journaled in `folder`.

    `data` is the workload's prepared data folder, if it has one. Raises `HeapfitError` if the
    program fails under the baseline itself (then there is nothing to compare with) or if the
    journal cannot be written, and lets `KeyboardInterrupt` through once the running program has
    been ended.
    """
    progress = on_progress or Progress()
    with Journal(folder, study) as journal:
        _Execution(journal, progress, data).run()


class _Execution:
    def __init__(self, journal: Journal, progress: Progress, data: Path | None) -> None:
        self._journal = journal
        self._study = journal.study
        self._progress = progress
        self._data = data
        self._workspace = (journal.folder / WORKSPACE).resolve()
        self._remaining_time = RemainingTime(journal.trials)

    def run(self) -> None:
        done = {trial.planned.index for trial in self._journal.trials}
        missing = [planned for planned in self._study.plan if planned.index not in done]
        self._progress.begin(self._study, list(self._journal.trials))
        shutil.rmtree(self._workspace, ignore_errors=True)  # left over from a run that was killed
        find_launcher()  # before the clock of the first trial runs
        try:
            for at, planned in enumerate(missing):
                self._run_one(planned, missing[at + 1 :])
        finally:
            shutil.rmtree(self._workspace, ignore_errors=True)

    def _run_one(self, planned: PlannedTrial, after: list[PlannedTrial]) -> None:
        self._progress.started(planned, self._remaining_time.of([planned, *after]))
        start_s = time.monotonic()
        judged_by = reference(self._study, self._journal.trials, planned)
        trial = run_trial(self._study, planned, self._workspace, judged_by, self._data)
        self._remaining_time.add(planned, time.monotonic() - start_s)
        if trial.status is not TrialStatus.OK:
            stop_if_pointless(self._study, self._journal.trials, trial)
        self._journal.append(trial)
        self._progress.finished(trial, self._remaining_time.of(after))
