"""What the analysis found and advises, as Markdown."""

from __future__ import annotations

from heapfit.findings import Advice, Analysis
from heapfit.records import Metric
from heapfit.report import findings_words as words
from heapfit.report.analysis import Findings
from heapfit.report.letters import LettersGrid, grid, legend
from heapfit.report.markdown import bullets, escape, table
from heapfit.report.results import Results
from heapfit.report.units import PAGE_DIGITS


def recommendation(findings: Findings) -> list[str]:
    """Return the recommendation with its reasons and the ranking."""
    advice = findings.advice
    if advice is None:
        return []
    return [
        f"**{escape(words.headline(advice))}.** {escape(advice.reasons)}",
        _ranking(advice),
        escape(f"Costs are ratios to the best; weights: {words.weights_text(advice)}."),
        *([bullets(advice.notes)] if advice.notes else []),
    ]


def sections(results: Results, findings: Findings) -> list[str]:
    """Return a section for each metric that was analysed."""
    return [
        part
        for metric in results.metrics
        if (analysis := findings.of(metric.name)) is not None
        for part in _section(results, metric, analysis)
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


def _section(results: Results, metric: Metric, analysis: Analysis) -> list[str]:
    scale = results.scale(metric, PAGE_DIGITS)
    unit = f" ({scale.unit})" if scale.unit else ""
    tables = [each for each in analysis.letters if each.cells]
    grids = [_grid(grid(each, metric, scale)) for each in tables]
    said = words.sentences(analysis, results.study.replicates)
    return [
        f"## {escape(metric.label + unit)}: who differs from whom",
        bullets(said),
        *([*grids, escape(legend(tables[0]))] if tables else []),
        _anova(analysis),
        escape(words.transform_sentence(analysis)),
    ]


def _grid(shown: LettersGrid) -> str:
    rows = [
        [
            escape(name),
            *(
                ("**{}** {}" if cell.leads else "{} {}").format(cell.mean, cell.letters).rstrip()
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
