"""The baseline's part in running a study.

Its output is the reference that all others are judged by, and a study whose program fails under it
has nothing to compare with, nor one whose program takes none of the others.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from heapfit.errors import HeapfitError
from heapfit.records import PlannedTrial, Study, Trial, TrialStatus
from heapfit.trial.verdict import WITHOUT_ALLOCATOR


def reference(study: Study, trials: Sequence[Trial], planned: PlannedTrial) -> Trial | None:
    """Return the first good one of `trials` that the output of `planned` is judged by.

    What a program prints may depend on its parameters, its environment and the number of cores.
    """
    of_reference = _of_reference(study, trials, planned)
    return next((trial for trial in of_reference if trial.status is TrialStatus.OK), None)


def stop_if_pointless(study: Study, trials: Sequence[Trial], trial: Trial) -> None:
    """Raise `HeapfitError` rather than fill the journal with failures that say nothing about an
    allocator. `trials` are those before the failed `trial`."""
    is_judged_by_baseline = study.reference_of(trial.planned.allocator) == study.baseline
    if is_judged_by_baseline and reference(study, trials, trial.planned) is None:
        who = f"the baseline {study.baseline}"
        raise HeapfitError(
            f"{f'{who} fails' if study.programs else f'the program fails under {who}'}"
            f"{_where(trial.planned)}, so there is nothing "
            f"to compare with: {trial.reason}{_last_line(trial.stderr_tail)}{_advice(study, trial)}"
        )
    if _never_repeated_itself(study, trials, trial):
        raise HeapfitError(trial.reason)
    if _takes_no_allocator(study, trials, trial):
        raise HeapfitError(
            f"there is nothing to compare with {study.baseline}: under every other allocator the "
            f"program {trial.reason}"
        )


def _advice(study: Study, trial: Trial) -> str:
    """What to do about a program that does not end."""
    if trial.status is not TrialStatus.TIMEOUT or study.workload.server:
        return ""
    return (
        "; give it more time with --timeout, or, if it is a server, describe it and what drives "
        f"it: heapfit workloads new --port N -- {shlex.join(study.command)}"
    )


def _of_reference(study: Study, trials: Sequence[Trial], planned: PlannedTrial) -> Iterator[Trial]:
    """The reference's trials in the setting of `planned`; the first is near the front."""
    setting, name = planned.setting, study.reference_of(planned.allocator)
    for trial in trials:
        if trial.planned.allocator == name and trial.planned.setting == setting:
            yield trial


def _never_repeated_itself(study: Study, trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether a reference's output differs at its first repetition."""
    name = trial.planned.allocator
    if name != study.reference_of(name) or trial.status is not TrialStatus.MISMATCH:
        return False
    return len(list(_of_reference(study, trials, trial.planned))) == 1


def _takes_no_allocator(study: Study, trials: Sequence[Trial], trial: Trial) -> bool:
    """Whether the program has run without each allocator that was to be preloaded, and no two are
    left to compare."""
    if not trial.reason.startswith(WITHOUT_ALLOCATOR):
        return False
    every = [*trials, trial]
    without = {t.planned.allocator for t in every if t.reason.startswith(WITHOUT_ALLOCATOR)}
    without -= {t.planned.allocator for t in trials if t.status is TrialStatus.OK}
    return len(study.allocators) - len(without) < 2


def _where(planned: PlannedTrial) -> str:
    """Name the levels of a trial beyond its allocator and cores, if it has any."""
    levels = ", ".join(f"{name} = {level}" for name, level in planned.levels.items())
    return f" at {levels}" if levels else ""


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return f" (it says: {lines[-1].strip()})" if lines else ""
