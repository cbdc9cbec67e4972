"""`heapfit run`: the user's program under heapfit, or under another allocator."""

import sys
from typing import Annotated

import typer

from heapfit import paths
from heapfit.cli.arguments import AsJson
from heapfit.cli.commands import new_app
from heapfit.cli.launch import become, environment_changes, refined
from heapfit.errors import UsageError
from heapfit.host.program import started_by

app = new_app()


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog="Example:  heapfit run --allocator jemalloc -- redis-server --port 7000",
)
def run(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD", help="The program and its arguments.")
    ] = None,
    variant: Annotated[
        str, typer.Option(metavar="NAME", help="The variant of heapfit's library to load.")
    ] = paths.DEFAULT_VARIANT,
    allocator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:A=B,…]",
            help="Another allocator, or mine=./lib.so; A=B is an option of heapfit or "
            "env.NAME=VALUE.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set an option of the library; repeatable. heapfit allocators show heapfit lists "
            "them.",
        ),
    ] = None,
    control: Annotated[
        bool,
        typer.Option(
            "--control", help="Let heapfit ctl, top and export watch and control the program."
        ),
    ] = False,
    guard: Annotated[
        bool,
        typer.Option(
            "--guard",
            help="Report memory errors: one small object per 32 MiB allocated is placed next to an "
            "inaccessible page. Another rate: --set guard_sample=SIZE.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a program under an allocator; its exit code and its signals are the program's own.

    With --json the program is not run: the command and the environment that it would be run with
    are printed instead.
    """
    command = _command(words or [], context.obj)
    chosen = refined(control, guard, settings or [])
    if allocator is None:
        changes = environment_changes(variant, chosen)
    elif variant != paths.DEFAULT_VARIANT:
        raise UsageError("--variant and --allocator both name a library; give one of them")
    else:
        from heapfit import catalogue

        treatment = catalogue.resolve_treatment(allocator, chosen)
        changes = catalogue.environment_under(treatment)
        if treatment.library is None:
            _say_what_it_is_linked_with(command[0], treatment.name)
        if said := catalogue.already_preloaded(treatment):
            print(f"heapfit: note: {said}", file=sys.stderr)
    if as_json:
        from heapfit.cli.output import print_json

        print_json({"command": command, "environment": changes})
    else:
        become(command, changes)


def _say_what_it_is_linked_with(name: str, allocator: str) -> None:
    """Say in one line where preloading nothing leaves the program another malloc than its name."""
    from heapfit.doctor.program import c_library, libraries_of, linked_allocator

    program = started_by(name)
    libraries = libraries_of(program) if program else []
    if linked := linked_allocator(libraries):
        print(
            f"heapfit: note: {name} is linked with {linked.name}, which serves it, since "
            f"{allocator} preloads nothing; for the C library's malloc: --allocator "
            f"libc={c_library(libraries)}",
            file=sys.stderr,
        )


def _command(words: list[str], program: list[str] | None) -> list[str]:
    command = [*words, "--", *program] if words and program is not None else words or program
    if not command:
        raise UsageError("which program? write: heapfit run -- CMD")
    return command
