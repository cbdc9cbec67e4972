"""What the design of a study adds to its verdicts: how precise they are, how often they were looked
at, and whether they hold on each machine."""

from __future__ import annotations

from math import ceil, isfinite

from heapfit.records import SIGNIFICANT, MachineDifference, Metric, StoppingRule, Summary
from heapfit.report.units import ratio, scale_for
from heapfit.study.stopping import LOOKS, needed_blocks
from heapfit.text import counted, join_words, percent, visible

_UNITS = ((3600, "h"), (60, "m"), (1, "s"))  # in which --max-time is written


def design_remarks(summary: Summary) -> list[str]:
    """Return what a reader must know of that, a sentence or two for each."""
    return [*_precision(summary), *_looks(summary), *_machines(summary)]


def precision_reached(summary: Summary) -> str | None:
    """Return what is said of a study that is as precise as it was to be; None of all others."""
    rule, found = summary.study.rule, summary.precision
    if rule is None or rule.precision is None or found is None or found.reached > rule.precision:
        return None
    return (
        f"After {counted(found.blocks, 'block')} every interval of what decides reaches at most "
        f"{percent(found.reached)} to either side; {percent(rule.precision)} was asked for."
    )


def _precision(summary: Summary) -> list[str]:
    """Say so where a study has ended before it was as precise as it was to be."""
    rule, found = summary.study.rule, summary.precision
    if rule is None or rule.precision is None or found is None or found.reached <= rule.precision:
        return []
    if summary.trials_done < summary.trials_planned:
        return []
    said = f"The precision asked for, {percent(rule.precision)}, is not reached"
    pair = join_words([visible(found.first), visible(found.second)])
    if not isfinite(found.reached):
        more = "" if rule.max_time_s is None else "; allow more with --max-time"
        return [f"{said}: of {pair} there are too few blocks to compare{more}."]
    label = next(each.label for each in summary.study.metrics if each.name == found.metric)
    needed = ceil(needed_blocks(found, rule.precision))
    return [
        f"{said}: {visible(label)} of {pair} is known to {percent(found.reached)} after "
        f"{counted(found.blocks, 'block')}, and some {needed:,} would be needed: "
        f"{_more(rule, found.blocks, needed)}, or give the program more work."
    ]


def _more(rule: StoppingRule, blocks: int, needed: int) -> str:
    """What to do for more blocks: a precision alone ends at the last look."""
    if rule.max_time_s is None or needed > LOOKS[-1]:
        limits = "--precision" if rule.max_time_s is None else "--precision and --max-time"
        return f"repeat the command with --replicates {needed} in place of {limits}"
    seconds = rule.max_time_s * needed / blocks
    unit_s, unit = next(each for each in _UNITS if seconds >= 2 * each[0] or each[1] == "s")
    return f"repeat the command with --max-time {ceil(seconds / unit_s)}{unit}"


def _looks(summary: Summary) -> list[str]:
    """Say what it costs to have seen a verdict and gone on."""
    shown = [str(blocks) for blocks in summary.looks]
    if len(shown) < 2:
        return []
    rate = percent(min(1.0, len(shown) * SIGNIFICANT))
    return [
        f"Verdicts were shown after {join_words(shown)} blocks. Whoever sees one and adds "
        f"replicates has more chances to see a difference that is none: up to {rate} of such "
        f"studies show one, not {percent(SIGNIFICANT)}."
    ]


def _machines(summary: Summary) -> list[str]:
    """Say of each metric whether allocators are shown to differ by machine, with the clearest."""
    metrics = {metric.name: metric for metric in summary.study.metrics}
    by_metric: dict[str, list[MachineDifference]] = {}
    for each in summary.machines:
        # What reads the same on both is too little to matter.
        if each.shown and len(set(_figures(metrics[each.metric], each).values())) > 1:
            by_metric.setdefault(each.metric, []).append(each)
    return [
        _by_machine(metric, min(found, key=lambda each: each.p), len(found) - 1)
        for metric in summary.study.metrics
        if (found := by_metric.get(metric.name))
    ]


def _by_machine(metric: Metric, found: MachineDifference, more: int) -> str:
    where = join_words(
        [f"{figure} on {visible(machine)}" for machine, figure in _figures(metric, found).items()]
    )
    rest = f", and {counted(more, 'other pair')} likewise" if more else ""
    return (
        f"{visible(metric.label)} depends on the machine: {visible(found.first)} against "
        f"{visible(found.second)} is {where}{rest}. What is said of all machines together need "
        "not hold on each."
    )


def _figures(metric: Metric, found: MachineDifference) -> dict[str, str]:
    """What the one allocator is to the other on each machine, in words."""
    if found.subject == "ratio":
        return {machine: ratio(value) for machine, value in found.on.items()}
    scale = scale_for(metric.unit, [abs(value) for value in found.on.values()])
    return {
        machine: f"{scale.difference(value)} {scale.unit}".rstrip()
        for machine, value in found.on.items()
    }
