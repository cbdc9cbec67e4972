"""The answer in a terminal: the recommendation, a table per setting, what went wrong.

Nothing is said by colour alone, so that a log file, a monochrome terminal and a reader who does
not see colours get the same answer. A narrow terminal gets fewer metrics, never torn numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from textwrap import wrap

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from heapfit.advice.noise import is_vague
from heapfit.findings import Advice, Analysis
from heapfit.meaning import PEAKS
from heapfit.records import Metric, Setting, Verdict
from heapfit.report import papers, recommendation, series
from heapfit.report.comparisons import LEGEND, letters_tables
from heapfit.report.conclusions import NOTHING, alone, conclude, headline_metrics
from heapfit.report.labels import explanations
from heapfit.report.problems import precision_reached, problems, remarks
from heapfit.report.reading import Reading, SeriesReading
from heapfit.report.results import MOST_OPEN_SETTINGS, UNDECIDED, Results, change
from heapfit.report.tables import Table
from heapfit.report.terminal_text import (
    BEST,
    COLUMN_GAP,
    INDENT,
    NO_FIGURE,
    ascii_only,
    encodable,
    fitting,
    in_parts,
    new_table,
    print_line,
    print_lines,
    print_problems,
)
from heapfit.settings import setting_label
from heapfit.statistics import analysed_metrics
from heapfit.text import (
    TERMINAL_DIGITS,
    Scale,
    capitalised,
    counted,
    counted_range,
    join_words,
    visible,
)

_LONGEST_NAME = 48
# In a line, where there is room, and where columns that decide need it.
_WIDEST_NAME, _NARROWEST_NAME = 24, 12
# More letters tables than this of one metric scroll the answer away.
_MOST_TABLES = 3
# So many metrics that no table has are named.
_MOST_HIDDEN = 3


@dataclass(frozen=True)
class _Column:
    """One metric in one setting, formatted before it is known whether it fits: by allocator the
    median, and its change from the baseline."""

    metric: Metric
    header: str
    medians: dict[str, Text]
    changes: dict[str, Text]

    @property
    def width(self) -> int:
        medians = _width([self.header, *(each.plain for each in self.medians.values())])
        return medians + COLUMN_GAP + self.width_of_changes

    @property
    def width_of_changes(self) -> int:
        return _width(each.plain for each in self.changes.values())

    def narrowed(self) -> _Column:
        """The same with each interval below its change."""
        below = {
            name: Text(each.plain.replace(" (", "\n  (")) for name, each in self.changes.items()
        }
        return replace(self, changes=below)


def _width(texts: Iterable[str]) -> int:
    return max(cell_len(line) for text in texts for line in text.split("\n"))


def render(reading: Reading, console: Console) -> None:
    """Print the answer as wide as `console` is: recommendation, tables, conclusions, problems."""
    summary, results, advice = reading.summary, reading.results, reading.advice
    if advice:
        _print_recommendation(results, advice, console)
    elif reading.why_no_advice:
        console.print()
        why = visible(reading.why_no_advice)
        print_line(console, f"Nothing to recommend: {why}", style="bold")
    if said := alone(results):
        console.print()
        print_lines(console, said, style="bold")
    if len(results.settings) > 1:
        _print_analyses(reading, console)
    if len(results.settings) <= MOST_OPEN_SETTINGS or not advice:
        _print_settings(results, advice, console)
    if lines := explanations(summary.study.allocators):
        console.print()
        print_lines(console, lines, style="dim")
    print_problems(console, [*(each.sentence for each in problems(summary)), *remarks(summary)])
    _print_deployment(reading, console)


def _print_deployment(reading: Reading, console: Console) -> None:
    """Print how to run what is recommended, in lines that are not broken: they are for a shell."""
    lines = recommendation.deployment(reading.summary.study, reading.advice)
    if lines:
        console.print()
        print_line(console, recommendation.DEPLOYMENT, style="bold")
    for line in lines:
        console.print(Text(f"{INDENT}{encodable(line, console)}"), soft_wrap=True)


def _print_settings(results: Results, advice: Advice | None, console: Console) -> None:
    """Print a table for each setting, with conclusions where no recommendation has said them."""
    columns: list[_Column] = []
    is_said = bool(alone(results) or (advice and not results.study.programs))
    for setting in results.settings if results.metrics else []:
        columns = _print_table(results, setting, advice, console)
        if not is_said:
            said = (conclude(results, setting, metric) for metric in headline_metrics(results))
            print_lines(console, said, style="bold")
    if results.metrics:
        _print_legend(results, [column.metric for column in columns], console)
    else:
        print_line(console, NOTHING, style="bold")


def _print_table(
    results: Results, setting: Setting, advice: Advice | None, console: Console
) -> list[_Column]:
    """Print one table and return its columns: those for which there is room."""
    deciding = _deciding(results, advice) if advice else []
    metrics = sorted(results.metrics, key=lambda each: _place(each.name, deciding))
    order = results.ranked(setting, metrics[0])
    if advice:  # The recommended one is the first.
        order.sort(key=lambda name: _place(name, [each.allocator for each in advice.standings]))
    columns = [_column(results, setting, metric, console) for metric in metrics]
    names = {name: _name(name, console) for name in order}
    of_weights = sum(each.name in deciding for each in metrics)
    columns, room = _with_room(columns, of_weights, names.values(), console)
    names = {name: _broken(shown, room) for name, shown in names.items()}
    used = _width(names.values())
    shown = columns[: fitting([each.width for each in columns], console.width - used)]

    title = f"{visible(results.study.title or results.study.name)}, {setting_label(setting)}"
    widest = [column.width_of_changes for column in shown]
    beside = f"vs {_name(results.baseline, console)}"
    heads = (f" mean {beside}", f" {beside}", " change")
    versus = next((each for each in heads if cell_len(each) <= min(widest, default=0)), heads[-1])
    highest = max((column.header.count("\n") for column in shown), default=0)
    table = new_table()
    table.add_column("", min_width=used)
    for column in shown:
        header = "\n" * (highest - column.header.count("\n")) + column.header
        table.add_column(Text(header), justify="right", no_wrap=True)
        table.add_column(Text("\n" * highest + versus), no_wrap=True)
    for name in order:
        cells = ((column.medians[name], column.changes[name]) for column in shown)
        style = "bold" if advice and name == advice.recommended else ""
        table.add_row(Text(names[name], no_wrap=True), *chain.from_iterable(cells), style=style)
    console.print()
    print_line(console, title, style="bold")
    console.print()
    console.print(table)
    console.print()
    return shown


def _deciding(results: Results, advice: Advice) -> list[str]:
    """The metrics that decide, the peak of memory be it too little to count, and wall time where it
    says otherwise."""
    known = [each.name for each in results.metrics]
    memory = [each for each in PEAKS if each in known][:1]
    others = recommendation.deciding(results, advice)
    return list(dict.fromkeys([*advice.metrics.values(), *memory, *others]))


def _with_room(
    columns: list[_Column], deciding: int, names: Iterable[str], console: Console
) -> tuple[list[_Column], int]:
    """Return the columns such that those that decide, which are the first, fit beside each other,
    or as many of them as can, and the room for the names."""
    least = min(_width(names), _NARROWEST_NAME)
    narrow = [each.narrowed() for each in columns]
    for count in range(max(deciding, 1), 0, -1):
        for made in (columns, narrow):
            room = console.width - sum(each.width + COLUMN_GAP for each in made[:count])
            if room >= least:
                return made, min(room, _WIDEST_NAME)
    return narrow, least


def _place(name: str, first: Sequence[str]) -> int:
    """Where a name belongs, if those in `first` stand before all others, which keep their order."""
    return first.index(name) if name in first else len(first)


def _column(results: Results, setting: Setting, metric: Metric, console: Console) -> _Column:
    medians, changes = {}, {}
    scale = results.scale(metric, TERMINAL_DIGITS)
    for name in results.allocators:
        estimate = results.estimate(setting, metric, name)
        verdict = results.against_baseline(setting, metric, name)
        median = scale.text(estimate.median) if estimate else NO_FIGURE
        told = change(verdict, scale) if verdict else ""
        told = " inconclusive" if verdict and is_vague(verdict) else told
        mark = UNDECIDED if results.undecided(setting, metric, name) else " "
        told = "baseline" if name == results.baseline and estimate else told
        medians[name] = Text(encodable(median, console))
        changes[name] = Text(encodable(f"{mark}{told}", console))
    widest = max(cell_len(each.plain) for each in medians.values())
    header = encodable(
        "\n".join(wrap(visible(metric.label), widest, break_long_words=False)), console
    )
    return _Column(metric, header, medians, changes)


def _name(name: str, console: Console) -> str:
    shown = encodable(visible(name), console)
    if cell_len(shown) > _LONGEST_NAME:
        shown = shown[: _LONGEST_NAME - 1] + ("~" if ascii_only(console) else "…")
    return shown


def _broken(name: str, width: int) -> str:
    """Return a name in lines of this width, broken behind a sign where one is.

    >>> _broken("heapfit:huge_pages=always", 12)
    'heapfit:\\nhuge_pages=\\nalways'
    """
    lines = [""]
    for word in re.findall(r"[^:=+,_-]*[:=+,_-]|[^:=+,_-]+", name):
        for part in chop_cells(word, width):
            if cell_len(lines[-1] + part) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(lines)


def _disagree(results: Results, setting: Setting, metric: Metric) -> bool:
    """Whether two rows have their medians, as they are shown, in another order than their changes
    from the baseline."""
    scale = results.scale(metric, TERMINAL_DIGITS)
    rows = []
    for name in results.allocators:
        estimate = results.estimate(setting, metric, name)
        verdict = results.against_baseline(setting, metric, name)
        if estimate and (name == results.baseline or (verdict and not is_vague(verdict))):
            median = round(scale.scaled(estimate.median), scale.decimals)
            rows.append((median, verdict.beyond if verdict else 0.0, verdict))
    return any(
        (one[0] - other[0]) * (one[1] - other[1]) < 0
        and _change(one[2], scale) != _change(other[2], scale)
        for one, other in combinations(rows, 2)
    )


def _change(verdict: Verdict | None, scale: Scale) -> str:
    return change(verdict, scale).partition(" (")[0] if verdict else ""


def _print_legend(results: Results, shown: list[Metric], console: Console) -> None:
    baseline = visible(results.baseline)
    counts = [results.trials_per_cell(setting, results.metrics[0]) for setting in results.settings]
    fewest, most = min(c[0] for c in counts), max(c[1] for c in counts)
    trials = counted_range(fewest, most, "trial")
    median = f"The median of {trials}"
    interval = ", with its 95 % interval" if results.has_intervals else ""
    changes = f", and the change of the mean from {baseline}{interval}"
    lines = [f"{median}{changes if results.summary.verdicts else ''}."]
    if any(_disagree(results, setting, each) for setting in results.settings for each in shown):
        lines.append(
            "Where medians say otherwise, trust the change: it compares runs of one block."
        )
    if any(
        results.undecided(setting, metric, name)
        for setting in results.settings
        for metric in shown
        for name in results.allocators
    ):
        said = f"no difference from {baseline} is shown"
        lines.append(f"{UNDECIDED} {said if results.has_intervals else f'{trials}: no interval'}")
    if reached := precision_reached(results.summary):
        lines.append(reached)
    if hidden := [visible(each.label) for each in results.metrics if each not in shown]:
        more = f"{counted(len(hidden), 'more metric')} in the page or a wider terminal"
        such = ":" if len(hidden) <= _MOST_HIDDEN else ", such as"
        lines.append(f"{more}{such} {join_words(hidden[:_MOST_HIDDEN])}.")
    print_lines(console, lines, style="dim")


# --------------------------------------------------- the findings over all settings


def _print_recommendation(results: Results, advice: Advice, console: Console) -> None:
    """Print what is recommended, why, and over several settings the ranking."""
    console.print()
    print_line(console, recommendation.headline(advice), style="bold")
    if said := recommendation.against_baseline(results, advice):
        print_line(console, said, style="bold")
    print_line(console, recommendation.reasons_of(advice))
    several = len(results.settings) > 1
    if several:
        _print_ranking(results, advice, console)
    weights = f"weights: {recommendation.weights_text(advice)}"
    lines = []
    if several:
        weighed = f"; {weights}" if len(advice.weights) > 1 else ""
        lines = [f"Costs are ratios to the best{weighed}."]
        lines.append(f"{capitalised(recommendation.UNBEATEN)}.")
    elif recommendation.is_weighed(advice):
        lines = [f"{capitalised(weights)}; --weights sets others."]
    print_lines(console, [*lines, *map(visible, advice.notes)], style="dim")


def _print_ranking(results: Results, advice: Advice, console: Console) -> None:
    console.print()
    ranking = recommendation.ranking(advice, results.study)
    *figures, notes = ranking.columns
    table = new_table()
    table.add_column(ranking.corner)
    for header in figures:
        table.add_column(Text(encodable(visible(header), console)), justify="right", no_wrap=True)
    table.add_column(notes)
    for row in ranking.rows:
        texts = [visible(row.label), *(cell.text for cell in row.cells)]
        style = "bold" if row.label == advice.recommended else ""
        table.add_row(*(Text(encodable(text, console), style=style) for text in texts))
    console.print(table)


def _print_analyses(reading: Reading, console: Console) -> None:
    """Print of every analysed metric who differs from whom, and what a paper would say of it."""
    results = reading.results
    analysed = analysed_metrics(results.study)
    any_letters = False
    for metric in results.metrics:
        if metric.name not in analysed:
            continue
        shown = letters_tables(results, metric, results.scale(metric, TERMINAL_DIGITS))
        analysis = reading.analysis(metric.name)
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


def _print_metric(results: Results, metric: Metric, shown: list[Table], console: Console) -> None:
    scale = results.scale(metric, TERMINAL_DIGITS)
    console.print()
    print_line(
        console, visible(f"{metric.label}{scale.suffix}: who differs from whom"), style="bold"
    )
    for each in shown[:_MOST_TABLES]:
        _print_letters(each, console)
    more = len(shown) - _MOST_TABLES
    if more > 0:
        print_line(console, f"{counted(more, 'more such table')} in the report.", style="dim")
        console.print()


def _print_analysis(results: Results, analysis: Analysis, console: Console) -> None:
    print_line(
        console, "As papers do it, by an analysis of variance (the report has more):", style="dim"
    )
    said = [*papers.sentences(analysis, results.study.replicates), *papers.anova_short(analysis)]
    print_lines(console, (f"{INDENT}{line}" for line in said), style="dim")
    console.print()


def _print_letters(table: Table, console: Console) -> None:
    """Print the table; what is wider than the terminal is continued below."""
    console.print()
    if table.title:
        print_line(console, table.title)
    for part in in_parts(table, console):
        console.print(part)
        console.print()


# --------------------------------------------------- a study of many parts


def render_series(reading: SeriesReading, console: Console) -> None:
    """Print the answer of a study of many parts as wide as `console` is.

    A table wider than that is continued below itself, so that no allocator is left out.
    """
    summary = reading.summary
    for table in [*series.ratio_tables(summary), *series.probe_tables(summary)]:
        console.print()
        print_line(console, visible(table.title), style="bold")
        for part in in_parts(table, console):
            console.print()
            console.print(part)
    console.print()
    recommended = [f"{visible(name)}: {line}" for name, line in series.recommendations(reading)]
    print_lines(console, [*series.conclusions(summary), *recommended], style="bold")
    notes = [*explanations(summary.series.allocators), *series.notes(summary)]
    print_lines(console, notes, style="dim")
    print_problems(console, series.troubles(summary))
