"""The baseline's part in running a study.

Its output is the reference that all others are judged by, and a study whose program fails under it
has nothing to compare with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heapfit.errors import HeapfitError
from heapfit.records import PlannedTrial, Study, Trial, TrialStatus


def reference(study: Study, trials: Sequence[Trial], planned: PlannedTrial) -> Trial | None:
    """Return the baseline's first good one of `trials` in the setting of `planned`.

    What a program prints may depend on its parameters, its environment and the number of cores.
    """
    baseline = _of_baseline(study, trials, planned)
    return next((trial for trial in baseline if trial.status is TrialStatus.OK), None)


def stop_if_pointless(study: Study, trials: Sequence[Trial], trial: Trial) -> None:
    """Raise `HeapfitError` rather than fill the journal with failures that say nothing about an
    allocator. `trials` are those before the failed `trial`."""
    if reference(study, trials, trial.planned) is None:
        raise HeapfitError(
            f"the program fails under the baseline {study.baseline}"
            f"{_where(trial.planned)}, so there is nothing "
            f"to compare with: {trial.reason}{_last_line(trial.stderr_tail)}"
        )
    if _never_repeated_itself(study, trials, trial):
        raise HeapfitError(trial.reason)


def _of_baseline(study: Study, trials: Sequence[Trial], planned: PlannedTrial) -> Iterator[Trial]:
    """The baseline's trials in the setting of `planned`; the first is near the front."""
    setting = planned.setting
    for trial in trials:
        if trial.planned.allocator == study.baseline and trial.planned.setting == setting:
            yield trial


def _never_repeated_itself(study: Study, trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether the baseline's output differs at its first repetition."""
    if trial.planned.allocator != study.baseline or trial.status is not TrialStatus.MISMATCH:
        return False
    return len(list(_of_baseline(study, trials, trial.planned))) == 1


def _where(planned: PlannedTrial) -> str:
    """Name the levels of a trial beyond its allocator and cores, if it has any."""
    levels = ", ".join(f"{name} = {level}" for name, level in planned.levels.items())
    return f" at {levels}" if levels else ""


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return f" (it says: {lines[-1].strip()})" if lines else ""
