"""The conditions of a comparison, judged by its verdicts and nothing else.

A condition fails where a verdict's interval lies beyond the bound, and passes where it lies within.
Between the two it cannot be told, and how many replicates would is said. Nor can it be told where
some trials failed, since one that fails when it is slow would look too good: a treatment that is
shown to be beyond the bound all the same has failed, unless it is the baseline that may look too
good. Nor where the difference is too small to be measured. A treatment that never succeeds, where
the baseline does, is broken. With several settings a condition holds in each.
"""

import math
from collections.abc import Iterator, Sequence

from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.gate.condition import Condition
from heapfit.gate.decision import Decision, Outcome
from heapfit.meaning import PROCESSOR, RESIDENT_PEAK, WALL
from heapfit.records import CAN_BE_ZERO, Setting, Study, Summary, Verdict
from heapfit.settings import setting_levels, setting_name
from heapfit.statistics.observations import Readings, figures_of
from heapfit.statistics.power import MOST_REPLICATES, replicates_to_tell
from heapfit.statistics.verdict import FEWEST_BLOCKS, by_block, of_each, pairs
from heapfit.text import counted, join_words, scale_for

# Measured of every program that runs. Any other metric is compared by its difference as soon as one
# of its figures is zero.
_NEVER_ZERO = (WALL, PROCESSOR, RESIDENT_PEAK, "instructions")


class RatioDecision(Decision):
    """A condition on one treatment in one setting, and the verdict that decided."""

    condition: str
    verdict: Verdict | None = None
    replicates: int | None = None


def check(conditions: Sequence[Condition], study: Study) -> None:
    """Raise where a condition of the gate can never be judged in `study`, before it is run."""
    for each in conditions:
        known = [metric.name for metric in study.metrics]
        if study.workload.fixes_duration:
            known.append(PROCESSOR)
            if each.metric == WALL:
                bound = f"{PROCESSOR}{each.text.partition(WALL)[2]}"
                raise UsageError(
                    f"{each.option} {each.text!r}: the workload fixes how long a trial runs, so "
                    f"{WALL} is the same under every allocator; bound processor time: {bound!r}"
                )
        if each.metric not in known:
            start = f"{each.metric} cannot be measured"
            for note in study.machine.notes:
                if note.startswith(start):
                    raise HeapfitError(f"{each.option} {each.text!r}: {note}")
            raise unknown("metric", each.metric, known)
        if each.metric in CAN_BE_ZERO and not each.is_difference:
            raise UsageError(
                f"{each.option} {each.text!r}: {each.metric} can be zero and then has no ratio; "
                f"bound its difference, with a sign: '{each.metric}{each.sign}+…'"
            )
        if each.metric in _NEVER_ZERO and each.is_difference:
            raise UsageError(
                f"{each.option} {each.text!r}: {each.metric} is compared by its ratio; "
                f"bound that, without a sign: '{each.metric}{each.sign}1.03'"
            )
        _treatments(each, study)


def _treatments(condition: Condition, study: Study) -> list[str]:
    others = [each.name for each in study.allocators if each.name != study.baseline]
    if condition.treatment is None:
        if not others:
            raise UsageError(
                f"{condition.option} compares with {study.baseline}; name another, too"
            )
        return others
    if condition.treatment == study.baseline:
        raise UsageError(
            f"--fail-if {condition.text!r}: {study.baseline} is the baseline, which the others are "
            "compared with; name one of them"
        )
    if condition.treatment not in others:
        raise unknown(study.noun, condition.treatment, others)
    return [condition.treatment]


def judge(
    conditions: Sequence[Condition], readings: Readings, summary: Summary
) -> list[RatioDecision]:
    """Return what the verdicts of a study say of each condition, treatment and setting."""
    study = summary.study
    return [
        _decide(condition, name, setting, readings, summary)
        for condition in conditions
        for name in _treatments(condition, study)
        for setting in study.settings()
    ]


