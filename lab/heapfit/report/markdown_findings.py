"""What the analysis found and advises, as Markdown."""

from __future__ import annotations

from heapfit.findings import Advice, Analysis
from heapfit.records import Metric
from heapfit.report import findings_words as words
from heapfit.report.analysis import Findings
from heapfit.report.letters import LEGEND, LettersGrid, grid, grids, legend
from heapfit.report.markdown import bullets, escape, table
from heapfit.report.results import Results
from heapfit.report.units import PAGE_DIGITS
from heapfit.statistics import analysed_metrics
from heapfit.text import capitalised


def recommendation(findings: Findings) -> list[str]:
    """Return the recommendation with its reasons and the ranking."""
    advice = findings.advice
    if advice is None:
        return []
    unbeaten = capitalised(words.UNBEATEN)
    return [
        f"**{escape(words.headline(advice))}.** {escape(advice.reasons)}",
        _ranking(advice),
        escape(f"Costs are ratios to the best; weights: {words.weights_text(advice)}. {unbeaten}."),
        *([bullets(advice.notes)] if advice.notes else []),
    ]


def sections(results: Results, findings: Findings) -> list[str]:
    """Return a section for each metric that was analysed."""
    analysed = analysed_metrics(results.study)
    return [
        part
        for metric in results.metrics
        if metric.name in analysed
        for part in _section(results, metric, findings.of(metric.name))
    ]


def _ranking(advice: Advice) -> str:
    costs = words.costs_of(advice)
    rows = [
        [
            escape(each.allocator),
            f"{each.score:.3f}",
            *(words.cost_text(each, cost) for cost in costs),
            words.standing_notes(advice, each),
        ]
        for each in advice.standings
    ]
    return table(["allocator", "score", *map(escape, costs), ""], rows)


def _section(results: Results, metric: Metric, analysis: Analysis | None) -> list[str]:
    scale = results.scale(metric, PAGE_DIGITS)
    unit = f" ({scale.unit})" if scale.unit else ""
    shown = [_grid(each) for each in grids(results, metric, scale)]
    parts = [f"## {escape(metric.label + unit)}: who differs from whom"]
    parts += [*shown, escape(LEGEND)] if shown else []
    parts += _as_papers(results, metric, analysis) if analysis else []
    return parts if len(parts) > 1 else []


def _as_papers(results: Results, metric: Metric, analysis: Analysis) -> list[str]:
    scale = results.scale(metric, PAGE_DIGITS)
    tables = [each for each in analysis.letters if each.cells]
    shown = [_grid(grid(each, metric, scale)) for each in tables]
    return [
        f"### {escape(metric.label)} as the paper did it",
        bullets(words.sentences(analysis, results.study.replicates)),
        *([*shown, escape(legend(tables[0]))] if tables else []),
        _anova(analysis),
        escape(words.transform_sentence(analysis)),
    ]


def _grid(shown: LettersGrid) -> str:
    rows = [
        [
            escape(name),
            *(
                ("**{}** {}" if cell.leads else "{} {}").format(cell.figure, cell.letters).rstrip()
                if cell
                else "none"
                for cell in cells
            ),
        ]
        for name, cells in shown.rows
    ]
    made = table([escape(text) for text in (shown.corner, *shown.columns)], rows)
    return f"{escape(shown.title)}\n\n{made}" if shown.title else made


def _anova(analysis: Analysis) -> str:
    rows = [
        [
            escape(words.source_label(row.source)),
            f"{row.df:g}",
            f"{row.sum_sq:.4g}",
            "" if row.f is None else f"{row.f:,.2f}",
            escape(words.p_text(row.p, bare=True)),
            "" if row.eta_sq is None else f"{row.eta_sq:.3f}",
        ]
        for row in analysis.anova
    ]
    return table(["source", "DF", "SS", "F", "p", "partial η²"], rows)
