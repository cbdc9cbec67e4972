"""`heapfit profile`: what a program does with its heap, from a recording of it."""

from __future__ import annotations

import csv
import math
import sys
import tempfile
import textwrap
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len

from heapfit import catalogue
from heapfit.cli.arguments import CALLS_FOLLOWED, AsJson, On, split_list
from heapfit.cli.commands import new_app
from heapfit.cli.gate import check_folders
from heapfit.cli.output import (
    json_text,
    messages,
    print_json,
    print_table,
    results,
    say,
    say_page,
    warn,
)
from heapfit.cli.progress import WorkProgress
from heapfit.errors import UsageError
from heapfit.files import free_name
from heapfit.host.program import inherited
from heapfit.text import COLUMN_GAP, join_words, readable, visible

if TYPE_CHECKING:
    from heapfit.diff import Diff
    from heapfit.profile.model import Profile
    from heapfit.profile.page import Against
    from heapfit.profile.sql import Rows
    from heapfit.profile.tally import Tally
    from heapfit.records import InstalledAllocator

app = new_app()

_MOST_ROWS = 1000  # Of an answer to --sql that are printed as a table.
_MOST_NAMED = 3  # files that are not compared
# How a page of ours tells itself, and where.
_GENERATOR, _HEAD_OF_A_PAGE = b'<meta name="generator" content="heapfit ', 1024


@app.command(epilog="Example:  heapfit profile redis.hft --open")
def profile(
    context: typer.Context,
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE… | -- CMD", help="Recordings, folders of their tables, or a program."
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The file for the page. Default: TRACE.html in the current folder."
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    every: Annotated[
        bool,
        typer.Option("--all", help="Print all sections; the page has longer tables."),
    ] = False,
    sql: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY",
            help="Run this SQL query instead of profiling; tables: objects, memory, sites, "
            "threads, flow.",
        ),
    ] = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print the answer to --sql as CSV.")
    ] = False,
    allocators: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Allocators whose size classes are compared. Default: all that are installed.",
        ),
    ] = None,
    sites: Annotated[
        int,
        typer.Option(
            metavar="N", help="With -- CMD: record call chains of N return addresses; 0: none."
        ),
    ] = CALLS_FOLLOWED,
    children: Annotated[
        bool,
        typer.Option(
            "--attach-children", help="With -- CMD: also record the processes that it starts."
        ),
    ] = False,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="OLD", help="Show what has grown since this older recording, and where."
        ),
    ] = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print what --against shows as Markdown.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Keep the tables in this folder (and the recording of -- CMD)."
        ),
    ] = None,
    on: On = None,
    as_json: AsJson = False,
) -> None:
    """Show how a program uses its heap: which code holds the memory, sizes, lifetimes, threads.

    Several traces are combined into one profile. With -- CMD, record the program first; its output
    goes to standard error. Sizes are requested sizes. Advice is printed first, then the code that
    holds the memory; --all and the page show everything. With --against, the comparison of heapfit
    diff is printed, and the page has both.
    """
    _check(traces or [], context.obj, sql=sql, as_csv=as_csv, on=on)
    check_folders(page)
    _check_against(traces or [], against, sql, as_markdown=as_markdown, as_json=as_json)
    from heapfit.profile.files import short_name

    options = {"children": children, "sites": sites}
    with _named(traces or [], context.obj, options, keep) as files:
        if sql is not None:
            _answer(files, sql, keep, as_csv=as_csv, as_json=as_json)
            return
        weighed = _installed(allocators)
        from heapfit.profile.analyse import profile as analyse

        if against is not None:  # A program's first is its own.
            _say_what_is_left_out(files[1:])
            files = files[:1]
        tally = _tally(files, keep, on)
        found = analyse(tally, weighed)
        most = max(range(len(files)), key=lambda number: found.recordings[number].events)
        # What is not kept nobody can name.
        named = readable(str(files[most])) if traces or keep else "TRACE"
        if against is None:
            is_one = len(files) == 1 and bool(traces or keep)
            _print(found, named, every=every, of_one=is_one, as_json=as_json)
            compared = None
        else:
            diff, compared = _compared(against, _tally([against], None, on), named, tally)
            _print_compared(diff, found, named, as_json=as_json, as_markdown=as_markdown)
        written = page or _default_page(short_name(files[0]))
        _save(found, written, named, compared, is_quiet=as_json or as_markdown)
    if open_page:
        webbrowser.open(written.absolute().as_uri())


