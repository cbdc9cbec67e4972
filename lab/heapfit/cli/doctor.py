"""`heapfit doctor`: what of this machine helps or spoils a measurement."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.cli.output import print_json, results, say, table
from heapfit.doctor import Finding, examine, examine_objects, examine_program
from heapfit.errors import UsageError

app = new_app()

Every = Annotated[
    bool, typer.Option("--all", help="Also list the checks that found nothing amiss.")
]


@app.command(options_metavar="[OPTIONS] [-- CMD]", epilog="Example:  heapfit doctor -- ./server")
def doctor(context: typer.Context, every: Every = False, as_json: AsJson = False) -> None:
    """Look at this machine: what spoils a measurement, and what to do about it.

    With `-- CMD`, also say whether the malloc of that program can be replaced.
    """
    say("looking at this machine, about two seconds")
    asked, machine = _program(context.obj), examine()
    if as_json:
        print_json([{**each.model_dump(), "ok": each.ok} for each in [*asked, *machine]])
        return
    amiss = [each for each in machine if not each.ok]
    shown = [*asked, *(machine if every else amiss)]
    if shown:
        results.print(_rows(shown))
    if not every:
        fine = len(machine) - len(amiss)
        results.print(
            f"{fine} of {len(machine)} checks of this machine found nothing amiss; "
            "--all lists them too."
        )


def _rows(findings: list[Finding]) -> Table:
    rows = table("", "topic", "found, and what to do")
    for finding in findings:
        mark = Text("ok", "green") if finding.ok else Text("warning", "yellow")
        rows.add_row(mark, finding.topic, finding.state)
        if finding.advice:
            rows.add_row("", "", Text(finding.advice, "yellow"))
    return rows


def _program(command: list[str] | None) -> list[Finding]:
    if not command:
        return []
    finding = examine_program(command)
    if finding is None:
        raise UsageError(f"{command[0]!r} is not a program that can be examined; check its name")
    objects = examine_objects(command)
    return [finding] if objects is None else [finding, objects]
