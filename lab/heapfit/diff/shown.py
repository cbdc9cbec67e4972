"""A diff in a terminal and as Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table
from rich.text import Text

from heapfit.diff.model import CALLS_SHOWN, SITE_SEPARATOR, Change, Diff, Figure, Span
from heapfit.report.tables import bullets, escape, markdown_table
from heapfit.report.terminal_text import COLUMN_GAP, INDENT, encodable, print_line, print_lines
from heapfit.text import DASH, counted, ratio, scale_for, visible

_LEGEND = "~ the intervals overlap, or there are too few trials for one: no difference is shown"
_UNCHANGED = "Nothing that is stored about program, machine and versions has changed."
_HEAD = ("", "old", "new", "new/old", "")
_RATIOS = ("", "old", "new", "")
_SITES_HEAD = ("", "old", "new", "by", "")
# What is told of call sites, of each so many.
_OF_SITES = ("live at the peak", "live at the end", "allocated")
_SITES_SHOWN = 8

Rows = list[list[str]]


def show(diff: Diff, console: Console) -> None:
    """Print what `diff` holds, as wide as `console` is."""
    print_lines(console, _names(diff))
    print_lines(console, diff.notes, style="yellow")
    for title, head, rows in tables(diff):
        console.print()
        print_line(console, title, style="bold")
        console.print(_made(head, rows, console))
    shown = {(each.name, each.of) for name in _OF_SITES for each in _shown_sites(diff, name)}
    if more := sum((each.name, _innermost(each.of)) not in shown for each in diff.sites):
        print_line(console, f"{counted(more, 'more figure')} of call sites in --json.", style="dim")
    console.print()
    if _has_intervals(diff):
        print_line(console, _LEGEND, style="dim")
        console.print()
    print_line(console, "What may be concluded", style="bold")
    print_lines(console, (f"{INDENT}{each}" for each in diff.conclusions))


def _names(diff: Diff) -> list[str]:
    names = zip(("old", "new"), (diff.old, diff.new), diff.began, strict=True)
    lines = [
        f"{which}: {visible(name)}" + (f", {began:%Y-%m-%d %H:%M}" if began else "")
        for which, name, began in names
    ]
    return lines if diff.changed else [*lines, _UNCHANGED]


def markdown(diff: Diff) -> str:
    """Return the same as Markdown."""
    parts = ["# What has changed between two runs", bullets([*_names(diff), *diff.notes])]
    for title, head, rows in tables(diff):
        cells = [[escape(cell) for cell in row] for row in rows]
        parts += [f"## {escape(title)}", markdown_table(head, cells)]
    parts += [escape(_LEGEND)] if _has_intervals(diff) else []
    parts += ["## What may be concluded", bullets(diff.conclusions)]
    return "\n\n".join(parts) + "\n"


def _has_intervals(diff: Diff) -> bool:
    """Whether anything is marked by ~, as no figure is that is counted."""
    return any(each.change is Change.UNCLEAR for each in [*diff.figures, *diff.ratios])


def _word(found: Change) -> str:
    return "~" if found is Change.UNCLEAR else found.value


def tables(diff: Diff) -> Iterator[tuple[str, Sequence[str], Rows]]:
    if diff.changed:
        facts = [[each.name, each.old or "none", each.new or "none"] for each in diff.changed]
        yield "What has changed", ("", "old", "new"), facts
    for of, figures in groupby(diff.figures, key=lambda each: each.of):
        yield of or "In all", _HEAD, [_row(each) for each in figures]
    if diff.ratios:
        rows = [
            [f"{each.of}: {each.name}", _between(each.old), _between(each.new), _word(each.change)]
            for each in diff.ratios
        ]
        yield "Ratio to the baseline of the same run", _RATIOS, rows
    for name in _OF_SITES:
        if rows := [_site_row(each) for each in _shown_sites(diff, name)]:
            yield f"Call sites: bytes {name}", _SITES_HEAD, rows


def _shown_sites(diff: Diff, name: str) -> list[Figure]:
    """Figures of that name, of the sites that differ most."""
    found = [each for each in diff.abbreviated if each.name == f"{name}: bytes"]
    return [each for each in found if _differs(each)][:_SITES_SHOWN]


def _differs(figure: Figure) -> bool:
    """Whether a person sees a difference."""
    _, old, new, *_ = _site_row(figure)
    return old != new


def _site_row(figure: Figure) -> list[str]:
    old, new = figure.old.value, figure.new.value
    scale = scale_for(figure.unit, [old, new])
    by = scale.difference_text(new - old)
    return [figure.of, scale.text(old), scale.text(new), by, _word(figure.change)]


def _innermost(chain: str) -> str:
    return SITE_SEPARATOR.join(chain.split(SITE_SEPARATOR)[:CALLS_SHOWN])


def _row(figure: Figure) -> list[str]:
    values = [figure.old.value, figure.new.value]
    scale = scale_for(figure.unit, values)
    relative = ""
    if figure.change is not Change.NOT_COMPARABLE and all(values):
        relative = ratio(figure.new.value / figure.old.value)
    return [figure.name, *map(scale.text, values), relative, _word(figure.change)]


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
