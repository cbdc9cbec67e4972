"""`heapfit why`: what holds a process's memory, and what to do about it."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from heapfit.cli.arguments import AsJson, process_number, time_span
from heapfit.cli.commands import new_app
from heapfit.cli.output import print_json, results, say, table
from heapfit.errors import HeapfitError, UsageError
from heapfit.text import capitalised, counted, part_of, size, visible

if TYPE_CHECKING:
    from heapfit.host.proc import Process
    from heapfit.why import Finding, Growth, Reading

app = new_app()

_LISTED = 15
# Rows and sentences for what has at least this part of the resident memory, and sentences for what
# has grown; --all shows the rest.
_SHOWN = 0.02
_TOLD, _MOST = 0.1, 0.5
_MOST_GROWN = 5
_LONGEST = 100  # of a command line


@app.command(epilog="Example:  heapfit why redis-server --watch 60s")
def why(
    pid: Annotated[
        str | None,
        typer.Argument(
            metavar="[PID]", help="A process, by ID or name; without it, the largest are listed."
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Look again after this time, such as 60s, and say what has grown."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show small parts, and the evidence.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what holds the resident memory of a running process, and what to do next.

    Only /proc is read: the process may run under any allocator, needs no preparation, and does not
    stop. If it runs under heapfit and was started with --control, its heap is broken down, too;
    with the option sample, it names the call sites whose blocks keep free memory from being
    returned.
    """
    from heapfit.host.proc import LISTED_BY, largest
    from heapfit.why import findings, grown, read

    if pid is None:
        if watch is not None or every:
            raise UsageError("which process? --watch and --all take a PID; heapfit why lists some")
        _list(largest(_LISTED), as_json)
        return
    number = process_number(pid, LISTED_BY)
    reading = read(number, say)
    growth = None
    if watch is not None:
        wait_s = time_span(watch, "--watch")
        say(f"looking again in {wait_s:g} s")
        time.sleep(wait_s)
        before, reading = reading, _again(reading, number, every, as_json)
        if before.run != reading.run:
            raise HeapfitError(f"process {number} runs another program now: look at it again")
        growth = grown(before, reading)
        if any(each.matters for each in growth):  # If not now, in between.
            reading = replace(reading, computes=True)
    found = findings(reading)
    if as_json:
        print_json(_described(reading, found, growth))
    else:
        _show(reading, found, growth, every)


def _again(before: Reading, number: int, every: bool, as_json: bool) -> Reading:
    """Look again; where the process has ended meanwhile, show the first look."""
    from heapfit.host.proc import Gone
    from heapfit.why import findings, read

    try:
        return read(number)
    except Gone:
        if as_json:
            print_json(_described(before, findings(before), None))
        else:
            _show(before, findings(before), None, every)
        raise HeapfitError(
            f"process {number} ended before the second look; this was the first"
        ) from None


def _list(found: list[tuple[Process, int]], as_json: bool) -> None:
    if as_json:
        print_json([{"pid": each.pid, "name": each.name, "resident": held} for each, held in found])
        return
    rows = table("process", "resident", "command", right=["process", "resident"])
    for each, held in found:
        line = each.command_line
        cut = f"{line[:_LONGEST]}…" if len(line) > _LONGEST else line
        rows.add_row(str(each.pid), size(held), Text(cut))
    results.print(rows)
    results.print("For details of one: heapfit why PID", highlight=False)


def _described(reading: Reading, found: list[Finding], growth: list[Growth] | None) -> Any:
    from heapfit.cli.profile_tables import described_site

    return {
        "pid": reading.process.pid,
        "name": reading.process.name,
        "allocator": reading.allocator and asdict(reading.allocator),
        "runtime": reading.runtime,
        "threads": reading.threads,
        "resident": reading.resident,
        "most_resident": reading.most_resident,
        "proportional": reading.proportional,
        "swapped": reading.swapped,
        "huge": reading.huge,
        "findings": [asdict(each) for each in found],
        "limits": [asdict(each) for each in reading.limits],
        "settings": reading.settings if reading.settings_known else None,
        "pinners": reading.profile and [described_site(e) for e in reading.profile.pinners()],
        "growth": growth and [{**asdict(each), "gained": each.gained} for each in growth],
    }


def _show(reading: Reading, found: list[Finding], growth: list[Growth] | None, every: bool) -> None:
    process = reading.process
    held = max(reading.resident + reading.swapped, 1)
    swap = f" and {size(reading.swapped)} in swap" if reading.swapped else ""
    who = f"{process.name} (process {process.pid})"
    _print(f"{who} has {size(reading.resident)} resident{swap}.", "bold")
    allocator = reading.allocator.text if reading.allocator else "not known"
    runtime = f"runtime: {reading.runtime}; " if reading.runtime else ""
    _print(
        f"allocator: {allocator}; {runtime}{counted(reading.threads, 'thread')} on "
        f"{counted(reading.cores, 'core')}"
    )
    grew = [e for e in growth or () if e.matters][:_MOST_GROWN]
    if growth is not None:
        _show_growth(grew)
    least = 0.0 if every else _SHOWN * held
    column = "with swap" if reading.swapped else "resident"
    rows = table(column, "of all", "what it is", right=[column, "of all"])
    for each in found:
        if each.size >= least and not each.of_all:
            likely = " (likely)" if each.likely and every else ""
            share = part_of(each.size, held)
            rows.add_row(size(each.size), share, Text(visible(f"{each.title}{likely}")))
    results.print()
    results.print(rows)
    said: set[str] = set()
    grown = {each.key for each in grew}
    for each in found:
        # Files hold the most of a small process, and nothing is to be done about them.
        is_told = each.size >= (_MOST if each.cause == "files" else _TOLD) * held
        if is_told or every or each.cause in grown:
            _tell(each, every, said)


def _show_growth(grew: list[Growth]) -> None:
    if not grew:
        _print("Nothing has grown meanwhile.", "bold")
    for each in grew:
        title = capitalised(each.title) + "," * (", in use" in each.title)
        what = f"{title} grew by {size(each.gained)}, from {size(each.before)}."
        _print(what, "bold")


def _tell(finding: Finding, every: bool, said: set[str]) -> None:
    """Print a finding; of its commands those that were not `said` before."""
    results.print()
    _print(f"{capitalised(finding.title)}: {size(finding.size)}", "bold")
    _print(finding.sentence)
    for line in finding.evidence if every else []:
        _print(f"  {line}", "dim")
    for command in finding.commands:
        if command not in said:
            _print(f"→ {command}")
    said.update(finding.commands)


def _print(line: str, style: str = "") -> None:
    results.print(Text(visible(line), style), soft_wrap=line.startswith("→"))
