"""Run the trials that a study's plan still lacks, one after the other.

A trial is in the journal before the next one starts. So Ctrl-C, a kill or a power cut costs the
running trial and nothing else, and the same call continues where it stopped.
"""

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from heapfit.errors import HeapfitError, UsageError
from heapfit.files import remove_tree
from heapfit.records import PlannedTrial, Precision, Study, Trial, TrialStatus
from heapfit.settings import setting_name
from heapfit.study.identity import Watch, identify
from heapfit.study.journal import Journal
from heapfit.study.stopping import MOST_TIMEOUTS, Stopping, cell_of, never_finish
from heapfit.text import counted, join_words, shell_words
from heapfit.trial import run_trial
from heapfit.trial.cores import own_cores
from heapfit.trial.launcher import find_launcher
from heapfit.trial.outcome import WITHOUT_ALLOCATOR, it_says

# Below a study's folder, which may be one of the user's: what is there is removed.
WORKSPACE = ".heapfit-trials"

# What programs say where there is no terminal: the C library's words for ENOTTY, and their own.
_NO_TERMINAL = re.compile(
    r"inappropriate ioctl|not a (tty|terminal)|\b(no|get) tty\b|\bTERM\b", re.I
)


class Progress:
    """Receives the events of a study's execution; override what you want to show.

    Anything that runs during a trial (a display that redraws itself) takes processor time from it.
    """

    def begin(self, study: Study, done: list[Trial]) -> None:
        """The execution begins: the study (perhaps longer than asked for), and the trials that it
        already has."""

    def noticed(self, sentence: str) -> None:
        """There is something that the user should know."""

    def disturbed(self, sentence: str) -> None:
        """Something beside the study falsifies its figures; further studies meet the same."""

    def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
        """A trial starts; `remaining_s` is the time left for it and all after it, if known."""

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        """A trial is in the journal; `remaining_s` is the time left for those after it."""

    def extended(self, study: Study, precision: Precision | None) -> None:
        """The plan has grown, or has shrunk because something never finishes; `precision` is the
        one reached so far where the study is to reach one."""


def execute(
    study: Study,
    folder: Path,
    on_progress: Progress | None = None,
    data: Path | None = None,
    *,
    mix: bool | None = None,
) -> None:
    """Run the missing trials of `study`, journaled in `folder`.

    `data` is the workload's prepared data folder, if it has one. Trials of another build of the
    program, or under other settings of the machine, are moved aside, unless `mix` is set; it is
    None where the command has no --mix, which is not named then. Raises `HeapfitError` if the
    program fails under the baseline itself (then there is nothing to compare with) or if the
    journal cannot be written, and lets `KeyboardInterrupt` through once the running program has
    been ended.
    """
    progress = on_progress or Progress()
    with Journal(folder, study, lambda known: identify(study, data, known), mix=mix) as journal:
        for sentence in journal.notices:
            progress.noticed(sentence)
        _Execution(journal, progress, data, mix=mix).run()


