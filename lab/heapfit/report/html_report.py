"""The report of a study as one HTML page: what it shows, in which order. `page.py` makes it.

Few settings are laid open. Of many, each is folded until a reader opens it, only the metrics that
the study is about are drawn, and fewer points stand for the trials of a row.
"""

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from heapfit.advice.values import values_of
from heapfit.findings import Advice, Analysis
from heapfit.records import (
    Metric,
    PeerComparison,
    PublishedTable,
    SeriesSummary,
    Setting,
    Study,
    Summary,
)
from heapfit.report import figures, papers, recommendation, series
from heapfit.report.comparisons import LEGEND, letters_tables, ratio_table
from heapfit.report.conclusions import DIFFERENCES, MERE_RANGES, by_setting
from heapfit.report.interaction import Interaction, interactions
from heapfit.report.labels import explained, library_text, machine_facts
from heapfit.report.page import PAGE_FILE, FigureStore, render
from heapfit.report.pareto import pareto
from heapfit.report.problems import Problem, precision_reached, problems, remarks
from heapfit.report.reading import Reading, SeriesReading
from heapfit.report.results import MOST_OPEN_SETTINGS, Results, ShownCell
from heapfit.report.tables import Table
from heapfit.settings import factor_label, factor_title, level_text, levels_label, setting_label
from heapfit.statistics import Readings, analysed_metrics
from heapfit.statistics.observations import Integers
from heapfit.study import command_line
from heapfit.text import PAGE_DIGITS, TIMES, counted, join_words, visible

# What a browser draws and a page holds without effort, over all its strips.
_MOST_POINTS_OF_PAGE = 40_000
_FEWEST_POINTS = 10
_RATIO_DECIMALS = 3

# The trials behind the estimates, as indices of the readings, by setting and allocator.
Cells = Mapping[Setting, Mapping[str, Integers]]


@dataclass(frozen=True)
class FindingSection:
    """One metric across all settings: plots, what the verdicts say, the analysis that a paper would
    make with its letters, and what papers printed of it."""

    metric: Metric
    plots: list[Interaction]
    letters: list[Table]
    ratios: Table | None
    analysis: Analysis | None
    paper_letters: list[Table]
    published: list[PublishedTable]


@dataclass(frozen=True)
class Panel:
    """One metric in one setting: a figure, its description in words, its table.

    Where every trial gave the same there is nothing to draw, and `constant` says what it was."""

    title: str
    constant: str | None
    figure: dict[str, Any] | None
    alternative: str
    rows: list[tuple[str, ShownCell | None]]  # by allocator


def page(reading: Reading) -> str:
    """Return the page's HTML."""
    summary, results, study = reading.summary, reading.results, reading.summary.study
    readings, advice = reading.readings, reading.advice
    cells = _by_cell(readings)
    folds = len(results.settings) > MOST_OPEN_SETTINGS
    analysed = [metric for metric in results.metrics if metric.name in analysed_metrics(study)]
    drawn = analysed if folds else results.metrics
    most = _most_points(cells, len(drawn))
    return render(
        "report.html.j2",
        FigureStore(),
        summary=summary,
        study=study,
        title=study.title or study.name,
        command=shlex.join(study.command),
        folds=folds,
        factors=_factors(study),
        recommendation=recommendation,
        papers=papers,
        levels_label=levels_label,
        join_words=join_words,
        advice=advice,
        why_no_advice=reading.why_no_advice,
        compared=recommendation.against_baseline(results, advice) if advice else "",
        trade_off=_trade_off(results, advice) if advice else None,
        deployment=recommendation.deployment(study, advice),
        findings=_finding_sections(reading, analysed),
        letters_legend=LEGEND.format(study.noun),
        conclusions=by_setting(results),
        overviews=[_overview(results, each) for each in results.settings if results.metrics],
        metrics=results.metrics,
        units={m.name: results.scale(m, PAGE_DIGITS).unit for m in results.metrics},
        problems=[(each, _standard_error(each)) for each in problems(summary)],
        remarks=remarks(summary),
        precision=precision_reached(summary),
        sections=[(each, _panels(results, readings, each, cells, most)) for each in drawn],
        drift=_drift(results, readings),
        explained=explained,
        library_text=library_text,
        machine=machine_facts(study.machine),
        has_intervals=results.has_intervals,
        mere_ranges=MERE_RANGES if results.has_mere_ranges else None,
        differences=DIFFERENCES.format(results.baseline)
        if results.compared_by_difference
        else None,
        thinned=_thinned(cells, most),
        generator=f"heapfit {study.heapfit_version}",
    )


