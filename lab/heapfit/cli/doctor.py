"""`heapfit doctor`: what of this machine helps or spoils a measurement."""

from __future__ import annotations

import typer
from rich.markup import escape

from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.cli.output import print_json, results, say, table
from heapfit.doctor import Finding, examine, examine_program
from heapfit.errors import UsageError

app = new_app()


@app.command(options_metavar="[OPTIONS] [-- CMD]", epilog="Example:  heapfit doctor -- ./server")
def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Look at this machine: what helps a measurement, what spoils it, and what to do about it.

    With `-- CMD`, look also at whether the malloc of that program can be replaced.
    """
    say("looking at this machine, about two seconds")
    findings = [*_program(context.obj), *examine()]
    if as_json:
        print_json([{**finding.model_dump(), "ok": finding.ok} for finding in findings])
        return
    rows = table("", "topic", "found, and what to do")
    for finding in findings:
        mark = "[green]ok[/green]" if finding.ok else "[yellow]warning[/yellow]"
        rows.add_row(mark, finding.topic, escape(finding.state))
        if finding.advice:
            rows.add_row("", "", f"[yellow]{escape(finding.advice)}[/yellow]")
    results.print(rows)


def _program(command: list[str] | None) -> list[Finding]:
    if not command:
        return []
    finding = examine_program(command)
    if finding is None:
        raise UsageError(f"{command[0]!r} is no program that can be looked at; check its name")
    return [finding]
