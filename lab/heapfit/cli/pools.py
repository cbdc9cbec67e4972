"""`heapfit pools`: which objects libheapfit-pools.so places by where they come from, and why."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import Group, new_app
from heapfit.cli.launch import environment
from heapfit.cli.output import print_json, say, warn
from heapfit.cli.pools_tables import show
from heapfit.errors import UsageError
from heapfit.options import POOLS
from heapfit.pools import Explanation, main_process, read
from heapfit.pools.graph import dot, write_graph
from heapfit.pools.run import explain as explain_run
from heapfit.symbols import Frame, Symbols

app = new_app(cls=Group, epilog="Example:  heapfit pools explain -- ./server --port 7000")

Frames = dict[int, list[Frame]]


@app.callback(invoke_without_command=True)
def pools(context: typer.Context) -> None:
    """Pools: explain where a program's objects were placed."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog="Example:  heapfit pools explain --graph shapes.svg -- ./server --port 7000")
def explain(
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE | -- CMD",
            help="A program, or the file that a program wrote with HEAPFIT_POOLS_EXPLAIN=FILE.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Set an option of the library; repeatable."
        ),
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a graph of what points to what: .dot, .svg, .png or .pdf."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show every group, not only the largest.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a program with pools, then say for each group of objects where it was placed, and why.

    A group is the objects that one chain of calls allocates. What the program prints goes to
    standard error. It must exit normally; if a server does so on Ctrl-C, end it that way.
    """
    found = _explanations(file, context.obj, settings or [])
    explained = main_process(found)
    symbols = Symbols(explained.modules)
    frames = {group.id: symbols.frames(group.chain) for group in explained.groups}
    if graph is not None:
        write_graph(graph, dot(explained, frames))
        say(f"the graph: {graph}")
    if as_json:
        print_json(_described(explained, frames))
    else:
        show(explained, frames, every=every)
    if len(found) > 1:
        others = ", ".join(_name(each) for each in found if each is not explained)
        warn(
            f"note: of {len(found)} processes, this is the one with the most objects; not shown: "
            f"{others}"
        )


def _explanations(
    file: Path | None, command: list[str] | None, settings: list[str]
) -> list[Explanation]:
    if bool(file) == bool(command):
        raise UsageError("which program? write: heapfit pools explain -- CMD")
    if file is not None:
        if settings:
            raise UsageError("--set is only for a program that is to be run")
        if not file.exists():
            raise UsageError(
                f"there is no {file}; name a file that a program wrote, or write -- CMD"
            )
        return [read(file)]
    assert command is not None
    under_pools = environment(POOLS, settings)
    return explain_run(command, under_pools)


def _name(explanation: Explanation) -> str:
    return f"{Path(explanation.program).name} ({explanation.pid})"


def _described(explanation: Explanation, frames: Frames) -> dict[str, Any]:
    """Return all that is known as plain data: what the library wrote, and the symbols."""
    plain = explanation.model_dump(mode="json", by_alias=True)
    for group in plain["groups"]:
        group["frames"] = [asdict(frame) for frame in frames[group["id"]]]
    return plain