def _trade_off(results: Results, advice: Advice) -> dict[str, Any] | None:
    """The trade-off among what an advice ranks: the values of a study of one option's, of all
    others the allocators."""
    ranked = [each.name for each in values_of(results.study)] or results.allocators
    return pareto(advice, ranked, recommendation.titles(advice, results.study))


def _factors(study: Study) -> list[tuple[str, str]]:
    """The factors beyond allocators and cores with their levels, and parameters that are set."""
    varied = [(factor.name, factor.levels) for factor in study.factors]
    held = [(name, [level]) for name, level in study.parameters.items()]
    return [
        (factor_title(name), ", ".join(map(level_text, levels))) for name, levels in varied + held
    ]


def _drift(results: Results, readings: Readings) -> dict[str, Any] | None:
    primary = next((m for m in results.metrics if m.name == results.study.primary_metric), None)
    found = figures.deviations(readings, primary) if primary else None
    if primary is None or found is None or not len(found.rows):
        return None
    return {
        "figure": figures.drift(results, readings, found, primary),
        "sentence": figures.drift_sentence(found, primary),
        "label": primary.label,
    }


def _standard_error(problem: Problem) -> Markup:
    tail = problem.first.stderr_tail.strip()
    return Markup("\n").join(visible(line) for line in tail.splitlines())


# ------------------------------------------------------- the findings over all settings


def _finding_sections(reading: Reading, metrics: Sequence[Metric]) -> list[FindingSection]:
    """The sections of `metrics` that have anything to show across settings."""
    results = reading.results
    wanted = reading.advice.recommended if reading.advice else None
    made = []
    for metric in metrics:
        scale = results.scale(metric, PAGE_DIGITS)
        analysis = reading.analysis(metric.name)
        section = FindingSection(
            metric=metric,
            plots=interactions(results, metric),
            letters=letters_tables(results, metric, scale),
            ratios=ratio_table(results, metric, scale, wanted),
            analysis=analysis,
            paper_letters=papers.letters_tables(analysis, metric, scale) if analysis else [],
            published=[t for t in results.study.published if t.metric == metric.name],
        )
        if section.plots or section.letters or section.published:
            made.append(section)
    return made


# ------------------------------------------------------------------- the trials


def _by_cell(readings: Readings) -> Cells:
    """The trials that count, by setting and allocator."""
    study = readings.study
    order = np.argsort(readings.cell, kind="stable")
    cells, starts = np.unique(readings.cell[order], return_index=True)
    places = list(product((allocator.name for allocator in study.allocators), study.settings()))
    found: dict[Setting, dict[str, Integers]] = defaultdict(dict)
    for cell, rows in zip(cells.tolist(), np.split(order, starts[1:]), strict=False):
        name, setting = places[cell]
        found[setting][name] = rows
    return found