def _check(
    traces: Sequence[Path],
    command: list[str] | None,
    *,
    sql: str | None,
    as_csv: bool,
    on: str | None,
) -> None:
    if bool(traces) == bool(command):
        raise UsageError("which recording? write: heapfit profile TRACE, or heapfit profile -- CMD")
    if as_csv and sql is None:
        raise UsageError("--csv is for the answer to --sql")
    if on is not None and (command or sql is not None):
        raise UsageError("--on is for traces: a query and a program run on this machine")


# ------------------------------------------------------------------------- files


@contextmanager
def _named(
    traces: Sequence[Path],
    command: list[str] | None,
    options: Mapping[str, int],
    keep: Path | None,
) -> Iterator[list[Path]]:
    """Provide the traces, recorded first if there is a command instead."""
    if not command:
        yield list(traces)
    elif keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield _recorded(command, keep, options)
    else:
        with tempfile.TemporaryDirectory(prefix="heapfit-record-") as folder:
            yield _recorded(command, Path(folder), options)


def _recorded(command: list[str], folder: Path, options: Mapping[str, int]) -> list[Path]:
    from heapfit.cli.record import warn_of_children
    from heapfit.record import OPTIONS, RecordOptions, run

    OPTIONS["sites"].check(str(options["sites"]))
    chosen = RecordOptions(children=bool(options["children"]), sites=options["sites"])
    path = folder / f"{Path(command[0]).name}.%p.hft"
    made = run(command, path, chosen, inherited(), sys.stderr.fileno())
    if not chosen.children:
        warn_of_children(made.children_share)
    return made.files


def _tables(files: Sequence[Path], keep: Path | None) -> list[Path | None]:
    """Return where the tables of each file go: for one to `keep` itself; None: nowhere."""
    from heapfit.profile.files import check_names, short_name

    if keep is None:
        return [None for _ in files]
    if len(files) == 1 and files[0].absolute().parent != keep.absolute():
        return [keep]
    check_names(files)
    return [keep / short_name(file) for file in files]


# ------------------------------------------------------------------------- counting


def _tally(files: Sequence[Path], keep: Path | None, on: str | None) -> Tally:
    from heapfit.profile.files import count_file
    from heapfit.profile.tally import Tally

    with WorkProgress(messages) as shown:
        if on is not None:
            from heapfit.profile.cluster import count_on

            return count_on(on, files, shown)
        whole = Tally()
        for i, (file, tables) in enumerate(zip(files, _tables(files, keep), strict=True)):

            def on_part(done: int, total: int, what: str, i: int = i, file: Path = file) -> None:
                named = f"{file.name}: {what}" if len(files) > 1 else what
                shown(i + done / max(total, 1), len(files), named)

            whole.include(count_file(file, tables, on_part))
        return whole


def _installed(named: str | None) -> list[InstalledAllocator]:
    """Return the allocators to weigh: the named ones, or all that this machine has."""
    if named is not None:
        return catalogue.resolve_allocators(split_list(named))
    found = map(catalogue.find_installed, catalogue.load_allocators().values())
    return [each for each in found if each is not None]


def _print(found: Profile, trace: str, *, every: bool, of_one: bool, as_json: bool) -> None:
    from heapfit.profile.answers import advice
    from heapfit.profile.terminal import show

    if as_json:
        print_json({"profile": found, "advice": advice(found, trace)})
    else:
        show(found, results, trace, every=every, of_one=of_one)
        results.print()


def _default_page(name: str) -> Path:
    """Return where the page goes: in the place of an earlier one, but of no other file."""
    page = Path(f"{name}.html")
    if page.is_file():
        with suppress(OSError), page.open("rb") as earlier:
            if _GENERATOR in earlier.read(_HEAD_OF_A_PAGE):
                return page
    return free_name(page)


def _save(
    found: Profile, page: Path, trace: str, compared: Against | None, *, is_quiet: bool
) -> None:
    """Write the page: last, so that what is printed is not lost where it cannot be written."""
    from heapfit.profile.page import save_page

    save_page(found, page, trace, compared)
    say_page(page, as_json=is_quiet)


# ------------------------------------------------------------------------- --against


