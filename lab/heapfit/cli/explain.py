"""`heapfit explain`: the functions and lines behind the addresses in the library's messages."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.cli.output import print_json
from heapfit.errors import UsageError

app = new_app()


@app.command(epilog="Example:  heapfit explain service.log")
def explain(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="A log that contains such reports, among whatever else; without it, or for -, "
            "stdin.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a log with functions and lines beside the addresses in reports of memory errors.

    They are looked up in the files that are here now, so explain a log on the machine where the
    program ran, before its files change. Where a file was rebuilt since, that is said instead, if
    the linker had given it a build ID.
    """
    from heapfit.explain import explained, reports

    if log is None or str(log) == "-":
        content = sys.stdin.buffer.read() if sys.stdin else b""
    elif log.is_dir():
        raise UsageError(f"'{log}' is a folder; name the file")
    elif log.exists():
        content = log.read_bytes()
    else:
        raise UsageError(
            f"there is no file '{log}'; to read a log from stdin: heapfit explain < FILE"
        )
    lines = content.decode(errors="replace").splitlines()
    if as_json:
        print_json(reports(lines))
        return
    for line in explained(lines):
        typer.echo(line)
