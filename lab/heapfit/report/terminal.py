"""The answer in a terminal: the recommendation, a table per setting, what went wrong.

Nothing is said by colour alone, so that a log file, a monochrome terminal and a reader who does
not see colours get the same answer. A narrow terminal gets fewer metrics, never torn numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from heapfit.findings import Advice, Analysis
from heapfit.records import Metric, Setting, Summary
from heapfit.report import findings_words as words
from heapfit.report.conclusions import (
    DIFFERENCES,
    MERE_RANGES,
    NOTHING,
    UNDECIDED,
    alone,
    conclude,
    headline_metrics,
)
from heapfit.report.deployment import DEPLOYMENT, deployment
from heapfit.report.described import explanations
from heapfit.report.letters import LEGEND, LettersEntry, LettersGrid, grids
from heapfit.report.problems import precision_reached, problems, remarks
from heapfit.report.reading import Findings
from heapfit.report.results import MOST_OPEN_SETTINGS, Results
from heapfit.report.settings import setting_label
from heapfit.report.terminal_text import (
    INDENT,
    NO_FIGURE,
    ascii_only,
    encodable,
    fitting,
    new_table,
    print_line,
    print_problems,
    tables,
)
from heapfit.statistics import analysed_metrics
from heapfit.text import DASH, TERMINAL_DIGITS, capitalised, counted, join_words, visible

BEST = "*"
_LONGEST_NAME = 24
_RATIO_DECIMALS = 2
_RELATIVE_WIDTH = 6  # with a mark
_NO_DIFFERENCE = "0"  # of the baseline from itself
# More letters tables than this of one metric scroll the answer away.
_MOST_TABLES = 3


@dataclass(frozen=True)
class _Column:
    """One metric in one setting, formatted before it is known whether it fits."""

    metric: Metric
    header: str
    cells: dict[str, Text]

    @property
    def width(self) -> int:
        texts = [self.header, *(cell.plain for cell in self.cells.values())]
        return max(cell_len(line) for text in texts for line in text.split("\n"))


def render(summary: Summary, console: Console, findings: Findings | None = None) -> None:
    """Print the summary as wide as `console` is: recommendation, tables, conclusions, problems."""
    results = Results(summary)
    findings = findings or Findings()
    if findings.advice:
        _print_recommendation(findings.advice, console)
    if said := alone(results):
        console.print()
        for line in said:
            print_line(console, line, style="bold")
    if len(results.settings) > 1:
        _print_analyses(results, findings, console)
    if len(results.settings) <= MOST_OPEN_SETTINGS or not findings.advice:
        _print_settings(results, findings, console)
    _print_variants(summary, console)
    troubles = [problem.sentence for problem in problems(summary)] + remarks(summary)
    print_problems(console, troubles)
    _print_deployment(summary, findings, console)


def _print_deployment(summary: Summary, findings: Findings, console: Console) -> None:
    """Print how to run what is recommended, in lines that are not broken: they are for a shell."""
    lines = deployment(summary.study, findings.advice)
    if lines:
        console.print()
        print_line(console, DEPLOYMENT, style="bold")
    for line in lines:
        console.print(Text(f"{INDENT}{encodable(line, console)}"), soft_wrap=True)


def _print_variants(summary: Summary, console: Console) -> None:
    lines = explanations(summary.study.allocators)
    if lines:
        console.print()
    for line in lines:
        print_line(console, line, style="dim")


def _print_settings(results: Results, findings: Findings, console: Console) -> None:
    """Print a table for each setting with the conclusions from it."""
    hidden: list[str] = []
    for setting in results.settings if results.metrics else []:
        hidden = _print_table(results, setting, console)
        for metric in [] if alone(results) else headline_metrics(results):
            said = conclude(results, setting, metric)
            print_line(console, said, style="bold")
    if results.metrics:
        _print_legend(results, hidden, console)
    else:
        print_line(console, NOTHING, style="bold")


def _print_table(results: Results, setting: Setting, console: Console) -> list[str]:
    """Print one table and return the labels of the metrics for which there was no room."""
    order = results.ranked(setting, results.metrics[0])
    columns = [_column(results, setting, metric, console) for metric in results.metrics]
    names = {name: _name(results, name, console) for name in order}
    used = max(cell_len(line) for text in names.values() for line in text.plain.split("\n"))
    shown = columns[: fitting([each.width for each in columns], console.width - used)]

    title = f"{visible(results.study.title or results.study.name)}, {setting_label(setting)}"
    table = new_table()
    table.add_column("")
    for column in shown:
        table.add_column(Text(column.header), justify="right", no_wrap=True)
    for name in order:
        table.add_row(names[name], *(column.cells[name] for column in shown))
    console.print()
    print_line(console, title, style="bold")
    console.print()
    console.print(table)
    console.print()
    return [visible(column.metric.label) for column in columns[len(shown) :]]


def _column(results: Results, setting: Setting, metric: Metric, console: Console) -> _Column:
    unit = results.scale(metric, TERMINAL_DIGITS).unit
    header = encodable(f"{_two_lines(visible(metric.label))}\n{visible(unit)}", console)
    cells = {name: _cell(results, setting, metric, name, console) for name in results.allocators}
    return _Column(metric, header, cells)


def _two_lines(label: str) -> str:
    """Break a label near its middle, so that a header is no wider than the numbers below it."""
    places = [index for index, character in enumerate(label) if character == " "]
    if not places:
        return f"\n{label}"
    middle = min(places, key=lambda index: abs(index - len(label) / 2))
    return f"{label[:middle]}\n{label[middle + 1 :]}"


def _cell(results: Results, setting: Setting, metric: Metric, name: str, console: Console) -> Text:
    """Median, and ratio or difference, which the mark of the best mean belongs to; below them the
    interval of the median."""
    shown = results.shown(setting, metric, name, TERMINAL_DIGITS, "x", _RATIO_DECIMALS)
    if shown is None:
        return Text(NO_FIGURE, style="dim")
    style = "bold" if shown.is_best else ""
    cell = Text()
    cell.append(shown.median, style=style)
    relative = shown.relative or (_NO_DIFFERENCE if shown.is_best else "")
    if relative:
        marks = (BEST if shown.is_best else "") + (UNDECIDED if shown.undecided else "")
        cell.append(f" {marks + relative:>{_RELATIVE_WIDTH}}", style=style)
    if shown.estimate.low < shown.estimate.high:
        between = f"{shown.low}{DASH}{shown.high}"
        cell.append(f"\n{encodable(between, console)}", style="dim")
    return cell


def _name(results: Results, name: str, console: Console) -> Text:
    shown = encodable(visible(name), console)
    if cell_len(shown) > _LONGEST_NAME:
        shown = shown[: _LONGEST_NAME - 1] + ("~" if ascii_only(console) else "…")
    text = Text(shown, no_wrap=True)
    if name == results.baseline:
        text.append("\nbaseline", style="dim")
    return text


def _print_legend(results: Results, hidden: list[str], console: Console) -> None:
    baseline = visible(results.baseline)
    counts = [results.trials_per_cell(setting, results.metrics[0]) for setting in results.settings]
    fewest, most = min(c[0] for c in counts), max(c[1] for c in counts)
    trials = counted(most, "trial") if fewest == most else f"{fewest} to {counted(most, 'trial')}"
    interval = ", and below it the median's 95 % interval" if most > 1 else ""
    why = ": its 95 % interval includes equality" if results.has_intervals else ""
    console.print()
    for line in (
        f"Each cell: the median of {trials}, and the ratio of means to {baseline}{interval}.",
        *([DIFFERENCES.format(baseline)] if results.has_differences else []),
        f"{BEST} beside a ratio or difference: the best mean of its column",
        f"{UNDECIDED} no difference from {baseline} is shown{why}",
    ):
        print_line(console, line, style="dim")
    if reached := precision_reached(results.summary):
        print_line(console, reached, style="dim")
    if results.has_mere_ranges:
        print_line(console, MERE_RANGES, style="dim")
    if hidden:
        print_line(
            console,
            f"{counted(len(hidden), 'more metric')} in the report or a wider terminal: "
            f"{join_words(hidden)}.",
            style="dim",
        )


# --------------------------------------------------- the findings over all settings


def _print_recommendation(advice: Advice, console: Console) -> None:
    """Print what is recommended, why, and the ranking."""
    console.print()
    print_line(console, words.headline(advice), style="bold")
    print_line(console, words.reasons_of(advice))
    console.print()
    costs = words.costs_of(advice)
    table = new_table()
    table.add_column("")
    for header in ("score", *costs):
        table.add_column(Text(encodable(visible(header), console)), justify="right", no_wrap=True)
    table.add_column("")
    for each in advice.standings:
        figures = [f"{each.score:.3f}", *(words.cost_text(each, cost) for cost in costs)]
        cells = [visible(each.allocator), *figures, words.standing_notes(advice, each)]
        style = "bold" if each.allocator == advice.recommended else ""
        table.add_row(*(Text(encodable(cell, console), style=style) for cell in cells))
    console.print(table)
    note = f"Costs are ratios to the best; weights: {words.weights_text(advice)}."
    for line in (note, f"{capitalised(words.UNBEATEN)}.", *map(visible, advice.notes)):
        print_line(console, line, style="dim")


def _print_analyses(results: Results, findings: Findings, console: Console) -> None:
    """Print of every analysed metric who differs from whom, and what a paper would say of it."""
    analysed = analysed_metrics(results.study)
    any_letters = False
    for metric in results.metrics:
        if metric.name not in analysed:
            continue
        shown = grids(results, metric, results.scale(metric, TERMINAL_DIGITS))
        analysis = findings.of(metric.name)
        if shown:
            _print_metric(results, metric, shown, console)
        elif analysis:  # of one allocator
            console.print()
            print_line(console, visible(metric.label), style="bold")
        if analysis and (shown or len(results.allocators) == 1):
            _print_analysis(results, analysis, console)
        any_letters = any_letters or bool(shown)
    if any_letters:
        print_line(console, LEGEND.format(results.study.noun), style="dim")
        print_line(console, f"{BEST} no other of its column is shown to be better", style="dim")


def _print_metric(
    results: Results, metric: Metric, shown: list[LettersGrid], console: Console
) -> None:
    scale = results.scale(metric, TERMINAL_DIGITS)
    console.print()
    print_line(
        console, visible(f"{metric.label}{scale.suffix}: who differs from whom"), style="bold"
    )
    for each in shown[:_MOST_TABLES]:
        _print_grid(each, console)
    more = len(shown) - _MOST_TABLES
    if more > 0:
        print_line(console, f"{counted(more, 'more such table')} in the report.", style="dim")
        console.print()


def _print_analysis(results: Results, analysis: Analysis, console: Console) -> None:
    print_line(
        console, "As papers do it, by an analysis of variance (the report has more):", style="dim"
    )
    said = words.sentences(analysis, results.study.replicates)
    for line in [*said, *words.anova_short(analysis)]:
        print_line(console, f"{INDENT}{line}", style="dim")
    console.print()


def _print_grid(shown: LettersGrid, console: Console) -> None:
    """Print the table; what is wider than the terminal is continued below."""
    console.print()
    if shown.title:
        print_line(console, shown.title)
    rows = [(name, list(map(_lettered, cells))) for name, cells in shown.rows]
    for part in tables(shown.corner, shown.columns, rows, [], console):
        console.print(part)
        console.print()


def _lettered(cell: LettersEntry | None) -> Text:
    if cell is None:
        return Text(NO_FIGURE)
    text = f"{cell.figure}{BEST if cell.leads else ' '} {cell.letters}".rstrip()
    return Text(text, style="bold" if cell.leads else "")
