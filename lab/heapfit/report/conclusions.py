"""One honest sentence per metric: who leads, who cannot be told apart, or that nothing can be said.

All of it is read from the verdicts of that setting, as are the marks in the table above it.
"""

from collections.abc import Iterator, Sequence

from heapfit.meaning import deciding_metrics
from heapfit.records import Metric, Setting, Study, Verdict
from heapfit.report.results import FEWEST_TRIALS, Outcome, Results, verdict_text
from heapfit.settings import setting_label
from heapfit.statistics.verdict import FEWEST_BLOCKS
from heapfit.text import (
    DASH,
    TERMINAL_DIGITS,
    capitalised,
    counted,
    counted_range,
    join_words,
    mid_sentence,
    scale_for,
    visible,
)

MERE_RANGES = (
    f"Where fewer than {FEWEST_TRIALS} trials have a figure, the interval of a median is only "
    "their range, which holds the true median with less than 95 % confidence."
)
DIFFERENCES = "If a metric can be zero, the difference of means from {} replaces the ratio."
NOTHING = "No measured run has succeeded, so there is nothing to compare."
_ALONE = "Only {} takes part, so its settings are compared."

# Of a difference that is too small to matter, one digit is enough.
_DIGITS_OF_LITTLE = 1
# A sentence that names more settings than this is not read to its end.
_MOST_NAMES = 6


def headline_metrics(results: Results) -> list[Metric]:
    """The metrics that a conclusion is drawn for, in the order of the tables."""
    deciding = deciding_metrics(results.study)
    return [metric for metric in results.metrics if metric in deciding]


def conclude(results: Results, setting: Setting, metric: Metric) -> str:
    """Return what the verdicts say about one metric in one setting, as one sentence."""
    estimates = results.estimates(setting, metric)
    where = f"on {mid_sentence(metric.label)}"
    if not estimates:
        return f"No trial gave a figure for {mid_sentence(metric.label)}: nothing can be said."
    if len(estimates) == 1:
        only = visible(estimates[0].allocator)
        return f"Only {only} has a figure {where}: there is nothing to compare it with."
    found = results.outcome(setting, metric)
    if found is None:
        return _too_few(results, setting, metric)
    if results.study.programs:
        return " ".join(_programs(results, setting, metric))
    thin = [e.allocator for e in estimates if e.allocator not in found.compared]
    absent = [
        name for name in results.allocators if results.estimate(setting, metric, name) is None
    ]
    said = _compare(results, setting, metric, where, found)
    said = _without(said, thin, f", with fewer than {FEWEST_BLOCKS} trials to compare")
    return _without(said, absent, ", without a figure")


def _programs(results: Results, setting: Setting, metric: Metric) -> Iterator[str]:
    """Say what each program is to the first, under each allocator."""
    study = results.study
    for treatment in study.allocators:
        if treatment.program == study.programs[0] or treatment.variant_of is None:
            continue
        first = next(
            each.name
            for each in study.allocators
            if each.program == study.programs[0] and each.variant_of == treatment.variant_of
        )
        verdict = results.verdict(setting, metric, treatment.name, first)
        allocator = visible(treatment.variant_of.name)
        names = visible(f"{treatment.program}"), visible(study.programs[0])
        yield _of_program(results, metric, verdict, names, allocator)


def _of_program(
    results: Results,
    metric: Metric,
    verdict: Verdict | None,
    names: tuple[str, str],
    allocator: str,
) -> str:
    program, first = names
    label = mid_sentence(metric.label)
    if verdict is None or not verdict.told:
        return f"Too few trials of {program} under {allocator} to compare {label}."
    found = verdict_text(verdict, results.scale(metric, TERMINAL_DIGITS), "x", 2)
    figure = found.with_unit
    between = f"{found.low}{DASH if verdict.subject == 'ratio' else ' to '}{found.high}"
    if not verdict.shown:
        return (
            f"On {label}, {program} cannot be told apart from {first} under {allocator} "
            f"({figure}, {between})."
        )
    little = "" if verdict.matters else ", perhaps by too little to matter"
    little = ", by too little to matter" if verdict.trivial else little
    if verdict.subject == "ratio":
        verb = "takes" if metric.better == "lower" else "reaches"
        said = f"{program} {verb} {figure} the {label} of {first} ({between})"
    else:
        said = f"On {label}, {program} differs from {first} by {figure} ({between})"
    return f"{said} under {allocator}{little}."


