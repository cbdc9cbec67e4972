"""`heapfit report`: the answer of a study that was measured earlier."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from heapfit.cli import answer
from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.study import is_series

app = new_app()


@app.command(epilog="Example:  heapfit report heapfit-results/xml-transform --open")
def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that compare or study wrote.")
    ],
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the table of a study, finished or not, and write its page anew."""
    show = answer.show_series if is_series(folder) else answer.show
    page = show(folder, as_json=as_json)
    if open_page:
        webbrowser.open(page.absolute().as_uri())
