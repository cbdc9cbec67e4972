"""The report as Markdown: to paste into an issue, a pull request or a wiki.

GitHub's dialect (tables). Everything that comes from the user is escaped, so that a name cannot
break a table or become markup.
"""

import shlex
from collections.abc import Sequence

from heapfit.findings import Advice, Analysis
from heapfit.records import InstalledAllocator, Machine, Metric, Setting
from heapfit.report import papers, recommendation, series
from heapfit.report.comparisons import LEGEND, letters_tables
from heapfit.report.conclusions import DIFFERENCES, MERE_RANGES, overall
from heapfit.report.labels import explained, library_text, machine_facts
from heapfit.report.problems import problems, remarks
from heapfit.report.reading import Reading, SeriesReading
from heapfit.report.results import UNDECIDED, Results
from heapfit.report.tables import Table, bullets, code, escape, markdown, markdown_table
from heapfit.settings import setting_label
from heapfit.statistics import analysed_metrics
from heapfit.study import command_line
from heapfit.text import PAGE_DIGITS, capitalised


def text(reading: Reading) -> str:
    """Return the report as Markdown text."""
    results, study, advice = reading.results, reading.results.study, reading.advice
    parts = [f"# {escape(study.title or study.name)}"]
    parts += _recommendation(results, advice) if advice else []
    if why := reading.why_no_advice:
        parts += [f"Nothing to recommend: {escape(why)}"]
    parts += [bullets(overall(results))]
    analysed = analysed_metrics(study)
    for metric in results.metrics:
        if metric.name in analysed:
            parts += _findings(results, metric, reading.analysis(metric.name))
    parts += [_table(results, setting) for setting in results.settings if results.metrics]
    troubles = [each.sentence for each in problems(reading.summary)] + remarks(reading.summary)
    if troubles:
        parts += ["## Problems", bullets(troubles)]
    if lines := recommendation.deployment(study, advice):
        parts += ["## How to use the recommended allocator", *map(code, lines)]
    parts += ["## How to repeat this", code(study.reproduce)]
    parts += ["The command under study:", code(shlex.join(study.command))]
    parts += _measured(study.allocators, study.machine)
    return "\n\n".join(parts) + "\n"


def series_text(reading: SeriesReading) -> str:
    """Return the report of a study of many parts as Markdown text."""
    summary, measured = reading.summary, reading.summary.series
    parts = [f"# {escape(measured.definition.title)}", escape(measured.definition.question)]
    lines = [f"{name}: {line}" for name, line in series.recommendations(reading)]
    parts += [bullets([*series.conclusions(summary), *lines])]
    parts += [_section(each) for each in series.ratio_tables(summary)]
    parts += [bullets(series.notes(summary))] if series.notes(summary) else []
    parts += [_section(each) for each in series.probe_tables(summary)]
    parts += [_section(each) for each in series.metric_tables(summary)]
    if series.troubles(summary):
        parts += ["## Problems", bullets(series.troubles(summary))]
    parts += ["## How to repeat this", code(command_line(measured))]
    parts += _measured(measured.allocators, measured.machine)
    return "\n\n".join(parts) + "\n"


def _measured(allocators: Sequence[InstalledAllocator], machine: Machine) -> list[str]:
    """The sections that say what was measured, and where."""
    rows = [
        [each.name, explained(each), each.version, library_text(each), each.sha256 or ""]
        for each in allocators
    ]
    head = ["allocator", "what", "version", "library", "SHA-256"]
    table = markdown_table(head, [list(map(escape, row)) for row in rows], are_words=True)
    facts = [f"{label}: {value}" for label, value in machine_facts(machine)]
    return ["## Allocators", table, "## Machine", bullets(facts)]


def _section(table: Table) -> str:
    return f"## {escape(table.title)}\n\n{markdown(table)}"


def _recommendation(results: Results, advice: Advice) -> list[str]:
    """The recommendation with its reasons and the ranking."""
    reasons = recommendation.against_baseline(results, advice), recommendation.reasons_of(advice)
    weights = f"weights: {recommendation.weights_text(advice)}"
    unbeaten = capitalised(recommendation.UNBEATEN)
    return [
        f"**{escape(recommendation.headline(advice))}.** {escape(' '.join(filter(None, reasons)))}",
        markdown(recommendation.ranking(advice, results.study)),
        escape(f"Costs are ratios to the best; {weights}. {unbeaten}."),
        *([bullets(advice.notes)] if advice.notes else []),
    ]


def _findings(results: Results, metric: Metric, analysis: Analysis | None) -> list[str]:
    """The section of a metric that was analysed; nothing where nothing is found."""
    scale = results.scale(metric, PAGE_DIGITS)
    shown = [_letters(each) for each in letters_tables(results, metric, scale)]
    parts = [*shown, escape(LEGEND.format(results.study.noun))] if shown else []
    if analysis:
        of_paper = [_letters(each) for each in papers.letters_tables(analysis, metric, scale)]
        parts += [
            f"### {escape(metric.label)} as papers do it",
            bullets(papers.sentences(analysis, results.study.replicates)),
            *([*of_paper, escape(papers.legend(analysis))] if of_paper else []),
            markdown(papers.anova_table(analysis)),
            escape(papers.transform_sentence(analysis)),
        ]
    title = f"{metric.label}{scale.suffix}"
    return [f"## {escape(title)}: who differs from whom", *parts] if parts else []


def _letters(table: Table) -> str:
    return f"{escape(table.title)}\n\n{markdown(table)}" if table.title else markdown(table)


def _table(results: Results, setting: Setting) -> str:
    metrics = results.metrics
    titles = [f"{m.label}{results.scale(m, PAGE_DIGITS).suffix}".strip() for m in metrics]
    rows = [
        [escape(name), *(_cell(results, setting, m, name) for m in metrics)]
        for name in results.ranked(setting, metrics[0])
    ]
    made = markdown_table([results.study.noun, *map(escape, titles)], rows)
    undecided = "no difference is shown" if results.has_intervals else "there is no interval"
    caption = (
        "Median, its 95 % interval where there are several trials, and the ratio of means to "
        f"{escape(results.baseline)}, with {escape(UNDECIDED)} where {undecided}; the "
        "ratio of the best mean of each column in bold."
    )
    if results.compared_by_difference:
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
