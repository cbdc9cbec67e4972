"""What a study of many parts shows, for every writer: its tables, and what its figures mean in
sentences.

Columns of a table are the allocators, the subject first and then the best mean first; rows are
workloads, or a probe's own figures. The order is that of the study's first figure; a figure of
experiments, which compare some of the allocators, has its own. Below a table of ratios stand each
allocator's geometric mean, its interval, its best and its worst workload.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from heapfit.meaning import RESIDENT_PEAK
from heapfit.records import (
    Combined,
    Estimate,
    Experiment,
    FigureDefinition,
    Metric,
    PeerComparison,
    SeriesSummary,
    StudyDefinition,
    Summary,
)
from heapfit.report.problems import doubts, problems
from heapfit.report.reading import Reading, SeriesReading
from heapfit.report.recommendation import one_line
from heapfit.report.tables import Cell, Row, Table
from heapfit.statistics.verdict import FEWEST_BLOCKS
from heapfit.study.series import parts_of
from heapfit.text import DASH, TERMINAL_DIGITS, counted, join_words, scale_for, visible

GEOMETRIC_MEAN = "geometric mean"

_DECIMALS = 3
_WORKLOAD = "workload"


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


def _columns(summary: SeriesSummary) -> list[str]:
    """Return the allocators in the order of the tables, by the first figure."""
    names = [each.name for each in summary.series.allocators]
    combined = summary.figures[0].combined if summary.figures else {}
    return _in_order(names, combined, summary.series.definition.subject)


def _in_order(names: Sequence[str], combined: Mapping[str, Combined], subject: str) -> list[str]:
    """Return the subject, then the others by their means, those without a mean last."""

    def place(name: str) -> tuple[bool, float]:
        return name != subject, combined[name].geometric_mean if name in combined else math.inf

    return sorted(names, key=place)


def ratio_tables(summary: SeriesSummary) -> list[Table]:
    """Return a table of ratios to the best peer per figure of the study."""
    definition, every = summary.series.definition, _columns(summary)
    tables = []
    for figure in summary.figures:
        order = every
        if figure.definition.experiments:  # which compare some of the allocators
            compared = dict.fromkeys(name for row in figure.ratios.values() for name in row)
            subject = definition.subject_of(figure.definition)
            order = _in_order(list(compared), figure.combined, subject)
        tables += [_ratio_table(figure, order)] if figure.ratios else []
    return tables


def probe_tables(summary: SeriesSummary) -> list[Table]:
    """Return a table per probe: its own figures and its peak memory, as medians."""
    order = _columns(summary)
    return [_probe_table(each, order) for each in summary.probes.values() if each.estimates]


def metric_tables(summary: SeriesSummary) -> list[Table]:
    """Return a table of medians for each metric that the study names, a row per workload.

    Likewise of each experiment with several workloads that no figure combines.
    """
    order = _columns(summary)
    metrics = summary.series.definition.metrics
    tables = [_metric_table(summary.workloads, name, order, "") for name in metrics]
    for title, metrics, parts in _uncombined(summary):
        compared = {each.allocator for part in parts.values() for each in part.estimates}
        named = [name for name in order if name in compared]
        tables += [_metric_table(parts, name, named, f"{title}: ") for name in metrics]
    return [table for table in tables if table.rows]


def _uncombined(summary: SeriesSummary) -> Iterator[tuple[str, list[str], dict[str, Summary]]]:
    """Yield title, metrics and parts of experiments with several workloads without a figure."""
    definition = summary.series.definition
    in_figures = {name for figure in definition.figures for name in figure.experiments}
    families: dict[str, list[Experiment]] = {}
    for each in definition.experiments:
        if each.family and each.family not in in_figures:
            families.setdefault(each.family, []).append(each)
    for parts in families.values():
        title = parts[0].title.rpartition(": ")[0] or parts[0].family
        measured = [each for each in parts if each.name in summary.experiments]
        yield (
            title,
            parts[0].metrics,
            {each.workload: summary.experiments[each.name] for each in measured},
        )


def _metric_table(
    parts: Mapping[str, Summary], metric: str, order: list[str], prefix: str
) -> Table:
    metrics = {each.name: each for part in parts.values() for each in part.study.metrics}
    label = metrics[metric].label if metric in metrics else metric
    rows = (_medians(each, metric, workload, order) for workload, each in parts.items())
    return Table(f"{prefix}{label}", _WORKLOAD, order, [row for row in rows if row])


def _ratio_table(figure: PeerComparison, order: list[str]) -> Table:
    known = figure.combined
    totals = [
        Row(label, [Cell(show(known[name])) if name in known else Cell() for name in order])
        for label, show in _TOTALS.items()
    ]
    return Table(
        title=figure.definition.title,
        corner=_WORKLOAD,
        columns=order,
        rows=[
            Row(part_label(figure.definition, part), _ratio_cells(ratios, order), part)
            for part, ratios in figure.ratios.items()
        ],
        totals=[row for row in totals if any(cell.text for cell in row.cells)],
        subject=figure.definition.subject,
    )


def _ratio_cells(ratios: Mapping[str, float], order: Sequence[str]) -> list[Cell]:
    best = min(ratios.values())
    return [
        Cell(shown_ratio(ratios[name]), is_best=ratios[name] == best) if name in ratios else Cell()
        for name in order
    ]


def _interval(combined: Combined) -> str:
    if combined.low is None:
        return ""
    return f"{shown_ratio(combined.low)}{DASH}{shown_ratio(combined.high)}"


# What stands below a table of ratios.
_TOTALS: dict[str, Callable[[Combined], str]] = {
    GEOMETRIC_MEAN: lambda each: shown_ratio(each.geometric_mean),
    "95 % interval": _interval,
    "best": lambda each: shown_ratio(each.best),
    "worst": lambda each: shown_ratio(each.worst),
}


def _probe_table(summary: Summary, order: list[str]) -> Table:
    study = summary.study
    own = [metric.name for metric in study.workload.metrics]
    wanted = dict.fromkeys([study.primary_metric, *own, RESIDENT_PEAK])
    rows = (_medians(summary, name, None, order) for name in wanted)
    title = f"{study.title} ({study.name})"
    return Table(title, "figure", order, [row for row in rows if row])


def _medians(summary: Summary, name: str, label: str | None, order: list[str]) -> Row | None:
    """A row of medians with its unit; without a `label` the metric's own. None: no figure."""
    found = {each.allocator: each for each in summary.estimates if each.metric == name}
    metric = next((each for each in summary.study.metrics if each.name == name), None)
    if metric is None or not found:
        return None
    scale = scale_for(metric.unit, [each.median for each in found.values()], TERMINAL_DIGITS)
    best = _best_medians(found, metric)
    cells = [
        Cell(scale.number(found[each].median), is_best=each in best) if each in found else Cell()
        for each in order
    ]
    return Row(f"{label or metric.label}{scale.suffix}", cells, label)


