"""A diff in a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from heapfit.diff.model import SITE_SEPARATOR, Change, Diff, Figure, Span
from heapfit.report.markdown import bullets, escape, table
from heapfit.report.terminal_text import COLUMN_GAP, INDENT, encodable, print_line
from heapfit.report.units import DASH, ratio, scale_for
from heapfit.text import counted, visible

_SAID = {
    Change.SAME: "same",
    Change.LESS: "less",
    Change.MORE: "more",
    Change.UNCLEAR: "~",
    Change.NOT_COMPARABLE: "not comparable",
}
_LEGEND = "~ the intervals meet, or too few trials make one: no difference is shown"
_UNCHANGED = "Of program, machine and versions nothing has changed that is stored."
_HEAD = ("", "old", "new", "new/old", "")
_RATIOS = ("", "old", "new", "")
_SITES_SHOWN = 12
_CALLS_SHOWN = 3
_BELOW_MAIN = ("__libc_start", "_start")

Rows = list[list[str]]


def show(diff: Diff, console: Console) -> None:
    """Print what `diff` holds, as wide as `console` is."""
    for line in _names(diff):
        print_line(console, line)
    for title, head, rows in _tables(diff):
        console.print()
        print_line(console, title, style="bold")
        console.print(_made(head, rows, console))
    if len(_shown_sites(diff)) < len(diff.sites):
        more = len(diff.sites) - len(_shown_sites(diff))
        print_line(console, f"{counted(more, 'more figure')} of call sites in --json.", style="dim")
    console.print()
    print_line(console, _LEGEND, style="dim")
    console.print()
    print_line(console, "What may be concluded", style="bold")
    for each in diff.conclusions:
        print_line(console, f"{INDENT}{each}")


def _names(diff: Diff) -> list[str]:
    names = zip(("old", "new"), (diff.old, diff.new), diff.began, strict=True)
    lines = [
        f"{which}: {visible(name)}" + (f", {began:%Y-%m-%d %H:%M}" if began else "")
        for which, name, began in names
    ]
    return lines if diff.changed else [*lines, _UNCHANGED]


def markdown(diff: Diff) -> str:
    """Return the same as Markdown."""
    parts = ["# What has changed between two runs", bullets(_names(diff))]
    for title, head, rows in _tables(diff):
        cells = [[escape(cell) for cell in row] for row in rows]
        parts += [f"## {escape(title)}", table(head, cells)]
    parts += [escape(_LEGEND), "## What may be concluded", bullets(diff.conclusions)]
    return "\n\n".join(parts) + "\n"


def _tables(diff: Diff) -> Iterator[tuple[str, Sequence[str], Rows]]:
    if diff.changed:
        facts = [[each.name, each.old or "none", each.new or "none"] for each in diff.changed]
        yield "What has changed", ("", "old", "new"), facts
    for of, figures in groupby(diff.figures, key=lambda each: each.of):
        yield of or "In all", _HEAD, [_row(each) for each in figures]
    if diff.ratios:
        rows = [
            [f"{each.of}: {each.name}", _between(each.old), _between(each.new), _SAID[each.change]]
            for each in diff.ratios
        ]
        yield "Ratio to the baseline of the same run", _RATIOS, rows
    if diff.sites:
        shown = _shown_sites(diff)
        rows = [_row(each, f"{_innermost(each.of)}: {each.name}") for each in shown]
        yield "Call sites that differ most", _HEAD, rows


def _shown_sites(diff: Diff) -> list[Figure]:
    return diff.sites[:_SITES_SHOWN]


def _innermost(chain: str) -> str:
    """The calls that a person knows a site by; those that led to them are in JSON."""
    calls = [each for each in chain.split(SITE_SEPARATOR) if not each.startswith(_BELOW_MAIN)]
    return SITE_SEPARATOR.join(calls[:_CALLS_SHOWN]) or chain


def _row(figure: Figure, name: str = "") -> list[str]:
    values = [figure.old.value, figure.new.value]
    scale = scale_for(figure.unit, values)
    relative = ""
    if figure.change is not Change.NOT_COMPARABLE and all(values):
        relative = ratio(figure.new.value / figure.old.value)
    return [name or figure.name, *map(scale.text, values), relative, _SAID[figure.change]]


def _between(span: Span) -> str:
    return f"{ratio(span.value)} ({span.low:.2f}{DASH}{span.high:.2f})"


def _made(head: Sequence[str], rows: Iterable[Sequence[str]], console: Console) -> Table:
    """A table whose first column gives way, and its numbers never."""
    made = Table(box=None, padding=(0, COLUMN_GAP, 0, 0), pad_edge=False, header_style="bold")
    are_numbers = len(head) > len(("", "old", "new"))
    for index, name in enumerate(head):
        is_number = are_numbers and 0 < index < len(head) - 1
        made.add_column(
            name,
            justify="right" if is_number else "left",
            no_wrap=is_number,
            overflow="fold",
        )
    for row in rows:
        made.add_row(*(Text(encodable(cell, console)) for cell in row))
    return made
