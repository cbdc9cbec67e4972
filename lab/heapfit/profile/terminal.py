"""A profile in a terminal: first what is to be done and why, then the facts, which code holds the
memory, and what the recording lacks; on demand all sections.

A table shows its most important rows and, of its columns, those that fit; the page has all.
"""

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from heapfit.profile.advice import ended_early
from heapfit.profile.answers import ASK, content
from heapfit.profile.content import Cell, Content, Fact, Section, Table
from heapfit.profile.model import Profile
from heapfit.report.terminal_text import (
    COLUMN_GAP,
    INDENT,
    ascii_only,
    encodable,
    fitting,
    new_table,
    print_line,
)
from heapfit.text import counted, shell_word, spark, visible

# A course as wide as this shows its peaks, and leaves room for what it is of.
_SPARK_WIDTH = 60
_LACKS = "What this recording lacks"
_FIRST_SENTENCE = re.compile(r"(?<=[\w)]\.) (?=[A-Z])")  # where it ends
# A reason takes three lines or four.
_MOST_REASONS = 2
# With less room for what is said of the facts, each is a sentence.
_LEAST_NOTE = 16
# A label may take so much of the width before it is broken into lines.
_LABEL_PART = 0.45


def show(
    profile: Profile,
    console: Console,
    trace: str = "TRACE",
    *,
    every: bool = False,
    of_one: bool = True,
) -> None:
    """Print the profile as wide as `console` is. `trace` is the file that its commands name;
    `every`: nothing is left out; `of_one`: it is of that file alone, which is kept."""
    shown = content(profile, trace)
    _print_head(shown, console)
    if every:
        _print_proposals(shown, [], console, every=True)
        _print_facts(shown.facts, console)
        _print_list(_LACKS, shown.problems, console)
        for section in shown.sections:
            _print_section(section, console)
        commands = shown.commands
    else:
        _print_brief(shown, console, is_part=ended_early(profile))
        whole = f"heapfit profile {shell_word(trace)} --all" if of_one else "--all, and the page"
        commands = [
            (f"See {counted(len(shown.sections), 'section')}, and more on each figure", whole),
            *(each for each in shown.commands if each[0] != ASK),
        ]
    console.print()
    for purpose, line in commands:
        print_line(console, visible(f"{purpose}: {line}"), style="dim")


def _print_brief(shown: Content, console: Console, *, is_part: bool) -> None:
    """Print what is to be done and why, the most important facts, which code holds the memory, at
    the end where that matters more than the peak, and what is lacking, in its first sentences."""
    is_own = shown.if_lasting or not all(each.advice.feature for each in shown.proposals)
    reasons = [] if is_own else shown.proposals[:_MOST_REASONS]
    _print_proposals(shown, reasons, console)
    _print_facts([each for each in shown.facts if each.always], console)
    by_name = {each.name: each for each in shown.sections}
    end = by_name.get("end")
    told = end if end and (is_part or end.advice.act) else by_name.get("peak")
    if told:
        console.print()
        print_line(console, told.title, style="bold underline")
        _print_figures(told, console)
        if told not in reasons:
            _print_advice(told, console)
    _print_list(_LACKS, [_FIRST_SENTENCE.split(each)[0] for each in shown.problems], console)


def _print_head(shown: Content, console: Console) -> None:
    print_line(console, visible(shown.headline), style="bold")
    if shown.command:
        print_line(console, visible(shown.command))
    print_line(console, visible("; ".join(shown.circumstances)), style="dim")


def _print_facts(facts: Sequence[Fact], console: Console) -> None:
    console.print()
    figures = max(cell_len(visible(f.label)) + cell_len(visible(f.value)) for f in facts)
    if console.width - figures - 2 * COLUMN_GAP < _LEAST_NOTE:
        for fact in facts:
            note = f"; {fact.note}" if fact.note else ""
            print_line(console, visible(f"{fact.label}: {fact.value}{note}"))
        return
    made = RichTable(box=None, show_header=False, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False)
    made.add_column(style="dim", no_wrap=True)
    made.add_column(justify="right", style="bold", no_wrap=True)
    made.add_column()
    for fact in facts:
        made.add_row(*(_text(each, console) for each in (fact.label, fact.value, fact.note)))
    console.print(made)


