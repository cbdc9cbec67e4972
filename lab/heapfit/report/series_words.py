"""What a series' figures mean, in sentences: the subject against its goals, and its peers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from heapfit.records import (
    Combined,
    FigureDefinition,
    PeerComparison,
    SeriesSummary,
    StudyDefinition,
    Summary,
)
from heapfit.report.findings_words import one_line
from heapfit.report.problems import problems
from heapfit.report.reading import Reading, SeriesReading
from heapfit.statistics.verdict import FEWEST_BLOCKS
from heapfit.text import counted, join_words, visible

GEOMETRIC_MEAN = "geometric mean"
BEST = "best"
WORST = "worst"

_DECIMALS = 3


def shown_ratio(value: float | None) -> str:
    """Return a ratio as all tables show it.

    >>> shown_ratio(1.0416)
    '1.042'
    """
    return "" if value is None or math.isnan(value) else f"{value:.{_DECIMALS}f}"


def part_label(figure: FigureDefinition, part: str) -> str:
    """Return what a figure's row is called: the workload, where a part is one of an experiment's.

    >>> figure = FigureDefinition.model_construct(experiments=["misses"])
    >>> part_label(figure, "misses.z3")
    'z3'
    """
    family, _, workload = part.partition(".")
    return workload if workload and family in figure.experiments else part


def compared_with(figure: FigureDefinition) -> str:
    """Say what the ratios of a figure are to."""
    peers = [visible(name) for name in figure.peers]
    if len(peers) == 1:
        return peers[0]
    return f"the best of {join_words(peers)}" if peers else "the best peer"


def explanation(figure: FigureDefinition, definition: StudyDefinition) -> str:
    """Say in a sentence what the numbers of a figure's table are."""
    if figure.peers:
        return (
            "Each number is an allocator's cost on a workload over that of "
            f"{compared_with(figure)}: more than 1 is worse."
        )
    subject = visible(definition.subject_of(figure))
    return (
        "Each number is an allocator's cost on a workload over the smallest cost among its peers, "
        f"that is, among all allocators but {subject}: 1 is the best peer, and more is worse."
    )


def conclusions(summary: SeriesSummary) -> list[str]:
    """Return a sentence or two per figure: the subject first, then the peers, the best first."""
    lines = []
    for figure in summary.figures:
        subject = summary.series.definition.subject_of(figure.definition)
        title = visible(figure.definition.title)
        if not figure.ratios:
            lines.append(f"{title}: no workload has a figure yet.")
            continue
        lines.append(f"{title}: {_subject(figure, subject)} {_peers(figure, subject)}".rstrip())
    return lines


def recommendations(reading: SeriesReading) -> list[tuple[str, str]]:
    """Return for each experiment its name and what it comes to, in a line.

    Of an experiment with several workloads there is none: its figures say what they come to.
    """
    definition = reading.summary.series.definition
    single = {each.name for each in definition.experiments if not each.family}
    return [
        (name, _recommendation(reading.parts[name]))
        for name in reading.summary.experiments
        if name in single
    ]


def notes(summary: SeriesSummary) -> list[str]:
    """Return what a reader of the tables must know of them."""
    lines = []
    if any(each.low is None for figure in summary.figures for each in figure.combined.values()):
        lines.append(
            f"The means have no interval: that needs {FEWEST_BLOCKS} replicates of every workload."
        )
    every = [allocator.name for allocator in summary.series.allocators]
    for figure in summary.figures:
        known = {name for row in figure.ratios.values() for name in row}
        # Of experiments, not all compare the same allocators.
        of_experiments = bool(figure.definition.experiments)
        names = [name for name in every if name in known or not of_experiments]
        lines += _without_mean(figure, names)
    return lines


def troubles(summary: SeriesSummary) -> list[str]:
    """Return everything that went wrong or is not done yet, workload by workload."""
    series = summary.series
    lines = [f"{visible(name)}: {visible(why)}" for name, why in summary.problems.items()]
    measured = {**summary.workloads, **summary.probes}
    for name, each in {**measured, **summary.experiments}.items():
        lines += [f"{visible(name)}: {problem.sentence}" for problem in problems(each)]
    for name in [*series.workloads, *series.probes]:
        lines += _undone(name, measured.get(name)) if name not in summary.problems else []
    return lines


def _recommendation(reading: Reading) -> str:
    if reading.advice is not None:
        return one_line(reading.advice)
    if not reading.summary.estimates:
        return "No trial has succeeded yet."
    return "Too few trials for a recommendation yet."


def _without_mean(figure: PeerComparison, names: list[str]) -> list[str]:
    """Say which allocators have no mean, those that lack the same workloads together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        lacking = tuple(each for each, row in figure.ratios.items() if name not in row)
        if lacking:
            together.setdefault(lacking, []).append(visible(name))
    return [
        f"{visible(figure.definition.name).capitalize()}: no mean of {join_words(without)}, "
        f"without a figure on {_listed(figure.definition, lacking)}."
        for lacking, without in together.items()
    ]


def _listed(figure: FigureDefinition, parts: Iterable[str]) -> str:
    return join_words([visible(part_label(figure, part)) for part in parts])


def _undone(name: str, summary: Summary | None) -> list[str]:
    if summary is None:
        return [f"{visible(name)}: not measured yet"]
    if summary.trials_done >= summary.trials_planned:
        return []
    planned = counted(summary.trials_planned, "trial")
    return [f"{visible(name)}: {summary.trials_done:,} of {planned} are done"]


def _subject(figure: PeerComparison, subject: str) -> str:
    combined = figure.combined.get(subject)
    if combined is None:
        return f"{visible(subject)} has no figure."
    goals = figure.definition
    return (
        f"{visible(subject)} comes to {shown_ratio(combined.geometric_mean)} on the geometric mean"
        f"{_interval(combined)}{_goal(combined.low, combined.high, goals.goal)}"
        f"{_best(combined, goals)}, "
        f"at worst to {shown_ratio(combined.worst)} on {_listed(goals, [combined.worst_workload])}"
        f"{_goal(combined.worst_low, combined.worst_high, goals.worst_goal)}."
    )


def _best(combined: Combined, figure: FigureDefinition) -> str:
    """Say it where it has a goal; what an allocator is at worst is always of interest."""
    if figure.best_goal is None:
        return ""
    on = _listed(figure, [combined.best_workload])
    goal = _goal(combined.best_low, combined.best_high, figure.best_goal)
    return f", at best to {shown_ratio(combined.best)} on {on}{goal}"


def _interval(combined: Combined) -> str:
    if combined.low is None:
        return ""
    return f" (95 % interval {shown_ratio(combined.low)} to {shown_ratio(combined.high)})"


def _goal(low: float | None, high: float | None, goal: float | None) -> str:
    """Say whether a goal is shown to be met or missed: the whole interval is on one side of it."""
    if goal is None:
        return ""
    if high is not None and high <= goal:
        return f" (goal {goal:g}: met)"
    if low is not None and low > goal:
        return f" (goal {goal:g}: missed)"
    return f" (goal {goal:g}: cannot be told)"


def _peers(figure: PeerComparison, subject: str) -> str:
    peers = figure.definition.peers
    # A reference that is one allocator is 1 everywhere.
    left_out = {subject, *(peers if len(peers) == 1 else [])}
    others = {name: each for name, each in figure.combined.items() if name not in left_out}
    ranked = sorted(others, key=lambda name: others[name].geometric_mean)
    each = [f"{visible(name)} {shown_ratio(others[name].geometric_mean)}" for name in ranked]
    who = "others" if peers else "peers themselves"
    return f"The {who}: {', '.join(each)}." if each else ""
