"""The report as Markdown: to paste into an issue, a pull request or a wiki.

GitHub's dialect (tables). Everything that comes from the user is escaped, so that a name cannot
break a table or become markup.
"""

from __future__ import annotations

import shlex

from heapfit.findings import Advice, Analysis
from heapfit.records import Metric, Setting, Study
from heapfit.report import findings_words as words
from heapfit.report.changes import against_baseline
from heapfit.report.conclusions import DIFFERENCES, MERE_RANGES, UNDECIDED, overall
from heapfit.report.deployment import deployment
from heapfit.report.described import explained, library_text, machine_facts
from heapfit.report.letters import LEGEND, LettersGrid, grids, legend, paper_grids
from heapfit.report.markdown import bullets, code, escape, table
from heapfit.report.problems import problems, remarks
from heapfit.report.reading import Reading
from heapfit.report.results import Results
from heapfit.report.settings import setting_label
from heapfit.statistics import analysed_metrics
from heapfit.text import PAGE_DIGITS, capitalised


def text(reading: Reading) -> str:
    """Return the report as Markdown text."""
    results, study, advice = reading.results, reading.results.study, reading.advice
    parts = [f"# {escape(study.title or study.name)}"]
    parts += _recommendation(results, advice) if advice else []
    parts += [bullets(overall(results))]
    analysed = analysed_metrics(study)
    for metric in results.metrics:
        if metric.name in analysed:
            parts += _findings(results, metric, reading.analysis(metric.name))
    parts += [_table(results, setting) for setting in results.settings if results.metrics]
    troubles = [each.sentence for each in problems(reading.summary)] + remarks(reading.summary)
    if troubles:
        parts += ["## Problems", bullets(troubles)]
    if lines := deployment(study, advice):
        parts += ["## How to run what is recommended", *map(code, lines)]
    parts += ["## How to repeat this", code(study.reproduce)]
    parts += ["The command under study:", code(shlex.join(study.command))]
    facts = [f"{label}: {value}" for label, value in machine_facts(study.machine)]
    parts += ["## Allocators", _allocators(study), "## Machine", bullets(facts)]
    return "\n\n".join(parts) + "\n"


def _recommendation(results: Results, advice: Advice) -> list[str]:
    """The recommendation with its reasons and the ranking."""
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
    unbeaten = capitalised(words.UNBEATEN)
    said = " ".join(filter(None, (against_baseline(results, advice), words.reasons_of(advice))))
    return [
        f"**{escape(words.headline(advice))}.** {escape(said)}",
        table(["allocator", "score", *map(escape, costs), ""], rows),
        escape(f"Costs are ratios to the best; weights: {words.weights_text(advice)}. {unbeaten}."),
        *([bullets(advice.notes)] if advice.notes else []),
    ]


def _findings(results: Results, metric: Metric, analysis: Analysis | None) -> list[str]:
    """The section of a metric that was analysed; nothing where nothing is found."""
    scale = results.scale(metric, PAGE_DIGITS)
    shown = [_grid(each) for each in grids(results, metric, scale)]
    parts = [*shown, escape(LEGEND.format(results.study.noun))] if shown else []
    if analysis:
        of_paper = [_grid(each) for each in paper_grids(analysis, metric, scale)]
        parts += [
            f"### {escape(metric.label)} as papers do it",
            bullets(words.sentences(analysis, results.study.replicates)),
            *([*of_paper, escape(legend(analysis))] if of_paper else []),
            _anova(analysis),
            escape(words.transform_sentence(analysis)),
        ]
    title = f"{metric.label}{scale.suffix}"
    return [f"## {escape(title)}: who differs from whom", *parts] if parts else []


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
            words.f_text(row),
            escape(words.p_text(row.p, bare=True)),
            words.eta_text(row),
        ]
        for row in analysis.anova
    ]
    return table(["source", "DF", "SS", "F", "p", "partial η²"], rows)


def _table(results: Results, setting: Setting) -> str:
    metrics = results.metrics
    titles = [f"{m.label}{results.scale(m, PAGE_DIGITS).suffix}".strip() for m in metrics]
    rows = [
        [escape(name), *(_cell(results, setting, m, name) for m in metrics)]
        for name in results.ranked(setting, metrics[0])
    ]
    made = table([results.study.noun, *map(escape, titles)], rows)
    caption = (
        "Median, its 95 % interval where there are several trials, and the ratio of means to "
        f"{escape(results.baseline)}, with {escape(UNDECIDED)} where no difference is shown; the "
        "ratio of the best mean of each column in bold."
    )
    if results.has_differences:
        caption += f" {escape(DIFFERENCES.format(results.baseline))}"
    if results.has_mere_ranges:
        caption += f" {escape(MERE_RANGES)}"
    return f"## {escape(setting_label(setting))}\n\n{made}\n\n{caption}"


def _cell(results: Results, setting: Setting, metric: Metric, name: str) -> str:
    cell = results.shown(setting, metric, name, PAGE_DIGITS, "x", 2)
    if cell is None:
        return "n/a"
    interval = f"({cell.low} to {cell.high})" if cell.estimate.n > 1 else ""
    mark = UNDECIDED if cell.undecided else ""
    relative = escape(mark + cell.relative) if cell.relative else "0" if cell.is_best else ""
    relative = f"**{relative}**" if cell.is_best else relative
    return " ".join(filter(None, (cell.median, interval, relative)))


def _allocators(study: Study) -> str:
    rows = [
        [each.name, explained(each), each.version, library_text(each), each.sha256 or ""]
        for each in study.allocators
    ]
    head = ["allocator", "what", "version", "library", "SHA-256"]
    return table(head, [list(map(escape, row)) for row in rows], are_words=True)