def _check_against(
    traces: Sequence[Path],
    old: Path | None,
    sql: str | None,
    *,
    as_markdown: bool,
    as_json: bool,
) -> None:
    if old is None:
        if as_markdown:
            raise UsageError("--markdown is for what --against shows; give that an older recording")
        return
    if sql is not None:
        raise UsageError("--against or --sql? give one of them")
    if as_markdown and as_json:
        raise UsageError("--json or --markdown? give one of them")
    if not old.exists():
        raise UsageError(f"there is no {old}; write the path of an older recording (.hft)")
    if len(traces) > 1:
        raise UsageError(
            "--against compares one recording with another; name one TRACE, not several"
        )
    if any(trace.exists() and trace.samefile(old) for trace in traces):
        raise UsageError(f"{traces[0]} and {old} are the same; name two recordings")


def _say_what_is_left_out(others: Sequence[Path]) -> None:
    if others:
        more = [f"{len(others) - _MOST_NAMED} more"] if len(others) > _MOST_NAMED else []
        names = join_words([*(each.name for each in others[:_MOST_NAMED]), *more])
        warn(f"note: only the program itself is compared, without {names}")


def _compared(old: Path, before: Tally, new: str, after: Tally) -> tuple[Diff, Against]:
    from heapfit.diff import of_tallies, tables
    from heapfit.profile.page import Against
    from heapfit.profile.sections.flames import difference

    diff = of_tallies(str(old), new, before, after)
    trees = difference(before, after)
    return diff, Against(diff.old, list(tables(diff)), diff.conclusions, trees)


def _print_compared(
    diff: Diff, found: Profile, trace: str, *, as_json: bool, as_markdown: bool
) -> None:
    from heapfit.diff import markdown, show
    from heapfit.profile.answers import advice

    if as_json:
        print_json({"profile": found, "advice": advice(found, trace), "against": diff})
    elif as_markdown:
        print(markdown(diff), end="")
    else:
        show(diff, results)
        results.print()


# ------------------------------------------------------------------------- --sql


def _answer(
    files: Sequence[Path], query: str, keep: Path | None, *, as_csv: bool, as_json: bool
) -> None:
    from heapfit.profile.files import converted
    from heapfit.profile.sql import asked
    from heapfit.profile.trace import read_summary

    with ExitStack() as kept:
        with WorkProgress(messages) as shown:
            pairs = zip(files, _tables(files, keep), strict=True)
            folders = [kept.enter_context(converted(*pair, shown)) for pair in pairs]
        columns, rows = kept.enter_context(asked(folders, query))
        if as_json and len({*columns}) < len(columns):
            twice = next(each for each in columns if columns.count(each) > 1)
            raise UsageError(f"--json: two columns are called {twice}; rename one with AS")
        sampled = any(read_summary(each).info.sample for each in folders)
        if sampled and "weight" not in query.lower():
            warn(
                "note: this is of a sample, and not scaled to the program: of objects, sum(weight) "
                "estimates the blocks, and sum(weight * size) their bytes"
            )
        if as_csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        elif as_json:
            _print_records(columns, rows)
        else:
            _print_first(columns, rows)


def _print_records(columns: list[str], rows: Rows) -> None:
    """Print the rows as one JSON array, each when it comes."""
    before = "[\n"
    for row in rows:
        record = dict(zip(columns, map(_in_json, row), strict=True))
        print(before + textwrap.indent(json_text(record), "  "), end="")
        before = ",\n"
    print("[]" if before == "[\n" else "\n]")


def _in_json(value: object) -> object:
    """Return a value, or None of a number for which JSON has no word."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_first(columns: list[str], rows: Rows) -> None:
    """Print as many rows as anybody reads, and say how many there are."""
    first = list(islice(rows, _MOST_ROWS))
    cells = [["" if v is None else visible(str(v)) for v in row] for row in first]
    _print_rows([*map(visible, columns)], cells)  # PIVOT makes names of values.
    left = sum(1 for _ in rows)
    shown = f"; these are the first {len(first):,}, --csv prints all" if left else ""
    say(f"{len(first) + left:,} rows{shown}")


def _print_rows(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table where it fits, else each row as a list of its values."""
    widths = [max(map(cell_len, each)) for each in zip(columns, *rows, strict=True)]
    if sum(widths) + COLUMN_GAP * (len(widths) - 1) <= results.width:
        print_table(columns, rows)
        return
    longest = max(map(cell_len, columns))
    for number, row in enumerate(rows, start=1):
        results.print(f"row {number}", style="bold")
        for name, value in zip(columns, row, strict=True):
            results.print(f"  {name:{longest}}  {value}", soft_wrap=True)
