"""`heapfit doctor`: what of this machine helps or spoils a measurement."""

from __future__ import annotations

from rich.markup import escape

from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.cli.output import print_json, results, say, table
from heapfit.doctor import examine

app = new_app()


@app.command(epilog="Example:  heapfit doctor --json")
def doctor(as_json: AsJson = False) -> None:
    """Look at this machine: what helps a measurement, what spoils it, and what to do about it."""
    say("looking at this machine, about two seconds")
    findings = examine()
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
