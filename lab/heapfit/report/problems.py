"""What went wrong in a study, in plain words: failed trials gathered by cause, figures missing; and
how precise its verdicts are, how often they were looked at, whether they hold on each machine.

A trial that failed is never a time, but a reader must see it: an allocator that crashes in one
trial of fifty is news.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import ceil, isfinite

from heapfit.doctor.program import c_library
from heapfit.meaning import PROCESSOR_TIME, deciding_metrics
from heapfit.records import (
    SIGNIFICANT,
    MachineDifference,
    Metric,
    PlannedTrial,
    Session,
    Setting,
    StoppingRule,
    Summary,
    Trial,
    TrialStatus,
)
from heapfit.report.labels import settings_of_variant
from heapfit.settings import setting_label, setting_of
from heapfit.study.identity import differences
from heapfit.study.stopping import LOOKS, MOST_TIMEOUTS, needed_blocks, never_finish
from heapfit.text import counted, join_words, percent, ratio, scale_for, visible
from heapfit.trial.preload import VARIABLE

_VERB = {
    TrialStatus.FAILED: "failed",
    TrialStatus.TIMEOUT: "ran past the time limit",
    TrialStatus.MISMATCH: "gave different output",
}

_MOST_NUMBERS = 10

_UNITS = ((3600, "h"), (60, "m"), (1, "s"))  # in which --max-time is written

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
    looked_for = (
        _unfinished,
        _mixed,
        _linked,
        _precision,
        _looks,
        _machines,
        _missing_figures,
        _same_allocators,
        _other_output,
        _outlived,
        _left_out,
        _too_short,
    )
    return _told(summary, looked_for)


def doubts(summary: Summary) -> list[str]:
    """Return those of the remarks that say why figures are not of what they seem to be."""
    return _told(summary, (_mixed, _linked, _same_allocators))


def _told(summary: Summary, looked_for: Iterable[Callable[[Summary], Iterator[str]]]) -> list[str]:
    return [sentence for look in looked_for for sentence in look(summary)]


def _other_output(summary: Summary) -> Iterator[str]:
    if not summary.other_output:
        return
    names = join_words([visible(name) for name in summary.other_output])
    verb = "print" if len(summary.other_output) > 1 else "prints"
    yield (
        f"{names} {verb} different output from {visible(summary.study.programs[0])}. The trials "
        "count, since each program is checked against its own output. If they should do the same "
        "work, look into that first."
    )


def _left_out(summary: Summary) -> Iterator[str]:
    """Say which allocators were given up, so that the rest could go on."""
    measured = {(each.allocator, setting_of(each)) for each in summary.estimates}
    for name, setting in sorted(never_finish(summary.study, summary.problems) - measured):
        yield (
            f"{visible(name)}, {setting_label(setting)}, is left out: none of its trials "
            f"finished, and {MOST_TIMEOUTS} timed out. --timeout allows more time."
        )


def _outlived(summary: Summary) -> Iterator[str]:
    # Now and then one is only about to end, too.
    if 2 * summary.trials_outlived > summary.trials_done and not summary.study.workload.server:
        yield (
            f"In {counted(summary.trials_outlived, 'trial')} the program left a process running "
            "in the background, which was killed with it and is not in these figures. If the "
            "program daemonises, keep it in the foreground, and describe it as a server: "
            "heapfit workloads new --port N -- CMD."
        )


def _mixed(summary: Summary) -> Iterator[str]:
    """Say what changed between trials that were measured as one study all the same."""
    last: dict[str | None, Session] = {}
    for session in summary.study.sessions:
        before = last.get(session.machine)
        last[session.machine] = session
        if before is None:
            continue
        where = f" on {visible(session.machine)}" if session.machine else ""
        clauses = [visible(each) for each in differences(before.identity, session.identity)]
        after = counted(session.first, "trial")
        yield (
            f"Not all trials measured the same thing (--mix): after {after}{where}, "
            f"{join_words(clauses)}."
        )


def _linked(summary: Summary) -> Iterator[str]:
    """Say so where a treatment that preloads nothing did not run on the C library's malloc."""
    study = summary.study
    bare = [each for each in study.allocators if each.library is None]
    if VARIABLE in study.workload.run.environment:
        return  # The workload has put the C library first itself.
    said = {}
    for session in study.sessions:
        used = session.identity.files
        for of, library in session.identity.linked_allocators.items():
            own = [visible(each.name) for each in bare if each.program in (None, of)]
            libraries = (each.path for each in used if each.of == of and each.role == "library")
            if own:
                program = visible(of) if study.programs else "The program"
                said[of] = (
                    f"{program} is linked with {visible(library.name)}, which has a malloc. "
                    f"Nothing is preloaded for {join_words(own)}, so "
                    f"{'they' if own[1:] else 'it'} ran on that malloc. To measure the C "
                    f"library's, add libc={c_library(libraries)} to --allocators."
                )
    yield from said.values()


