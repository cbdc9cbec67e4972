"""What the page shows of the findings: the recommendation, and each analysed metric."""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.findings import Advice, Analysis, AnovaRow, AssumptionCheck
from heapfit.records import Metric, PublishedTable
from heapfit.report import findings_words as words
from heapfit.report.analysis import Findings
from heapfit.report.differences import RatioTable, ratios_to
from heapfit.report.interaction import interactions
from heapfit.report.letters import LEGEND, LettersGrid, grid, grids, legend
from heapfit.report.page import FigureStore
from heapfit.report.pareto import pareto
from heapfit.report.results import Results
from heapfit.report.settings import levels_label
from heapfit.report.units import PAGE_DIGITS
from heapfit.text import join_words


@dataclass(frozen=True)
class AdviceView:
    """The recommendation with its ranking."""

    headline: str
    reasons: str
    weights: str
    costs: list[str]
    standings: list[tuple[str, str, list[str], str, bool]]
    winners: list[tuple[str, str, str]]
    notes: list[str]
    figure: str | None


@dataclass(frozen=True)
class PlotsView:
    """The interaction plots over one factor: titles and the figures' ids."""

    across: str
    same_axis: bool
    plots: list[tuple[str, str]]


@dataclass(frozen=True)
class AnovaLine:
    """A row of the analysis of variance as it is shown."""

    source: str
    df: str
    sum_sq: str
    mean_sq: str
    f: str
    p: str
    eta: str
    is_effect: bool


@dataclass(frozen=True)
class AnalysisView:
    """A metric's analysis as papers make it; all of it in words first."""

    sentences: list[str]
    legend: str
    grids: list[LettersGrid]
    anova: list[AnovaLine]
    transform: str
    scale: str
    checks: list[tuple[str, str, str]]


@dataclass(frozen=True)
class FindingSection:
    """One metric across all settings: plots, what the verdicts say, the analysis that a paper would
    make, and what papers printed of it."""

    metric: Metric
    anchor: str
    unit: str
    is_primary: bool
    plots: list[PlotsView]
    legend: str
    grids: list[LettersGrid]
    ratios: RatioTable | None
    analysis: AnalysisView | None
    published: list[PublishedTable]


def advice_view(advice: Advice | None, results: Results, store: FigureStore) -> AdviceView | None:
    if advice is None:
        return None
    costs = words.costs_of(advice)
    figure = pareto(advice, results.allocators)
    return AdviceView(
        headline=words.headline(advice),
        reasons=advice.reasons,
        weights=words.weights_text(advice),
        costs=costs,
        standings=[
            (
                each.allocator,
                f"{each.score:.3f}",
                [words.cost_text(each, cost) for cost in costs],
                words.standing_notes(advice, each),
                each.allocator == advice.recommended,
            )
            for each in advice.standings
        ],
        winners=[
            (levels_label(each.at.items()), each.best, join_words(each.tied))
            for each in advice.by_setting
        ],
        notes=advice.notes,
        figure=None if figure is None else store.add(figure),
    )


def finding_sections(
    results: Results, findings: Findings, metrics: list[str], store: FigureStore
) -> list[FindingSection]:
    """Return the sections of `metrics` (names) that have anything to show across settings."""
    made = [
        _section(results, metric, findings, store)
        for metric in results.metrics
        if metric.name in metrics
    ]
    return [each for each in made if each.plots or each.grids or each.published]


def _section(
    results: Results, metric: Metric, findings: Findings, store: FigureStore
) -> FindingSection:
    analysis = findings.of(metric.name)
    wanted = findings.advice.recommended if findings.advice else None
    scale = results.scale(metric, PAGE_DIGITS)
    return FindingSection(
        metric=metric,
        anchor=f"finding-{results.metrics.index(metric) + 1}",
        unit=scale.unit,
        is_primary=metric.name == results.study.primary_metric,
        plots=_plots(results, metric, store),
        legend=LEGEND,
        grids=grids(results, metric, scale),
        ratios=ratios_to(results, metric, scale, wanted),
        analysis=None if analysis is None else _analysis(results, metric, analysis),
        published=[t for t in results.study.published if t.metric == metric.name],
    )


def _plots(results: Results, metric: Metric, store: FigureStore) -> list[PlotsView]:
    return [
        PlotsView(
            each.across,
            each.same_axis,
            [(plot.title, store.add(plot.figure)) for plot in each.plots],
        )
        for each in interactions(results, metric)
    ]


def _analysis(results: Results, metric: Metric, analysis: Analysis) -> AnalysisView:
    scale = results.scale(metric, PAGE_DIGITS)
    tables = [table for table in analysis.letters if table.cells]
    return AnalysisView(
        sentences=words.sentences(analysis, results.study.replicates),
        legend=legend(tables[0]) if tables else "",
        grids=[grid(table, metric, scale) for table in tables],
        anova=[_line(row) for row in analysis.anova],
        transform=words.transform_sentence(analysis),
        scale=analysis.transform.name,
        checks=_checks(analysis),
    )


def _checks(analysis: Analysis) -> list[tuple[str, str, str]]:
    """Each assumption: what it says, the test as measured, the test on the scale of the analysis.

    The last is empty where both are the same scale."""
    before = {check.assumption: check for check in analysis.checks_before}
    after = {check.assumption: check for check in analysis.checks}
    transformed = analysis.transform.exponent != 1
    return [
        (words.ASSUMPTIONS[name], _said(before.get(name)), _said(after.get(name)) * transformed)
        for name in dict.fromkeys([*before, *after])
    ]


def _said(check: AssumptionCheck | None) -> str:
    return words.check_sentence(check) if check else ""


def _line(row: AnovaRow) -> AnovaLine:
    interval = ""
    if row.eta_sq is not None and row.eta_sq_low is not None and row.eta_sq_high is not None:
        interval = f" ({row.eta_sq_low:.3f} to {row.eta_sq_high:.3f})"
    has_mean = row.df > 0 and row.source != "total"
    return AnovaLine(
        source=words.source_label(row.source),
        df=f"{row.df:g}",
        sum_sq=f"{row.sum_sq:.4g}",
        mean_sq=f"{row.sum_sq / row.df:.4g}" if has_mean else "",
        f="" if row.f is None else f"{row.f:,.2f}",
        p=words.p_text(row.p, bare=True),
        eta="" if row.eta_sq is None else f"{row.eta_sq:.3f}{interval}",
        is_effect=words.is_significant(row),
    )