def _most_points(cells: Cells, metrics: int) -> int:
    """How many points are drawn of a row, where that many metrics are."""
    rows = max(1, metrics * sum(len(by_name) for by_name in cells.values()))
    return min(figures.MOST_POINTS, max(_FEWEST_POINTS, _MOST_POINTS_OF_PAGE // rows))


def _thinned(cells: Cells, most_points: int) -> str | None:
    """Say so when a figure shows fewer points than there are trials."""
    most = max((len(row) for rows in cells.values() for row in rows.values()), default=0)
    if most <= most_points:
        return None
    return (
        f"{most_points:,} of up to {counted(most, 'trial')} are drawn per row: the smallest, the "
        "largest and others evenly chosen. Medians and intervals are of all."
    )


def _overview(
    results: Results, setting: Setting
) -> tuple[str, list[tuple[str, list[ShownCell | None]]]]:
    """The title and the rows of a table of every allocator by every metric."""
    return setting_label(setting), [
        (name, [_cell(results, metric, setting, name) for metric in results.metrics])
        for name in results.ranked(setting, results.metrics[0])
    ]


def _panels(
    results: Results, readings: Readings, metric: Metric, cells: Cells, most: int
) -> list[Panel]:
    scale = results.scale(metric, PAGE_DIGITS)
    panels = []
    for setting in results.settings:
        if not results.estimates(setting, metric):
            continue
        rows = [(name, _cell(results, metric, setting, name)) for name in results.allocators]
        constant = results.constant(setting, metric)
        medians = ", ".join(f"{name} {cell.median}" for name, cell in rows if cell)
        title = setting_label(setting)
        figure = None
        if constant is None:
            trials = cells.get(setting, {})
            figure = figures.strip(results, readings, trials, metric, setting, most)
        panels.append(
            Panel(
                title=title,
                constant=None if constant is None else scale.text(constant),
                figure=figure,
                alternative=f"{metric.label}, {title}: every trial. Medians: {medians}.",
                rows=rows,
            )
        )
    return panels


def _cell(results: Results, metric: Metric, setting: Setting, name: str) -> ShownCell | None:
    return results.shown(setting, metric, name, PAGE_DIGITS, TIMES, _RATIO_DECIMALS)


# ------------------------------------------------------------------- a study of many parts


def series_page(reading: SeriesReading) -> str:
    """Return the page of a study of many parts.

    It links to `NAME/report.html` beside it for each workload.
    """
    summary, measured = reading.summary, reading.summary.series
    definition = measured.definition
    parts = {**summary.workloads, **summary.probes, **summary.experiments}
    return render(
        "series.html.j2",
        FigureStore(),
        title=definition.title,
        generator=f"heapfit {measured.heapfit_version}",
        series=measured,
        definition=definition,
        parts=parts,
        links={name: f"{quote(name)}/{PAGE_FILE}" for name in parts},
        conclusions=series.conclusions(summary),
        recommendations=series.recommendations(reading),
        notes=series.notes(summary),
        problems=series.troubles(summary),
        sections=_peer_sections(summary),
        explanation=series.explanation,
        probes=series.probe_tables(summary),
        metrics=series.metric_tables(summary),
        workloads=summary.workloads,
        probe_parts=summary.probes,
        experiments=summary.experiments,
        varied=_varied,
        reproduce=command_line(measured),
        explained=explained,
        library_text=library_text,
        machine=machine_facts(measured.machine),
    )


def _peer_sections(
    summary: SeriesSummary,
) -> list[tuple[PeerComparison, Table, dict[str, Any]]]:
    """Each figure of the study that has ratios, its table and its drawing."""
    names = [allocator.name for allocator in summary.series.allocators]
    subject_of = summary.series.definition.subject_of
    drawn = [figure for figure in summary.figures if figure.ratios]
    return [
        (figure, table, figures.peer_ratios(figure, names, subject_of(figure.definition)))
        for figure, table in zip(drawn, series.ratio_tables(summary), strict=True)
    ]


def _varied(summary: Summary) -> str:
    """The factors of an experiment with their levels, in a line."""
    return "; ".join(
        f"{factor_label(factor.name)}: {', '.join(map(level_text, factor.levels))}"
        for factor in summary.study.design()
    )