def _print_proposals(
    shown: Content, reasons: Sequence[Section], console: Console, *, every: bool = False
) -> None:
    """Name what is to be done, each with the sections that say why, and those `reasons`; `every`:
    the sections follow."""
    sections: dict[str, list[str]] = {}
    for each in shown.proposals:
        if each.advice.feature:
            sections.setdefault(each.advice.feature, []).append(each.title)
    named = [f"{feature} (see {'; '.join(titles)})" for feature, titles in sections.items()]
    own = [each for each in shown.proposals if not each.advice.feature] + shown.if_lasting
    console.print()
    for each in own:
        print_line(console, visible(f"In the program: {each.advice.sentence}"), style="bold")
    if named:
        when = "Also worth a try" if own else "Worth a try"
        these = "this section" if sum(map(len, sections.values())) == 1 else "these sections"
        where = "" if every else f" The page and --all show {these}."
        print_line(console, f"{when}: {', '.join(named)}.{where}", style="" if own else "bold")
    for section in reasons:
        _print_advice(section, console)
    if not shown.proposals:
        print_line(console, shown.nothing_proposed, style="bold")


def _print_list(title: str, lines: Sequence[str], console: Console) -> None:
    if not lines:
        return
    console.print()
    print_line(console, title, style="bold")
    if console.soft_wrap:
        for line in lines:
            print_line(console, visible(f"- {line}"))
        return
    made = RichTable(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    made.add_column(width=1)
    made.add_column()
    for line in lines:
        made.add_row("-", _text(line, console))
    console.print(made)


def _print_section(section: Section, console: Console) -> None:
    console.print()
    print_line(console, section.title, style="bold underline")
    if section.course and not ascii_only(console):
        print_line(console, spark(_narrowed(section.course, _width(console)), _width(console)))
    for sentence in section.sentences:
        print_line(console, visible(sentence))
    _print_figures(section, console)
    _print_advice(section, console)


def _print_figures(section: Section, console: Console) -> None:
    if section.table is not None:
        _print_table(section.table, console)


def _print_advice(section: Section, console: Console) -> None:
    if section.advice.act and not section.advice.feature:
        return  # It stands at the top.
    style = "bold" if section.advice.act else "dim"
    print_line(console, visible(f"{_arrow(console)} {section.advice.sentence}"), style=style)


def _arrow(console: Console) -> str:
    return "->" if ascii_only(console) else "\N{RIGHTWARDS ARROW}"


def _width(console: Console) -> int:
    return min(_SPARK_WIDTH, console.width)


def _narrowed(course: Sequence[float], width: int) -> list[float]:
    """The course in at most `width` points, each the most of what it stands for."""
    group = -(-len(course) // width)
    return [max(course[at : at + group]) for at in range(0, len(course), group)]


# ------------------------------------------------------------------------- tables


def _print_table(table: Table, console: Console) -> None:
    rows = _brief(table)
    columns = _fitting(table, rows, console)
    made = new_table()
    made.add_column(_text(table.columns[0], console), overflow="fold")
    for name in table.columns[1:columns]:
        made.add_column(_text(name, console), justify="right", no_wrap=True)
    for row in rows:
        made.add_row(*(_text(cell.text, console) for cell in row[:columns]))
    console.print(made)
    _print_rest(table, columns, console)


def _brief(table: Table) -> Sequence[Sequence[Cell]]:
    """The first rows of a table; all, where that is at most twice as many."""
    return table.rows if len(table.rows) <= 2 * table.brief else table.rows[: table.brief]


def _fitting(table: Table, rows: Sequence[Sequence[Cell]], console: Console) -> int:
    """How many columns fit beside the labels; always two."""
    lines = [table.columns, *([cell.text for cell in row] for row in rows)]
    labels, *widths = [
        max(cell_len(visible(each)) for each in column) for column in zip(*lines, strict=True)
    ]
    return 1 + fitting(widths, console.width - min(labels, int(console.width * _LABEL_PART)))


def _print_rest(table: Table, columns: int, console: Console) -> None:
    """Say what the page has beyond what is shown here."""
    more = len(table.rows) - len(_brief(table))
    left_out = table.columns[columns:]
    told = [f"{more} more"] if more > 0 else []
    told += [", ".join(each.lower() for each in left_out)] if left_out else []
    if told:
        print_line(console, f"{INDENT}… on the page: {'; '.join(told)}", style="dim")


def _text(text: str, console: Console) -> Text:
    return Text(encodable(visible(text), console))
