"""`heapfit report`: the answer of a study that was measured earlier, or its trials as a table."""

import sys
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from heapfit.cli import answer
from heapfit.cli.arguments import AsJson, Weights, weights
from heapfit.cli.commands import new_app
from heapfit.cli.gate import check_folders
from heapfit.cli.output import messages
from heapfit.errors import UsageError
from heapfit.study import is_series, load, load_series
from heapfit.text import counted

app = new_app()

_CSV = "--csv"
_STANDARD_OUTPUT = "-"


class _CsvMayStandAlone(TyperCommand):
    """Takes `--csv` without a file for standard output, which Typer has no way to say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if _CSV in args:
            after = args.index(_CSV) + 1
            if args[after : after + 1] == [] or args[after].startswith("--"):
                args = [*args[:after], _STANDARD_OUTPUT, *args[after:]]
        return super().parse_args(ctx, args)


@app.command(
    cls=_CsvMayStandAlone,
    epilog="Example:  heapfit report heapfit-results/xml-transform --open",
)
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that compare or study wrote.")
    ],
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    csv: Annotated[
        str | None,
        typer.Option(
            _CSV,
            metavar="[FILE]",
            help="Write a row for each trial, to standard output or to FILE.",
        ),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the same rows as Parquet, with units."),
    ] = None,
    weighed: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Print the table of a study, finished or not, and write its page again.

    With --csv or --parquet, only the trials are written, one row each, in base units.
    """
    given = weights(weighed) if weighed is not None else None
    if csv is not None or parquet is not None:
        if open_page or as_json or given:
            raise UsageError(
                "--csv and --parquet write trials alone; leave out --open, --json and --weights"
            )
        check_folders(Path(csv) if csv not in (None, _STANDARD_OUTPUT) else None, parquet)
        _write_trials(folder, csv, parquet)
        return
    if is_series(folder):
        if weighed is not None:
            raise UsageError("the weights of a study of many parts are in its file: `weights`")
        page = answer.show_series(folder, as_json=as_json)
    else:
        page = answer.show(folder, as_json=as_json, weights=given)
    if open_page:
        webbrowser.open(page.absolute().as_uri())


def _write_trials(folder: Path, csv: str | None, parquet: Path | None) -> None:
    from heapfit.report import rows

    if is_series(folder):
        parts = load_series(folder)[1]
    else:
        study, trials = load(folder)
        parts = {study.name: (study, trials)}
    if csv == _STANDARD_OUTPUT:
        sys.stdout.write(rows.csv_text(parts))
    elif csv is not None:
        rows.write_csv(parts, Path(csv))
    if parquet is not None:
        rows.write_parquet(parts, parquet)
    for path in filter(None, (csv, parquet)):
        if path != _STANDARD_OUTPUT:
            count = counted(sum(len(trials) for _, trials in parts.values()), "trial")
            messages.print(f"{count}: {path}", soft_wrap=True)
