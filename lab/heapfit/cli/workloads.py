"""`heapfit workloads`: the programs to compare allocators on, and getting what they need."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from heapfit import catalogue
from heapfit.catalogue.workloads import is_prepared
from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import Group, new_app
from heapfit.cli.output import print_json, results, say, table
from heapfit.errors import UsageError
from heapfit.records import Workload

app = new_app(cls=Group, epilog="Example:  heapfit workloads install redis")


@app.callback(invoke_without_command=True)
def workloads(context: typer.Context, as_json: AsJson = False) -> None:
    """The workloads that heapfit comes with: list them, install what they need, show one."""
    if context.invoked_subcommand is None:
        list_workloads(as_json)


@app.command("list", epilog="Example:  heapfit workloads list --json")
def list_workloads(as_json: AsJson = False) -> None:
    """List the workloads and whether this machine has what they need."""
    known = catalogue.load_workloads().values()
    if as_json:
        print_json([_described(workload) for workload in known])
        return
    rows = table("workload", "state", "what it asks of an allocator")
    for workload in known:
        rows.add_row(workload.name, _state(workload), workload.question)
    results.print(rows)


@app.command("install", epilog="Example:  heapfit workloads install --all")
def install(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Workloads, or TOML files.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Install for all workloads.")] = False,
    as_json: AsJson = False,
) -> None:
    """Install the programs that workloads need, and prepare their data."""
    if not names and not everything:
        raise UsageError("which workloads? name them, or write --all")
    wanted = list(catalogue.load_workloads()) if everything else names or []
    chosen = [catalogue.resolve_workload(name) for name in wanted]
    for workload in chosen:
        catalogue.install_workload(workload, say)
        catalogue.prepare_workload(workload, say)
    if as_json:
        print_json([_described(workload) for workload in chosen])
        return
    for workload in chosen:
        results.print(f"{workload.name}: {_state(workload)}")


@app.command("show", epilog="Example:  heapfit workloads show xml-transform")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A workload, or a TOML file.")],
    as_json: AsJson = False,
) -> None:
    """Show everything that is known of one workload."""
    workload = catalogue.resolve_workload(name)
    if as_json:
        print_json(_described(workload))
        return
    facts = {
        "name": workload.name,
        "title": workload.title,
        "question": workload.question,
        "command": shlex.join(workload.run.command),
        "server": shlex.join(workload.server.command) if workload.server else "",
        "packages": ", ".join(workload.install.debian),
        "metric": workload.primary_metric,
        "described in": str(workload.here),
        "data": str(catalogue.data_folder(workload)) if workload.prepare else "",
        "state": _state(workload),
    }
    rows = table("", "")
    rows.show_header = False
    for fact, value in facts.items():
        if value:
            rows.add_row(f"[bold]{fact}[/bold]", value)
    results.print(rows)


def _state(workload: Workload) -> str:
    missing = catalogue.missing_for(workload)
    if missing:
        return f"needs {', '.join(missing)}"
    return "ready" if is_prepared(workload) else "installed; data not prepared yet"


def _described(workload: Workload) -> dict[str, Any]:
    return {
        **workload.model_dump(mode="json"),
        "missing": catalogue.missing_for(workload),
        "prepared": is_prepared(workload),
    }
