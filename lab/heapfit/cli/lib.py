"""`heapfit lib`: where the library is, for LD_PRELOAD in a unit file or a script."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from heapfit import __version__, paths
from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app

app = new_app()


@app.command(epilog="Example:  LD_PRELOAD=$(heapfit lib) git status")
def lib(
    variant: Annotated[
        str, typer.Option(metavar="NAME", help="Which of heapfit's libraries.")
    ] = paths.DEFAULT_VARIANT,
    as_json: AsJson = False,
) -> None:
    """Print the path of heapfit's shared library."""
    library = paths.library(variant)
    if as_json:
        found = {"variant": variant, "library": str(library), "version": __version__}
        typer.echo(json.dumps(found, indent=2))
    else:
        typer.echo(library)
