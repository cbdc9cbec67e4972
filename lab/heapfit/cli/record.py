"""`heapfit record`: write down what a program does with its heap."""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from heapfit.cli.arguments import AsJson, program_of
from heapfit.cli.commands import new_app
from heapfit.cli.launch import cannot_run, inherited
from heapfit.cli.output import messages, print_json, warn
from heapfit.errors import UsageError
from heapfit.live import figures
from heapfit.options import size_in_bytes
from heapfit.program import why_not_preloadable
from heapfit.record import (
    OPTIONS,
    NothingRecorded,
    Recording,
    RecordOptions,
    Written,
    examine,
    is_written,
)
from heapfit.record import run as run_recorded

app = new_app()

SUFFIX = ".hft"
_DURATION = re.compile(r"([0-9]+)(s|m|h)")
_UNITS_S = {"s": 1, "m": 60, "h": 3600}


@app.command(
    options_metavar="[OPTIONS] -- CMD",
    epilog="Example:  heapfit record -o redis.hft --for 60s -- redis-server --port 7000",
)
def record(
    context: typer.Context,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="%p becomes the process's number. Default: PROGRAM.%p.hft in this folder.",
        ),
    ] = None,
    children: Annotated[
        bool,
        typer.Option("--attach-children", help="Record the processes that it starts, too."),
    ] = False,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Stop after 60s, 5m or 1h; it runs on."),
    ] = None,
    later: Annotated[
        bool, typer.Option("--later", help="Begin with heapfit ctl PID record start.")
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Note an allocation every so many bytes; 512k in production."
        ),
    ] = None,
    sites: Annotated[
        int, typer.Option(metavar="N", help="Follow N return addresses, at most 64.")
    ] = 0,
    allocator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Under which it runs: as compare names it. Default: its own."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a program and write down all that it does with its heap; what it prints is not touched.

    The exit code and the signals are the program's own. Its children are recorded with
    --attach-children only, each into FILE.PID. To stop sooner, or begin later, use heapfit ctl PID
    record. With --json what was written is printed, and what the program prints goes to standard
    error.
    """
    command = program_of(context, "record -- CMD")
    OPTIONS["sites"].check(str(sites))
    options = RecordOptions(
        children=children,
        later=later,
        seconds=_seconds(duration),
        sample=_sample(sample),
        sites=sites,
        allocator=allocator,
    )
    recording = _record(command, output or _default(command), options, as_json)
    written = [examine(path) for path in recording.files]
    if as_json:
        print_json({"files": list(map(_described, written)), "exit_code": recording.exit_code})
    else:
        messages.print(_line(written), soft_wrap=True, markup=False)
    _warn_of_gaps(written, options)
    end_as(recording.exit_code)


def _record(command: list[str], path: Path, options: RecordOptions, as_json: bool) -> Recording:
    if obstacle := why_not_preloadable(command[0]):
        warn(f"note: nothing can be recorded of {command[0]} itself: {obstacle}")
    stdout = sys.stderr.fileno() if as_json else None
    try:
        return run_recorded(command, path, options, inherited(), stdout)
    except NothingRecorded as error:
        if error.status == 0:
            raise
        warn(f"heapfit: {error}")
        end_as(error.status)
    except (OSError, ValueError) as error:
        raise cannot_run(command, error) from error


def end_as(status: int) -> NoReturn:
    """End as the program did: by its exit code, or by the signal that `-status` is."""
    sys.stdout.flush()
    if status < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The program's own will do.
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    raise typer.Exit(status)


def _default(command: list[str]) -> Path:
    return Path(f"{Path(command[0]).name}.%p{SUFFIX}")


def _seconds(text: str | None) -> int:
    if text is None:
        return 0
    written = _DURATION.fullmatch(text)
    if written is None or not int(written[1]):
        raise UsageError(f"--for takes a time such as 60s, 5m or 1h, not {text!r}")
    return int(written[1]) * _UNITS_S[written[2]]


def _sample(text: str | None) -> int:
    if text is None:
        return 0
    OPTIONS["sample"].check(text)
    return size_in_bytes(text)


def _line(written: list[Written]) -> str:
    """Return what was written, and the command that goes on from there."""
    paths = [shlex.quote(os.path.relpath(each.path)) for each in written]
    size, count = sum(each.size for each in written), sum(each.events for each in written)
    total = Written(written[0].path, size, count, all(each.whole for each in written))
    what = paths[0] if len(paths) == 1 else f"{len(paths)} files ({paths[0]} …)"
    each = f", {total.bytes_per_event:.1f} bytes each" if total.bytes_per_event else ""
    events = f"{total.events:,} events{each} ({figures.size(total.size)})"
    return f"wrote {what}: {events}; next: heapfit profile {' '.join(paths)}"


def _described(written: Written) -> dict[str, Any]:
    return {
        "path": str(written.path),
        "bytes": written.size,
        "events": written.events,
        "bytes_per_event": written.bytes_per_event,
        "whole": written.whole,
    }


def _warn_of_gaps(written: list[Written], options: RecordOptions) -> None:
    """Say what is odd about the files: a person would find out after hours, reading them."""
    for each in written:
        if not each.whole:
            why = "has no end, for its process was killed; all but the last moments are in it"
            if is_written(each.path):
                why = "has no end yet, for its process runs on; heapfit ctl PID record stop ends it"
            warn(f"note: {each.path.name} {why}")
    if not any(each.events for each in written):
        told = "--sample is larger than all that it allocated" if options.sample else ""
        warn(f"note: there is no event in it; {told or 'did the program allocate at all?'}")