def _without(said: str, left_out: Sequence[str], why: str) -> str:
    """Add to a sentence whom it says nothing of."""
    names = join_words([visible(name) for name in left_out])
    return capitalised(said) + (f" Left out{why}: {names}." if names else "")


def alone(results: Results) -> list[str]:
    """Return what is said of a study of one allocator, whose settings are compared."""
    if not results.study.is_of_one:
        return []
    found = [_settings(results, metric) for metric in headline_metrics(results)]
    return [_ALONE.format(visible(results.baseline)), *found]


def _settings(results: Results, metric: Metric) -> str:
    """Return what the verdicts say of the settings in one metric."""
    label = mid_sentence(metric.label)
    where = f"On {label}"
    found = results.outcome_of_settings(metric)
    if found is None:
        return f"Too few trials to compare {label}: {FEWEST_BLOCKS} of each are needed."
    if found.alike:
        return f"{where}, no difference can be shown between the settings."
    best = found.best
    if found.ahead:
        return f"{where}, {_overtaken(best, found.ahead)}."
    if not found.behind:
        return (
            f"{where}, {best} has the best mean; none of the others can be told apart from it, "
            "though some differ from each other."
        )
    scale = results.scale(metric, TERMINAL_DIGITS)
    ahead = [
        f"{each} ({verdict_text(found.verdicts[each, best], scale, 'x', 2).with_unit})"
        for each in found.behind
    ]
    tied = _some(found.tied)
    rest = f"; {tied} cannot be told apart from it" if tied else ""
    little = " by too little to matter" if found.trivial else ""
    return f"{where}, {best} leads, ahead{little} of {_some(ahead)}{rest}."


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return join_words([*names[:_MOST_NAMES], f"{more} more"] if more > 1 else names)


def by_setting(results: Results) -> list[tuple[str, list[str]]]:
    """Return the conclusions of the whole study: the label of each setting, and its sentences.

    Where there is one setting only, its label is left out.
    """
    if not results.metrics:
        return [("", [NOTHING])]
    if said := alone(results):
        return [("", said)]
    metrics = headline_metrics(results)
    several = len(results.settings) > 1
    return [
        (setting_label(each) if several else "", [conclude(results, each, m) for m in metrics])
        for each in results.settings
    ]


def overall(results: Results) -> list[str]:
    """Return the same as plain lines."""
    return [
        f"{label}: {sentence}" if label else sentence
        for label, sentences in by_setting(results)
        for sentence in sentences
    ]


def _compare(results: Results, setting: Setting, metric: Metric, where: str, found: Outcome) -> str:
    best = visible(found.best)
    if found.alike:
        names = join_words([visible(name) for name in (found.best, *found.tied)])
        return f"{where}, no difference can be shown between {names}{_little_known(results)}."
    if found.ahead:
        figures = _figures(results, setting, metric, [found.best, *found.ahead])
        return f"{where}, {_overtaken(best, [visible(each) for each in found.ahead])} ({figures})."
    figures = _figures(results, setting, metric, [found.best, *found.tied])
    if not found.behind:
        return (
            f"{where}, {best} has the best mean; none of the others can be told apart from it, "
            f"though some differ from each other ({figures})."
        )
    little = _too_little(metric, found)
    if not found.tied:
        return f"{where}, {best} leads, ahead of all the others ({figures}){little}."
    names = join_words([visible(name) for name in found.tied])
    return f"{where}, {best} leads; {names} cannot be told apart from it ({figures}){little}."


def _overtaken(best: str, ahead: Sequence[str]) -> str:
    """Say that who has the best mean beside the baseline is not the best where others ran too."""
    verb = "is" if len(ahead) == 1 else "are"
    return (
        f"{best} has the best mean, but {_some(ahead)} {verb} shown to be better in the blocks "
        "that both have"
    )


def _little_known(results: Results) -> str:
    """Say so where there are hardly trials enough to show a difference."""
    more = _option(results.study, FEWEST_TRIALS)
    few = counted(results.study.replicates, "replicate")
    return f": {few} can show only large ones; more would show smaller ones{more}" if more else ""


