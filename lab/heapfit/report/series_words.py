"""What a series' figures mean, in sentences: the subject against its goals, and its peers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from heapfit.records import Combined, PeerComparison, SeriesSummary, Summary
from heapfit.report.analysis import Findings
from heapfit.report.findings_words import one_line
from heapfit.report.problems import problems
from heapfit.report.results import FEWEST_TRIALS
from heapfit.report.text import counted, join_words, visible

GEOMETRIC_MEAN = "geometric mean"
WORST = "worst"

_DECIMALS = 3


def shown_ratio(value: float | None) -> str:
    """Return a ratio as all tables show it.

    >>> shown_ratio(1.0416)
    '1.042'
    """
    return "" if value is None or math.isnan(value) else f"{value:.{_DECIMALS}f}"


def conclusions(summary: SeriesSummary) -> list[str]:
    """Return a sentence or two per figure: the subject first, then the peers, the best first."""
    subject = summary.series.definition.subject
    lines = []
    for figure in summary.figures:
        title = visible(figure.definition.title)
        if not figure.ratios:
            lines.append(f"{title}: no workload has a figure yet.")
            continue
        lines.append(f"{title}: {_subject(figure, subject)} {_peers(figure, subject)}".rstrip())
    return lines


def recommendations(
    summary: SeriesSummary, findings: Mapping[str, Findings]
) -> list[tuple[str, str]]:
    """Return for each experiment its name and what it comes to, in a line."""
    return [
        (name, _recommendation(each, findings.get(name)))
        for name, each in summary.experiments.items()
    ]


def notes(summary: SeriesSummary) -> list[str]:
    """Return what a reader of the tables must know of them."""
    lines = []
    if any(each.low is None for figure in summary.figures for each in figure.combined.values()):
        lines.append(
            f"The means have no interval: that needs {FEWEST_TRIALS} replicates of every workload."
        )
    names = [allocator.name for allocator in summary.series.allocators]
    for figure in summary.figures:
        lines += _without_mean(figure, names)
    return lines


def troubles(summary: SeriesSummary) -> list[str]:
    """Return everything that went wrong or is not done yet, workload by workload."""
    series = summary.series
    lines = [f"{visible(name)}: {visible(why)}" for name, why in summary.problems.items()]
    measured = {**summary.workloads, **summary.probes}
    for name, each in measured.items():
        lines += [f"{visible(name)}: {problem.sentence}" for problem in problems(each)]
    for name in [*series.workloads, *series.probes]:
        lines += _undone(name, measured.get(name)) if name not in summary.problems else []
    return lines


def _recommendation(summary: Summary, findings: Findings | None) -> str:
    if findings is not None and findings.advice is not None:
        return one_line(findings.advice)
    if not summary.estimates:
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
        f"without a figure on {join_words([visible(each) for each in lacking])}."
        for lacking, without in together.items()
    ]


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
        f"{_interval(combined)}{_goal(combined.geometric_mean, goals.goal)}, "
        f"at worst to {shown_ratio(combined.worst)} on {visible(combined.worst_workload)}"
        f"{_goal(combined.worst, goals.worst_goal)}."
    )


def _interval(combined: Combined) -> str:
    if combined.low is None:
        return ""
    return f" (95 % interval {shown_ratio(combined.low)} to {shown_ratio(combined.high)})"


def _goal(ratio: float, goal: float | None) -> str:
    if goal is None:
        return ""
    return f" (goal {goal:g}: {'met' if ratio <= goal else 'missed'})"


def _peers(figure: PeerComparison, subject: str) -> str:
    peers = {name: each for name, each in figure.combined.items() if name != subject}
    ranked = sorted(peers, key=lambda name: peers[name].geometric_mean)
    each = [f"{visible(name)} {shown_ratio(peers[name].geometric_mean)}" for name in ranked]
    return f"The peers themselves: {', '.join(each)}." if each else ""