class _Execution:
    def __init__(
        self, journal: Journal, progress: Progress, data: Path | None, *, mix: bool | None
    ) -> None:
        self._journal = journal
        self._progress = progress
        self._data = data
        self._mix = mix
        self._workspace = journal.folder.resolve() / WORKSPACE
        self._stopping = Stopping(journal)
        session = journal.study.sessions[-1]
        self._watch = Watch(session.identity, is_new=session.first == len(journal.trials))

    def run(self) -> None:
        self._progress.begin(self._journal.study, list(self._journal.trials))
        if self._workspace.is_symlink():
            raise UsageError(f"{self._workspace} is a link, and trials would run where it leads")
        remove_tree(self._workspace)  # left over from a run that was killed
        find_launcher()  # before the clock of the first trial runs
        try:
            with own_cores(max(self._journal.study.cores)) as shared:
                if shared:
                    self._progress.disturbed(_sharing_note(shared))
                while self._run_planned() and self._stopping.goes_on():
                    self._progress.extended(self._journal.study, self._stopping.precision)
        finally:
            remove_tree(self._workspace)

    def _run_planned(self) -> bool:
        """Run the missing trials; return whether there was time for all of them."""
        missing = self._missing()
        while missing:
            if self._stopping.time_is_up(missing):
                self._journal.cut()
                return False
            self._run_one(missing[0], missing[1:])
            missing = self._missing() if self._gives_up(missing[0]) else missing[1:]
        return True

    def _missing(self) -> list[PlannedTrial]:
        """Return the trials that the plan still lacks, after removing cells that never finish."""
        journal = self._journal
        hanging = never_finish(journal.study, journal.trials)
        if hanging and journal.leave_out(hanging):
            self._progress.extended(journal.study, None)
        done = {trial.planned.index for trial in journal.trials}
        return [each for each in journal.study.plan if each.index not in done]

    def _gives_up(self, planned: PlannedTrial) -> bool:
        """Tell whether the cell of a trial that has just ended never finishes, and say so."""
        if self._journal.trials[-1].status is not TrialStatus.TIMEOUT:
            return False
        gives_up = cell_of(planned) in never_finish(self._journal.study, self._journal.trials)
        if gives_up:
            where = _where(self._journal.study, planned)
            self._progress.noticed(
                f"{planned.allocator} is left out from here on{where}: no trial of it has ended, "
                f"and {MOST_TIMEOUTS} ran into the time-out; --timeout gives more"
            )
        return gives_up

    def _run_one(self, planned: PlannedTrial, after: list[PlannedTrial]) -> None:
        self._progress.started(planned, self._stopping.remaining_s([planned, *after]))
        study = self._journal.study
        start_s = time.monotonic()
        trial = self._trial(planned)
        took_s = time.monotonic() - start_s
        if trial.status is not TrialStatus.OK:
            stop_if_pointless(study, self._journal.trials, trial)
        trial = trial.model_copy(update={"took_s": round(took_s, 6)})
        self._journal.append(trial)
        self._stopping.add(trial)
        self._progress.finished(trial, self._stopping.remaining_s(after))

    def _trial(self, planned: PlannedTrial) -> Trial:
        """Run a trial; raise `HeapfitError` if what is measured changed in its course.

        A trial that failed while a file was written anew with the same content is repeated once.
        """
        trial = self._watched(planned)
        is_spoilt = trial.status is not TrialStatus.OK and self._watch.touched
        return self._watched(planned) if is_spoilt else trial

    def _watched(self, planned: PlannedTrial) -> Trial:
        study = self._journal.study
        judged_by = reference(study, self._journal.trials, planned)
        trial = run_trial(study, planned, self._workspace, judged_by, self._data)
        if changed := self._watch.changed():
            if not self._mix:
                raise HeapfitError(self._stopped_by(changed))
            now = identify(study, self._data, self._watch.identity)
            self._journal.change_to(now)
            self._watch = Watch(now, is_new=False)
        elif self._watch.identity is not study.sessions[-1].identity:
            self._journal.correct_session(self._watch.identity)
        return trial

    def _stopped_by(self, changed: list[str]) -> str:
        count = len(self._journal.trials)
        return (
            f"{join_words(changed)} while it was being measured. The trial that ran then does "
            f"not count; {counted(count, 'earlier trial')} {'is' if count == 1 else 'are'} kept. "
            "Once the build is done, repeat the same command: it starts over with the new files"
            f"{'' if self._mix is None else ', or continues with --mix'}"
        )


def _sharing_note(processors: list[int]) -> str:
    which = join_words([str(each) for each in processors])
    noun = "processor" if len(processors) == 1 else "processors"
    return (
        f"another study runs on {noun} {which}, too, and disturbs these times: wait for it, or "
        "interrupt one, whose trials are kept"
    )