def _too_little(metric: Metric, found: Outcome) -> str:
    """Say so where the lead is shown and too small to matter, or may be, and over which others."""
    leads = [found.verdicts[found.best, name] for name in found.behind]
    said = ""
    if little := [each for each in leads if each.trivial]:
        _, most = _smallest_and_largest(metric, little)
        size = f"too little to matter ({_intervals(little)}: up to {most})"
        of_all = len(little) == len(leads)
        said += f", by {size}" if of_all else f"; {_lead_over(little)} is {size}"
    if unclear := [each for each in leads if not each.trivial and not each.matters]:
        least, most = _smallest_and_largest(metric, unclear)
        size = f"too little to matter ({_intervals(unclear)}: {least} to {most})"
        of_all = len(unclear) == len(leads)
        said += f", perhaps by {size}" if of_all else f"; {_lead_over(unclear)} may be {size}"
    return said


def _lead_over(verdicts: Sequence[Verdict]) -> str:
    return f"its lead over {join_words([visible(each.second) for each in verdicts])}"


def _intervals(verdicts: Sequence[Verdict]) -> str:
    return "95 % interval" if len(verdicts) == 1 else "95 % intervals"


def _smallest_and_largest(metric: Metric, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """The least and the most that the differences may be, by their intervals."""
    bounds = [sorted(map(abs, _absolute(each))) for each in verdicts]
    smallest, largest = min(low for low, _ in bounds), max(high for _, high in bounds)
    return _roughly(metric, smallest), _roughly(metric, largest)


def _roughly(metric: Metric, size: float) -> str:
    return scale_for(metric.unit, [size], _DIGITS_OF_LITTLE).text(size)


def _absolute(verdict: Verdict) -> tuple[float, float]:
    low, high = verdict.absolute_low, verdict.absolute_high
    assert low is not None
    assert high is not None
    return low, high


def _too_few(results: Results, setting: Setting, metric: Metric) -> str:
    trials = counted_range(*results.trials_per_cell(setting, metric), "trial")
    best = results.ranked(setting, metric)[0]
    return (
        f"With {trials} per {results.study.noun} nothing can be shown on "
        f"{mid_sentence(metric.label)}; at least {FEWEST_BLOCKS} are needed"
        f"{_option(results.study, FEWEST_BLOCKS)}. {visible(best)} has the best mean so far "
        f"({_figures(results, setting, metric, [best])})."
    )


def _option(study: Study, replicates: int) -> str:
    """The option that asks for so many replicates, where it is that which a study lacks."""
    is_lacking = study.rule is None and study.replicates < replicates
    return f" (--replicates {replicates})" if is_lacking else ""


def _figures(results: Results, setting: Setting, metric: Metric, names: list[str]) -> str:
    """What the names are to the baseline, as their cells say it; medians where that is unknown."""
    scale = results.scale(metric, TERMINAL_DIGITS)
    others = [name for name in names if name != results.baseline]
    verdicts = [results.against_baseline(setting, metric, name) for name in others]
    if not others or None in verdicts:
        found = [e for name in names if (e := results.estimate(setting, metric, name)) is not None]
        return f"median {_each([scale.text(e.median) for e in found])}"
    shown = [results.relative(setting, metric, name, scale, "x", 2) for name in others]
    baseline = visible(results.baseline)
    if any(each.subject == "difference" for each in verdicts if each):
        unit = f" {scale.unit}".rstrip()
        shown, of = [f"{each}{unit}" for each in shown], f" against {baseline}"
    else:
        of = f" of {baseline}"
    if len(others) == len(names):
        return _each(shown, of)
    # The baseline has no ratio, so the figures no longer go with the names in their order.
    pairs = zip(others, shown, strict=True)
    return join_words([f"{visible(name)} {each}" for name, each in pairs]) + of


def _each(figures: list[str], of: str = "") -> str:
    """Join figures, saying one that is common to all of them once."""
    if len(figures) > 1 and len(set(figures)) == 1:
        return f"{figures[0]}{of} each"
    return f"{join_words(figures)}{of}"
