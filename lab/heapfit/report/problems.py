"""What went wrong in a study, in plain words: failed trials gathered by cause, figures missing.

A trial that failed is never a time, but a reader must see it: an allocator that crashes in one
trial of fifty is news.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from heapfit.records import PlannedTrial, Session, Setting, Summary, Trial, TrialStatus
from heapfit.report.described import settings_of_variant
from heapfit.report.design import design_remarks
from heapfit.report.settings import setting_label, setting_of
from heapfit.report.units import scale_for
from heapfit.study.identity import differences
from heapfit.text import counted, join_words, visible

_VERB = {
    TrialStatus.FAILED: "failed",
    TrialStatus.TIMEOUT: "ran past the time limit",
    TrialStatus.MISMATCH: "gave another output",
}

_MOST_NUMBERS = 10

_PROCESSOR_TIME = ("user_s", "system_s")
# Starting a process takes a few milliseconds, and less than 5 ms is too little to matter: in a
# program that takes no more than this, a quarter of the time would be too little.
_SHORT_S = 0.02

Cell = tuple[str, Setting, bool]


@dataclass(frozen=True)
class Problem:
    """Trials of one allocator in the same setting that went wrong in the same way."""

    trials: list[Trial]
    of: int

    @property
    def first(self) -> Trial:
        return self.trials[0]

    @property
    def sentence(self) -> str:
        planned = self.first.planned
        kind = "warm-up trial" if planned.warmup else "trial"
        where = f"{visible(planned.allocator)}, {setting_label(planned.setting)}"
        many = f"{len(self.trials)} of {counted(self.of, kind)}"
        verb = _VERB.get(self.first.status, self.first.status.value)
        reason = f": {visible(self.first.reason)}" if self.first.reason else ""
        return f"{where}: {many} {verb}{reason}"

    @property
    def places(self) -> str:
        """Which trials of the study these are, counted from 1 in the order of running."""
        numbers = [f"{trial.planned.index + 1}" for trial in self.trials[:_MOST_NUMBERS]]
        more = len(self.trials) - len(numbers)
        listed = join_words([*numbers, f"{more:,} more"] if more else numbers)
        return f"Trial {listed}" if len(self.trials) == 1 else f"Trials {listed}"


def problems(summary: Summary) -> list[Problem]:
    """Return the summary's problems, gathered by cause, in the order of their first trial."""
    if not summary.problems:
        return []
    planned = summary.study.planned
    causes: dict[tuple[Cell, TrialStatus, str], list[Trial]] = {}
    for trial in sorted(summary.problems, key=lambda t: t.planned.index):
        cause = (_cell(trial.planned), trial.status, trial.reason)
        causes.setdefault(cause, []).append(trial)
    return [
        Problem(trials, max(planned[cell], len(trials))) for (cell, _, _), trials in causes.items()
    ]


def remarks(summary: Summary) -> list[str]:
    """Return what else a reader must know: a study cut short, figures that some trials lack."""
    return [
        *_unfinished(summary),
        *_mixed(summary),
        *design_remarks(summary),
        *_missing_figures(summary),
        *_same(summary),
        *_other(summary),
        *_outlived(summary),
        *_small(summary),
    ]


def _other(summary: Summary) -> list[str]:
    if not summary.other_output:
        return []
    names = join_words([visible(name) for name in summary.other_output])
    verb = "print" if len(summary.other_output) > 1 else "prints"
    return [
        f"{names} {verb} something else than {visible(summary.study.programs[0])}, in trials that "
        "are good all the same: each program is held to its own output. If they should do the same "
        "work, look into that first."
    ]


def _outlived(summary: Summary) -> list[str]:
    # Now and then one is only about to end, too.
    if 2 * summary.trials_outlived <= summary.trials_done or summary.study.workload.server:
        return []
    return [
        f"In {counted(summary.trials_outlived, 'trial')} the program left a process running in the "
        "background, which was ended with it: what that does is not in these figures. If it turns "
        "into a daemon, have it stay in the foreground, and describe it as a server: heapfit "
        "workloads new --port N -- CMD."
    ]


def _mixed(summary: Summary) -> list[str]:
    """Say what changed between trials that were measured as one study all the same."""
    last: dict[str | None, Session] = {}
    said = []
    for session in summary.study.sessions:
        before = last.get(session.machine)
        last[session.machine] = session
        if before is None:
            continue
        where = f" on {visible(session.machine)}" if session.machine else ""
        clauses = [visible(each) for each in differences(before.identity, session.identity)]
        after = counted(session.first, "trial")
        said.append(
            f"This mixes trials of different things (--mix): after {after}{where}, "
            f"{join_words(clauses)}."
        )
    if summary.study.sessions and summary.study.sessions[0].machine is None:
        unknown = summary.study.sessions[0].first
        if unknown:
            said.append(
                f"Of the first {counted(unknown, 'trial')} it is not known whether they measured "
                "the same thing as those after them (--mix)."
            )
    return said


def _same(summary: Summary) -> list[str]:
    allocators = summary.study.allocators
    names = {each.name for each in allocators}
    return [
        f"{visible(each.variant_of.name)} and {visible(each.name)} are one allocator: what is "
        "shown to differ between them is chance, which one column of twenty has, or the machine's "
        "doing."
        for each in allocators
        if each.variant_of and each.variant_of.name in names and not settings_of_variant(each)
    ]


def _small(summary: Summary) -> list[str]:
    """Say so where the program does too little for any allocator to matter."""
    own = [each for each in summary.estimates if each.allocator == summary.study.baseline]
    spent: dict[Setting, dict[str, float]] = {}
    for each in own:
        if each.metric in _PROCESSOR_TIME:
            spent.setdefault(setting_of(each), {})[each.metric] = each.median
    totals = [sum(parts.values()) for parts in spent.values() if len(parts) == len(_PROCESSOR_TIME)]
    if not totals or min(totals) >= _SHORT_S:
        return []
    shown = scale_for("s", [min(totals)], 2).text(min(totals))
    return [
        f"The program takes {shown} of processor time, of which much goes into starting it: that "
        "is too little to judge an allocator by. Give it more work."
    ]


def _unfinished(summary: Summary) -> list[str]:
    if summary.trials_done >= summary.trials_planned:
        return []
    return [
        f"The study is not finished: {summary.trials_done:,} of "
        f"{counted(summary.trials_planned, 'trial')} are done; repeating its command goes on."
    ]


def _missing_figures(summary: Summary) -> list[str]:
    """Name the metrics that trials lack although they succeeded. Needs a finished study."""
    if summary.trials_done < summary.trials_planned:
        return []
    succeeded = summary.study.planned.copy()
    succeeded.subtract(Counter(_cell(trial.planned) for trial in summary.problems))
    found = {(e.allocator, setting_of(e), e.metric): e.n for e in summary.estimates}
    lines = []
    for (allocator, setting, warmup), expected in succeeded.items():
        for metric in summary.study.metrics:
            n = found.get((allocator, setting, metric.name), 0)
            if not warmup and 0 <= n < expected:
                lines.append(
                    f"{visible(allocator)}, {setting_label(setting)}: {visible(metric.label)} is "
                    f"missing from {expected - n} of {counted(expected, 'successful trial')}"
                )
    return lines


def _cell(planned: PlannedTrial) -> Cell:
    return planned.allocator, planned.setting, planned.warmup
