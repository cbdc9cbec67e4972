"""`heapfit allocators`: what can be compared, what of it is here, and getting the rest."""

from typing import Annotated, Any

import typer
from rich.text import Text

from heapfit import catalogue
from heapfit.catalogue.allocators import find_allocators
from heapfit.catalogue.library_options import library_options, written
from heapfit.catalogue.sources import how_to_name
from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import Group, new_app
from heapfit.cli.output import messages, print_facts, print_json, print_table, results, say, table
from heapfit.errors import HeapfitError
from heapfit.records import Allocator, InstalledAllocator

# Columns: with less beside an option's name, what it means is below that.
_LEAST_ROOM = 30

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
    rows.columns[0].no_wrap = True  # to be copied
    for entry, installed in found:
        version = Text(installed.version) if installed else Text(_absent(entry), style="dim")
        rows.add_row(entry.name, version, _origin(entry), entry.title)
    results.print(rows)


@app.command("install", epilog="Example:  heapfit allocators install jemalloc mimalloc")
def install(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Allocators. Default: the whole catalogue."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Install allocators and try each on real programs; installed ones are only tried.

    One that cannot be installed does not stop the others.
    """
    wanted = find_allocators(names) if names else _installable()
    installed: list[InstalledAllocator] = []
    failed: dict[str, HeapfitError] = {}
    for entry in wanted:
        try:
            installed.append(catalogue.install_allocator(entry, say))
        except HeapfitError as error:
            if len(wanted) == 1:
                raise
            failed[entry.name] = error
            messages.print(str(error), style="bold", soft_wrap=True)
    _show_installed(installed, as_json=as_json)
    if failed:
        raise HeapfitError(
            f"{len(failed)} of {len(wanted)} could not be installed: {', '.join(failed)}"
        )


def _installable() -> list[Allocator]:
    """Return the whole catalogue but for what no registry has."""
    known = catalogue.load_allocators().values()
    return [entry for entry in known if entry.source.kind != "by-hand"]


def _show_installed(installed: list[InstalledAllocator], *, as_json: bool) -> None:
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
    """Show everything that is known about one allocator; of heapfit its options, too."""
    entry = find_allocators([name])[0]
    installed = catalogue.find_installed(entry)
    library = installed.library if installed and entry.source.kind == "heapfit" else None
    options = [
        {
            "name": each.name.decode(),
            "default": written(each, each.initial),
            "meaning": each.description.decode(),
        }
        for each in (library_options(library) if library else [])
    ]
    if as_json:
        print_json({**_described(entry, installed), "options": options})
        return
    print_facts(
        {
            "name": entry.name,
            "title": entry.title,
            "homepage": entry.homepage,
            "from": _origin(entry),
            "note": entry.note,
            "version": installed.version if installed else _absent(entry),
            "library": str(installed.library) if installed and installed.library else None,
            "sha256": installed.sha256 if installed else None,
        }
    )
    if options:
        results.print()
        rows = [list(each.values()) for each in options]
        print_table(list(options[0]), rows, least=_LEAST_ROOM)


def _described(entry: Allocator, installed: InstalledAllocator | None) -> dict[str, Any]:
    return {**entry.model_dump(mode="json"), "installed": installed}


def _absent(entry: Allocator) -> str:
    return "in no registry" if entry.source.kind == "by-hand" else "not installed"


def _origin(entry: Allocator) -> str:
    source = entry.source
    if source.kind == "by-hand":
        return f"yours: {how_to_name(entry)}"
    where = {"system": "the system", "heapfit": "this installation", "file": str(source.library)}
    return where.get(source.kind, f"{source.kind}: {source.package}")
