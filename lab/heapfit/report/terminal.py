"""The answer in a terminal: the recommendation, a table per setting, what went wrong.

Nothing is said by colour alone, so that a log file, a monochrome terminal and a reader who does
not see colours get the same answer. A narrow terminal gets fewer metrics, never torn numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from heapfit.records import Metric, Setting, Summary
from heapfit.report.analysis import Findings
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
from heapfit.report.design import precision_reached
from heapfit.report.problems import problems, remarks
from heapfit.report.results import MOST_OPEN_SETTINGS, Results
from heapfit.report.settings import setting_label
from heapfit.report.terminal_findings import print_analyses, print_recommendation
from heapfit.report.terminal_text import (
    COLUMN_GAP,
    INDENT,
    NO_FIGURE,
    TABLE_BOX,
    ascii_only,
    encodable,
    print_line,
)
from heapfit.report.units import DASH, TERMINAL_DIGITS
from heapfit.report.variants import explanations
from heapfit.text import counted, join_words, visible

BEST = "*"
_LONGEST_NAME = 24
_RATIO_DECIMALS = 2


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
        print_recommendation(findings.advice, console)
    if said := alone(results):
        console.print()
        for line in said:
            print_line(console, line, style="bold")
    if len(results.settings) > 1:
        print_analyses(results, findings, console)
    if len(results.settings) <= MOST_OPEN_SETTINGS or not findings.advice:
        _print_settings(results, findings, console)
    _print_variants(summary, console)
    _print_problems(summary, console)
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
    shown = _fitting(columns, console.width - used)

    title = f"{visible(results.study.title or results.study.name)}, {setting_label(setting)}"
    table = Table(box=TABLE_BOX, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
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


def _fitting(columns: list[_Column], width: int) -> list[_Column]:
    """The leading columns that fit; always the first, which is the answer."""
    shown: list[_Column] = []
    for column in columns:
        width -= column.width + COLUMN_GAP
        if shown and width < 0:
            break
        shown.append(column)
    return shown


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
    """Median, and ratio or difference; below them the interval of the median."""
    estimate = results.estimate(setting, metric, name)
    if estimate is None:
        return Text(NO_FIGURE, style="dim")
    scale = results.scale(metric, TERMINAL_DIGITS)
    is_best = name in results.best(setting, metric)
    cell = Text()
    cell.append(scale.number(estimate.median), style="bold" if is_best else "")
    cell.append(BEST if is_best else " ", style="bold" if is_best else "")
    relative = results.relative(setting, metric, name, scale, "x", _RATIO_DECIMALS)
    if relative:
        mark = UNDECIDED if results.undecided(setting, metric, name) else ""
        cell.append(f"{mark + relative:>6}", style="bold" if is_best else "")
    if estimate.low < estimate.high:
        between = f"{scale.number(estimate.low)}{DASH}{scale.number(estimate.high)}"
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
    console.print()
    for line in (
        f"Each cell: the median of {trials}, and the ratio of means to {baseline}{interval}.",
        *([DIFFERENCES.format(baseline)] if results.has_differences else []),
        f"{BEST} best mean of its column",
        f"{UNDECIDED} no difference from {baseline} is shown: its 95 % interval includes equality",
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


def _print_problems(summary: Summary, console: Console) -> None:
    lines = [problem.sentence for problem in problems(summary)] + remarks(summary)
    if not lines:
        return
    console.print()
    print_line(console, "Problems", style="bold")
    for line in lines:
        print_line(console, f"{INDENT}! {line}")