def _same_allocators(summary: Summary) -> Iterator[str]:
    names = {each.name for each in summary.study.allocators}
    for each in summary.study.allocators:
        if each.variant_of and each.variant_of.name in names and not settings_of_variant(each):
            yield (
                f"{visible(each.variant_of.name)} and {visible(each.name)} are the same "
                "allocator: a difference shown is chance (one column in twenty) or caused by the "
                "machine."
            )


def _too_short(summary: Summary) -> Iterator[str]:
    """Say so where the program does too little for any allocator to matter."""
    own = [each for each in summary.estimates if each.allocator == summary.study.baseline]
    spent: dict[Setting, dict[str, float]] = {}
    for each in own:
        if each.metric in PROCESSOR_TIME:
            spent.setdefault(setting_of(each), {})[each.metric] = each.median
    totals = [sum(parts.values()) for parts in spent.values() if len(parts) == len(PROCESSOR_TIME)]
    if totals and min(totals) < _SHORT_S:
        shown = scale_for("s", [min(totals)], 2).text(min(totals))
        yield (
            f"The program takes {shown} of processor time, much of which goes into starting it: "
            "that is too little to judge an allocator by. Give it more work."
        )


def _unfinished(summary: Summary) -> Iterator[str]:
    if summary.trials_done < summary.trials_planned:
        yield (
            f"The study is not finished: {summary.trials_done:,} of "
            f"{counted(summary.trials_planned, 'trial')} are done."
        )


def _missing_figures(summary: Summary) -> Iterator[str]:
    """Name the metrics that trials lack although they succeeded. Needs a finished study."""
    if summary.trials_done < summary.trials_planned:
        return
    succeeded = summary.study.planned.copy()
    succeeded.subtract(Counter(_cell(trial.planned) for trial in summary.problems))
    found = {(e.allocator, setting_of(e), e.metric): e.n for e in summary.estimates}
    for (allocator, setting, warmup), expected in succeeded.items():
        for metric in summary.study.metrics:
            n = found.get((allocator, setting, metric.name), 0)
            if not warmup and 0 <= n < expected:
                yield (
                    f"{visible(allocator)}, {setting_label(setting)}: {visible(metric.label)} is "
                    f"missing from {expected - n} of {counted(expected, 'successful trial')}"
                )


def _cell(planned: PlannedTrial) -> Cell:
    return planned.allocator, planned.setting, planned.warmup


# ------------------------------------------------ what the design adds to the verdicts


def precision_reached(summary: Summary) -> str | None:
    """Return what is said of a study that is as precise as it was to be; None of all others."""
    rule, found = summary.study.rule, summary.precision
    if rule is None or rule.precision is None or found is None or found.reached > rule.precision:
        return None
    if _without_ratio(summary):
        return None
    return (
        f"After {counted(found.blocks, 'block')}, every deciding interval is within "
        f"±{percent(found.reached)}; ±{percent(rule.precision)} was requested."
    )