def _best_medians(found: Mapping[str, Estimate], metric: Metric) -> set[str]:
    """The allocators with the best median; none where all are the same."""
    medians = [each.median for each in found.values()]
    best = min(medians) if metric.better == "lower" else max(medians)
    names = {name for name, each in found.items() if each.median == best}
    return names if len(names) < len(found) else set()


# ---------------------------------------------------------------- in words


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
    measured = {**summary.workloads, **summary.probes, **summary.experiments}
    for name, each in measured.items():
        wrong = [*(problem.sentence for problem in problems(each)), *doubts(each)]
        lines += [f"{visible(name)}: {sentence}" for sentence in wrong]
    for name in parts_of(series):
        lines += _undone(name, measured.get(name)) if name not in summary.problems else []
    return lines


def _recommendation(reading: Reading) -> str:
    if reading.advice is not None:
        return one_line(reading.advice)
    if not reading.summary.estimates:
        return "No trial has succeeded yet."
    if reading.why_no_advice:
        return f"Nothing to recommend: {visible(reading.why_no_advice)}"
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
    interval = "" if combined.low is None else f" (95 % interval {_interval(combined)})"
    return (
        f"{visible(subject)} comes to {shown_ratio(combined.geometric_mean)} on the geometric mean"
        f"{interval}{_goal(combined.low, combined.high, goals.goal)}"
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


def _goal(low: float | None, high: float | None, goal: float | None) -> str:
    """Say whether a goal is shown to be met or missed: the whole interval is on one side of it."""
    if goal is None:
        return ""
    if high is not None and high <= goal:
        return f" (goal {goal:g}: met)"
    if low is not None and low > goal:
        return f" (goal {goal:g}: missed)"
    return f" (goal {goal:g}: inconclusive)"


def _peers(figure: PeerComparison, subject: str) -> str:
    peers = figure.definition.peers
    # A reference that is one allocator is 1 everywhere.
    left_out = {subject, *(peers if len(peers) == 1 else [])}
    others = {name: each for name, each in figure.combined.items() if name not in left_out}
    ranked = sorted(others, key=lambda name: others[name].geometric_mean)
    each = [f"{visible(name)} {shown_ratio(others[name].geometric_mean)}" for name in ranked]
    who = "others" if peers else "peers themselves"
    return f"The {who}: {', '.join(each)}." if each else ""
