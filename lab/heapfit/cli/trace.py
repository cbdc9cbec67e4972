"""`heapfit trace`: look at, convert and handle the traces that `heapfit record` writes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heapfit.cli.arguments import AsJson, split_numbers, time_ns
from heapfit.cli.commands import Group, new_app
from heapfit.cli.output import messages, print_json, results, say, warn
from heapfit.cli.progress import WorkProgress
from heapfit.errors import UsageError
from heapfit.files import RECORDING_SUFFIX, free_name
from heapfit.profile.flames.formats import Format, Unit, What
from heapfit.text import shell_word

if TYPE_CHECKING:
    from heapfit.trace.native import Problems

app = new_app(cls=Group, epilog="Example:  heapfit trace info server.hft")

_TABLES_SUFFIX = ".tables"
# What a person does with an exported file.
_OPENED_BY = {
    Format.PPROF: "look at it with: go tool pprof -http : {}",
    Format.FOLDED: "draw it with: flamegraph.pl --countname bytes {} > flames.svg",
    Format.SPEEDSCOPE: "open it in: https://www.speedscope.app",
    Format.PERFETTO: "open it in: https://ui.perfetto.dev",
}

Trace = Annotated[Path, typer.Argument(metavar="TRACE", help="A file that heapfit record wrote.")]
Written = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="The new trace, which must not exist yet. Default: named after it.",
    ),
]


@app.callback(invoke_without_command=True)
def trace(context: typer.Context) -> None:
    """Traces of heapfit record: look at them, convert them, cut, merge and anonymise them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example:  heapfit trace info server.hft")
def info(trace: Trace, as_json: AsJson = False) -> None:
    """Show what was recorded, how much, and whether the file is whole."""
    from heapfit.trace.convert import inspect

    with _shown(f"reading {trace.name}") as progress:
        found, threads = inspect(_there(trace), progress)
    if as_json:
        print_json({**found.plain, "by_thread": [vars(thread) for thread in threads]})
        return
    from heapfit.cli.trace_tables import show

    show(found, threads)


