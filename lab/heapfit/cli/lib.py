"""`heapfit lib`: where the library is, for LD_PRELOAD in a unit file or a script."""

import os
from typing import Annotated

import typer

from heapfit import __version__, paths
from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app

app = new_app()


@app.command(epilog="Example:  LD_PRELOAD=$(heapfit lib) git status")
def lib(
    variant: Annotated[
        str, typer.Option(metavar="NAME", help="The variant of heapfit's library.")
    ] = paths.DEFAULT_VARIANT,
    gdb: Annotated[
        bool,
        typer.Option(
            "--gdb", help="Print the path of the script with which gdb reads the heap instead."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the path of heapfit's shared library."""
    library, script = paths.library(variant), paths.gdb_script()
    if as_json:
        from heapfit.cli.output import print_json

        found = {"variant": variant, "library": str(library), "gdb": str(script)}
        print_json({**found, "version": __version__})
    else:
        typer.echo(os.fsencode(script if gdb else library))