def _decide(
    condition: Condition, name: str, setting: Setting, readings: Readings, summary: Summary
) -> RatioDecision:
    study = summary.study
    where = f" at {setting_name(study, setting)}" if len(study.settings()) > 1 else ""
    found = next(_verdicts(summary, condition.metric, name, setting), None)
    outcome, why = _outcome(condition, found, summary)
    of_baseline = _failures(summary, study.baseline, setting)
    failed = join_words([*filter(None, (_failures(summary, name, setting), of_baseline))])
    replicates = None
    if _only_fails(summary, name, setting, found):
        outcome, why = "broken", f"no trial of {name} has succeeded; {failed}"
    elif of_baseline or (failed and outcome != "failed"):
        outcome, why = "untold", f"{why}; {failed}"
    elif (
        outcome == "untold"
        and found
        and found.told
        and _fits(condition, found)
        and not (_is_beyond(condition, found))
    ):
        replicates = _replicates(condition, found, setting, readings)
        why += f"; {_needed(replicates)}"
    return RatioDecision(
        name=f"{name} {condition.text.removeprefix(f'{condition.treatment}:').strip()}{where}",
        outcome=outcome,
        why=why,
        condition=condition.text,
        verdict=found,
        replicates=replicates,
    )


def _verdicts(summary: Summary, metric: str, name: str, setting: Setting) -> Iterator[Verdict]:
    at, pair = setting_levels(setting), {name, summary.study.baseline}
    for each in summary.verdicts:
        if each.metric == metric and each.at == at and {each.first, each.second} == pair:
            yield each if each.first == name else each.turned()


def _outcome(condition: Condition, found: Verdict | None, summary: Summary) -> tuple[Outcome, str]:
    if found is None or found.low is None or found.high is None:
        blocks = found.blocks if found else 0
        why = f"{counted(blocks, 'replicate')} to compare; at least {FEWEST_BLOCKS} are needed"
        return "untold", why
    why = _interval(found, summary)
    low, high = found.low, found.high
    if not _fits(condition, found):
        # Whatever the ratio is of figures that are not greater, it is not above 1.
        if found.subject == "difference" and condition.sign == ">" and high <= 0:
            return ("passed" if condition.bound >= 1 else "untold"), why
        other = "with" if found.subject == "difference" else "without"
        return "untold", f"{why}; that is a {found.subject}, which is bounded {other} a sign"
    if _is_beyond(condition, found):
        if found.trivial:
            return "untold", f"{why}; beyond the bound, but by too little to matter"
        return "failed", why
    is_within = high <= condition.bound if condition.sign == ">" else low >= condition.bound
    return ("passed" if is_within else "untold"), why


def _is_beyond(condition: Condition, found: Verdict) -> bool:
    if found.low is None or found.high is None:
        return False
    return found.low > condition.bound if condition.sign == ">" else found.high < condition.bound


def _fits(condition: Condition, found: Verdict) -> bool:
    return condition.is_difference == (found.subject == "difference")


def _interval(found: Verdict, summary: Summary) -> str:
    values = [found.estimate, found.low or 0.0, found.high or 0.0]
    if found.subject == "ratio":
        estimate, low, high = (f"{value:.3f}" for value in values)
        return f"{estimate}x ({low} to {high})"
    unit = next(each.unit for each in summary.study.metrics if each.name == found.metric)
    scale = scale_for(unit, values)
    estimate, low, high = map(scale.difference, values)
    return f"{estimate} {scale.unit}".rstrip() + f" ({low} to {high})"


def _only_fails(summary: Summary, name: str, setting: Setting, found: Verdict | None) -> bool:
    """Whether it is this treatment, and not the baseline, that leaves nothing to compare."""
    return (
        not (found and found.blocks)
        and bool(_failures(summary, name, setting))
        and not _failures(summary, summary.study.baseline, setting)
    )


def _failures(summary: Summary, name: str, setting: Setting) -> str:
    failed = sum(
        each.planned.allocator == name and each.planned.setting == setting
        for each in summary.problems
    )
    return f"{counted(failed, 'trial')} of {name} failed" if failed else ""


def _replicates(
    condition: Condition, found: Verdict, setting: Setting, readings: Readings
) -> int | None:
    """How many replicates would tell, if the estimate were true."""
    study, is_ratio = readings.study, found.subject == "ratio"
    names = [each.name for each in study.allocators]
    figures = by_block(readings, figures_of(readings, condition.metric))
    of_pairs = pairs(figures, ratio=is_ratio, to=names.index(study.baseline))
    pair = of_pairs.first.tolist().index(names.index(found.first))
    bound = math.log(condition.bound) if is_ratio else condition.bound
    place = (study.settings().index(setting), pair)
    return replicates_to_tell(of_pairs, place, bound, of_each(study))


def _needed(replicates: int | None) -> str:
    if replicates is None:
        return f"more than {MOST_REPLICATES:,} replicates would be needed"
    return f"about {replicates:,} replicates would tell"