# ----------------------------------------------------------------- the baseline
#
# Its output is the reference that all others are compared with. A study whose program fails under
# the baseline, or runs without every other allocator, has nothing to compare.


def reference(study: Study, trials: Sequence[Trial], planned: PlannedTrial) -> Trial | None:
    """Return the first good trial whose output that of `planned` must match.

    It ran in the same setting: output may depend on parameters, environment and number of cores.
    """
    same = _reference_trials(study, trials, planned)
    return next((trial for trial in same if trial.status is TrialStatus.OK), None)


def stop_if_pointless(study: Study, trials: Sequence[Trial], trial: Trial) -> None:
    """Raise `HeapfitError` where all further trials would fail for the same reason, which says
    nothing about an allocator. `trials` are those before the failed `trial`."""
    is_judged_by_baseline = study.reference_of(trial.planned.allocator) == study.baseline
    if is_judged_by_baseline and reference(study, trials, trial.planned) is None:
        who = f"the baseline {study.baseline}"
        what = "a trial of the server" if study.workload.server else "the program"
        fails = "does not end" if trial.status is TrialStatus.TIMEOUT else "fails"
        raise HeapfitError(
            f"{f'{who} {fails}' if study.programs else f'{what} {fails} under {who}'}"
            f"{_where(study, trial.planned)}, so there is nothing "
            f"to compare with: {trial.reason}{it_says(trial.stderr_tail)}{_advice(study, trial)}"
        )
    if _never_repeated_itself(study, trials, trial):
        raise HeapfitError(trial.reason)
    if _takes_no_allocator(study, trials, trial):
        raise HeapfitError(
            f"there is nothing to compare with {study.baseline}: under every other allocator the "
            f"program {trial.reason}"
        )


def _advice(study: Study, trial: Trial) -> str:
    """Return what to do about a program that does not end, or needs a terminal."""
    if trial.status is TrialStatus.FAILED and _NO_TERMINAL.search(trial.stderr_tail):
        return (
            "; it seems to need a terminal, which no trial has: have script give it one, "
            f"script -qec {shell_words([shell_words(study.command)])} /dev/null"
        )
    if trial.status is not TrialStatus.TIMEOUT or study.workload.server:
        return ""
    return (
        "; give it more time with --timeout, or, if it is a server, describe it and what drives "
        f"it: heapfit workloads new --port N -- {shell_words(study.command)}; of a service that "
        "needs no load, write --for 30s in place of --port N"
    )


def _reference_trials(
    study: Study, trials: Sequence[Trial], planned: PlannedTrial
) -> Iterator[Trial]:
    """Yield the reference's trials in the setting of `planned`; the first is near the front."""
    setting, name = planned.setting, study.reference_of(planned.allocator)
    for trial in trials:
        if trial.planned.allocator == name and trial.planned.setting == setting:
            yield trial


def _never_repeated_itself(study: Study, trials: Sequence[Trial], trial: Trial) -> bool:
    """Tell whether a reference's output differs at its first repetition."""
    name = trial.planned.allocator
    if name != study.reference_of(name) or trial.status is not TrialStatus.MISMATCH:
        return False
    return len(list(_reference_trials(study, trials, trial.planned))) == 1


def _takes_no_allocator(study: Study, trials: Sequence[Trial], trial: Trial) -> bool:
    """Tell whether the program ran without the allocators that were preloaded, so that no two are
    left to compare."""
    if not trial.reason.startswith(WITHOUT_ALLOCATOR):
        return False
    every = [*trials, trial]
    without = {t.planned.allocator for t in every if t.reason.startswith(WITHOUT_ALLOCATOR)}
    without -= {t.planned.allocator for t in trials if t.status is TrialStatus.OK}
    return len(study.allocators) - len(without) < 2


def _where(study: Study, planned: PlannedTrial) -> str:
    """Name the setting of a trial, where the study has several."""
    name = setting_name(study, planned.setting)
    return f" at {name}" if name else ""