def _precision(summary: Summary) -> Iterator[str]:
    """Say so where a study has ended before it was as precise as it was to be."""
    rule, found = summary.study.rule, summary.precision
    if rule is None or rule.precision is None:
        return
    if names := _without_ratio(summary):
        yield (
            f"Some values of {join_words(names)} are zero, so there is no ratio to wait for: use "
            "--replicates instead of --precision."
        )
        return
    if found is None or found.reached <= rule.precision:
        return
    if summary.trials_done < summary.trials_planned:
        return
    said = f"The requested precision, {percent(rule.precision)}, is not reached"
    pair = join_words([visible(found.first), visible(found.second)])
    if not isfinite(found.reached):
        more = "" if rule.max_time_s is None else "; allow more with --max-time"
        yield f"{said}: too few blocks to compare {pair}{more}."
        return
    label = next(each.label for each in summary.study.metrics if each.name == found.metric)
    needed = ceil(needed_blocks(found, rule.precision))
    yield (
        f"{said}: {visible(label)} of {pair} is known to {percent(found.reached)} after "
        f"{counted(found.blocks, 'block')}, and some {needed:,} would be needed: "
        f"{_more(rule, found.blocks, needed)}, or give the program more work."
    )


def _without_ratio(summary: Summary) -> list[str]:
    """The labels of what decides and is compared by differences."""
    names = {each.metric for each in summary.verdicts if each.subject == "difference"}
    deciding = deciding_metrics(summary.study)
    return [visible(metric.label) for metric in deciding if metric.name in names]


def _more(rule: StoppingRule, blocks: int, needed: int) -> str:
    """What to do for more blocks: a precision alone ends at the last look."""
    if rule.max_time_s is None or needed > LOOKS[-1]:
        limits = "--precision" if rule.max_time_s is None else "--precision and --max-time"
        return f"repeat the command with --replicates {needed} in place of {limits}"
    seconds = rule.max_time_s * needed / blocks
    unit_s, unit = next(each for each in _UNITS if seconds >= 2 * each[0] or each[1] == "s")
    return f"repeat the command with --max-time {ceil(seconds / unit_s)}{unit}"


def _looks(summary: Summary) -> Iterator[str]:
    """Say what it costs to have seen a verdict and gone on."""
    shown = [str(blocks) for blocks in summary.looks]
    if len(shown) > 1:
        rate = percent(min(1.0, len(shown) * SIGNIFICANT))
        yield (
            f"Verdicts were shown after {join_words(shown)} blocks. Adding replicates after "
            f"seeing one raises the chance of a false positive from {percent(SIGNIFICANT)} to up "
            f"to {rate}."
        )


def _machines(summary: Summary) -> Iterator[str]:
    """Say of each metric whether allocators are shown to differ by machine, with the clearest."""
    metrics = {metric.name: metric for metric in summary.study.metrics}
    by_metric: dict[str, list[MachineDifference]] = {}
    for each in summary.machines:
        # What reads the same on both is too little to matter.
        if each.shown and len(set(_figures(metrics[each.metric], each).values())) > 1:
            by_metric.setdefault(each.metric, []).append(each)
    for name, metric in metrics.items():
        if found := by_metric.get(name):
            yield _by_machine(metric, min(found, key=lambda each: each.p), len(found) - 1)


def _by_machine(metric: Metric, found: MachineDifference, more: int) -> str:
    where = join_words(
        [f"{figure} on {visible(machine)}" for machine, figure in _figures(metric, found).items()]
    )
    verb = "differ" if more > 1 else "differs"
    rest = f"; {counted(more, 'other pair')} {verb} too" if more else ""
    return (
        f"{visible(metric.label)} depends on the machine: {visible(found.first)} relative to "
        f"{visible(found.second)} is {where}{rest}. The overall result may not hold on each "
        "machine."
    )


def _figures(metric: Metric, found: MachineDifference) -> dict[str, str]:
    """What the one allocator is to the other on each machine, in words."""
    if found.subject == "ratio":
        return {machine: ratio(value) for machine, value in found.on.items()}
    scale = scale_for(metric.unit, [abs(value) for value in found.on.values()])
    return {machine: scale.difference_text(value) for machine, value in found.on.items()}