@app.command(epilog="Example:  heapfit trace convert server.hft --out server.tables")
def convert(
    trace: Trace,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", help="Default: the trace's name with .tables"),
    ] = None,
    symbols: Annotated[
        bool, typer.Option("--symbols/--no-symbols", help="Look up the names of call sites.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Convert a trace into Parquet tables: its objects, memory over time, threads, call sites.

    Anything that reads Parquet can query them. An older conversion in DIR is replaced.
    """
    from heapfit.trace.convert import convert as convert_trace

    folder = out or trace.with_name(trace.name.removesuffix(RECORDING_SUFFIX) + _TABLES_SUFFIX)
    with _shown(f"converting {trace.name}") as progress:
        made = convert_trace(_there(trace), folder, progress, symbols=symbols)
    _answer(
        as_json,
        {**made.plain, "folder": str(folder)},
        f"{folder}: {made.objects:,} objects of {made.totals.events:,} events",
        made.problems,
    )


@app.command(epilog="Example:  heapfit trace export server.hft --to pprof -o server.pb.gz")
def export(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="A file that heapfit record wrote, or its tables."),
    ],
    to: Annotated[Format, typer.Option("--to", help="The tool that is to read the file.")],
    what: Annotated[
        What, typer.Option("--what", help="Which blocks to count, or to show first.")
    ] = What.LIVE_AT_PEAK,
    by: Annotated[Unit, typer.Option("--by", help="What to count, or to show first.")] = Unit.BYTES,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Default: standard output, if that is not a terminal.",
        ),
    ] = None,
) -> None:
    """Write the call sites of a trace, with what they hold, as a file for another tool.

    pprof: for `go tool pprof`, with Go's four sample types. folded: one stack per line, for
    FlameGraph and inferno. speedscope, perfetto: for these two viewers. If only a sample was
    recorded, all figures are estimates.
    """
    if out is None and sys.stdout.isatty():
        raise UsageError(
            "the file is not printed on a terminal; name one with -o FILE, or use a pipe"
        )
    from heapfit.files import write_bytes
    from heapfit.profile.flames.export import export as export_trace

    if not trace.is_dir():
        _there(trace)
    with WorkProgress(messages) as progress:
        made = export_trace(trace, to, what, by, progress)
    if out is None:
        sys.stdout.buffer.write(made)
    else:
        write_bytes(out, made, "name another file with -o, or make room")
        say(f"wrote {out}; {_OPENED_BY[to].format(shell_word(out))}")


@app.command(epilog="Example:  heapfit trace cut server.hft --from 10s --to 12.5s")
def cut(
    trace: Trace,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="TIME", help="Where the part begins, as in 10s, 250ms or 2m."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Where the part ends.")
    ] = None,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="[FIRST:]LAST",
            help="A range of events by number: 1000000 is the first million.",
        ),
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N,N", help="Keep what these threads allocate; heapfit trace info numbers them."
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live/--no-live", help="Begin with the blocks that are live at the start."),
    ] = True,
    out: Written = None,
    as_json: AsJson = False,
) -> None:
    """Cut a part out of a trace: a span of time, a range of events, or what some threads allocate.

    The part is a trace whose time begins at 0. Blocks that are live at its start are allocated
    there, all at once. With --threads, the frees of these threads' blocks are kept, whichever
    thread makes them; threads are renumbered in the order in which they appear.
    """
    from heapfit.trace.cut import Part
    from heapfit.trace.cut import cut as cut_trace

    first, last = _numbers(events)
    part = Part(
        from_ns=_ns(start, "--from") or 0,
        to_ns=_ns(to, "--to"),
        from_event=first,
        to_event=last,
        threads=None if threads is None else frozenset(split_numbers(threads, "--threads")),
        live=live,
    )
    if part == Part(live=live):
        raise UsageError("cut what? give --from, --to, --events or --threads")
    target = out or _beside(trace, "cut")
    with _shown(f"cutting {trace.name}") as progress:
        made = cut_trace(_there(trace), target, part, progress)
    _answer(
        as_json,
        {**asdict(made), "file": str(target)},
        f"{target}: {made.events:,} events, {made.live:,} blocks live at its start",
        made.problems,
    )


@app.command(epilog="Example:  heapfit trace merge server.hft server.hft.2 --out all.hft")
def merge(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Traces of several processes, or of parts of one."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="The new trace, which must not exist yet."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Merge traces into one, in the order of their time.

    Parts of one process are joined again. If it was not recorded between two parts, blocks that
    were live at the end of the first count as freed there. Processes stay apart: their threads
    are numbered consecutively, and the addresses of each process are moved by a multiple of 2^57.
    When a process ends while others go on, its live blocks count as freed and its resident memory
    counts no more. Of a process that already ran, the first known resident memory counts before
    its recording, too. Merge before you anonymise: an anonymous trace does not tell when it began.
    """
    from heapfit.trace.merge import merge as merge_traces

    with _shown("merging") as progress:
        made = merge_traces([_there(each) for each in traces], out, progress)
    _answer(
        as_json,
        {**asdict(made), "file": str(out)},
        f"{out}: {made.events:,} events of {made.processes:,} process"
        + ("es" if made.processes > 1 else ""),
        made.problems,
    )


@app.command(epilog="Example:  heapfit trace anonymise server.hft --out to-send.hft")
def anonymise(trace: Trace, out: Written = None, as_json: AsJson = False) -> None:
    """Remove what shows where a trace is from: names, paths, arguments, process IDs, addresses.

    Sizes, times, threads, call sites and how they call each other are kept, so that a profile
    finds the same and a replay does the same.
    """
    from heapfit.trace.anonymise import anonymise as anonymise_trace

    target = out or _beside(trace, "anonymous")
    with _shown(f"anonymising {trace.name}") as progress:
        made = anonymise_trace(_there(trace), target, progress)
    _answer(
        as_json,
        {**asdict(made), "file": str(target)},
        f"{target}: {made.events:,} events",
        made.problems,
    )


@contextmanager
def _shown(what: str) -> Iterator[Callable[[int, int], None]]:
    """Give a function that shows how far the reading is."""
    with WorkProgress(messages) as progress:
        yield lambda done, total: progress(done, total, what)


def _answer(as_json: bool, plain: dict[str, Any], line: str, wrong: Problems) -> None:
    """Say what was written, and what it lacks because its trace does."""
    if as_json:
        print_json(plain)
    else:
        results.print(line, soft_wrap=True)
    from heapfit.trace.problems import sentences

    for problem in sentences(wrong):
        warn(problem)


def _there(trace: Path) -> Path:
    if trace.is_dir():
        raise UsageError(f"{trace} is a folder; name a trace, as heapfit record writes it")
    if not trace.exists():
        made = f"heapfit record -o {shell_word(trace)} -- CMD"
        raise UsageError(f"there is no {trace}; make one with: {made}")
    return trace


def _beside(trace: Path, what: str) -> Path:
    name = trace.name.removesuffix(RECORDING_SUFFIX)
    made = free_name(trace.with_name(f"{name}.{what}{RECORDING_SUFFIX}"))
    say(f"writing {made}")
    return made


def _ns(text: str | None, option: str) -> int | None:
    """Return nanoseconds; a number alone is of seconds."""
    if text is None:
        return None
    return time_ns(f"{text}s" if text.replace(".", "", 1).isdecimal() else text, option)


def _numbers(text: str | None) -> tuple[int, int | None]:
    """Return the first event of a range, and that behind the last.

    >>> _numbers("1000"), _numbers("5:10"), _numbers("5:")
    ((0, 1000), (5, 10), (5, None))
    """
    if text is None:
        return 0, None
    first, _, last = text.rpartition(":")
    if not all(each.isdecimal() for each in (first, last) if each) or not (first or last):
        raise UsageError(f"--events takes a number, or two with a colon as in 5:10, not {text!r}")
    return int(first or 0), int(last) if last else None
