"""`heapfit allocators`: what can be compared, what of it is here, and getting the rest."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from heapfit import catalogue
from heapfit.catalogue.allocators import find_allocators
from heapfit.cli.arguments import AsJson, Everything, Names, wanted_names
from heapfit.cli.commands import Group, new_app
from heapfit.cli.output import print_json, results, say, table
from heapfit.records import Allocator, InstalledAllocator

app = new_app(cls=Group, epilog="Example:  heapfit allocators install jemalloc mimalloc")


@app.callback(invoke_without_command=True)
def allocators(context: typer.Context, as_json: AsJson = False) -> None:
    """The allocators that heapfit knows: list them, install them, show one."""
    if context.invoked_subcommand is None:
        list_allocators(as_json)


@app.command("list", epilog="Example:  heapfit allocators list --json")
def list_allocators(as_json: AsJson = False) -> None:
    """List the catalogue: what is installed, in which version, from where."""
    found = [
        (entry, catalogue.find_installed(entry)) for entry in catalogue.load_allocators().values()
    ]
    if as_json:
        print_json([_described(*pair) for pair in found])
        return
    rows = table("allocator", "version", "from", "what it is")
    for entry, installed in found:
        version = installed.version if installed else "[dim]not installed[/dim]"
        rows.add_row(entry.name, version, _origin(entry), entry.title)
    results.print(rows)


@app.command("install", epilog="Example:  heapfit allocators install --all")
def install(names: Names = None, everything: Everything = False, as_json: AsJson = False) -> None:
    """Install allocators, and try each on real programs."""
    wanted = wanted_names("allocators", names, catalogue.load_allocators(), everything)
    installed = [catalogue.install_allocator(entry, say) for entry in find_allocators(wanted)]
    if as_json:
        print_json(installed)
        return
    for allocator in installed:
        where = allocator.library or "the system's own"
        results.print(f"{allocator.name} {allocator.version}: {where}", soft_wrap=True)


@app.command("show", epilog="Example:  heapfit allocators show jemalloc")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An allocator, or mine=./lib.so.")],
    as_json: AsJson = False,
) -> None:
    """Show everything that is known of one allocator."""
    entry = find_allocators([name])[0]
    installed = catalogue.find_installed(entry)
    if as_json:
        print_json(_described(entry, installed))
        return
    facts = {
        "name": entry.name,
        "title": entry.title,
        "homepage": entry.homepage,
        "from": _origin(entry),
        "note": entry.note,
        "version": installed.version if installed else "not installed",
        "library": str(installed.library) if installed and installed.library else None,
        "sha256": installed.sha256 if installed else None,
    }
    rows = table("", "")
    rows.show_header = False
    for fact, value in facts.items():
        if value:
            rows.add_row(f"[bold]{fact}[/bold]", value)
    results.print(rows)


def _described(entry: Allocator, installed: InstalledAllocator | None) -> dict[str, Any]:
    return {**entry.model_dump(mode="json"), "installed": installed}


def _origin(entry: Allocator) -> str:
    source = entry.source
    where = {"system": "the system", "heapfit": "this installation", "file": str(source.library)}
    return where.get(source.kind, f"{source.kind}: {source.package}")
