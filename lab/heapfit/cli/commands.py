"""The table of commands, and the application that loads each one's module when it is used."""

import importlib
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from heapfit import __version__
from heapfit.cli.arguments import split_program
from heapfit.cli.completion import about
from heapfit.cli.failures import Interrupted
from heapfit.errors import UsageError, unknown

# In the order of `heapfit --help`; each is a module of this package.
COMMANDS = (
    "compare", "fit", "check", "study", "report", "diff", "record", "profile", "replay", "run",
    "lib", "ctl", "top", "export", "why", "explain", "pools", "trace", "allocators", "workloads",
    "doctor",
)  # fmt: skip

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class Group(TyperGroup):
    """A group of commands that names the nearest one when it is asked for one it has not."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not ctx.resilient_parsing:
            raise unknown("command", args[0], known, f"{ctx.command_path} --help")
        if args and ctx.params.get("as_json"):  # which would be dropped
            raise UsageError(
                f"write --json behind the subcommand: {ctx.command_path} {args[0]} --json"
            )
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """heapfit's own commands, each imported when it is first asked for."""

    _told: Mapping[str, str] = MappingProxyType({})

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def invoke(self, ctx: Any) -> Any:
        """Say that Ctrl-C was seen, where a command does not: Typer would end without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted("interrupted") from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Give a command that takes no program what follows `--`: there it ends the options."""
        name, command, rest = super().resolve_command(ctx, args)
        if ctx.obj is not None and not _takes_program(command):
            rest, ctx.obj = [*rest, "--", *ctx.obj], None
        return name, command, rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the commands from completion's table: importing them takes a third of a second."""
        self._told = {name: about(name) for name in COMMANDS}
        super().format_help(ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in self._told:
            return typer.core.TyperCommand(cmd_name, help=self._told[cmd_name])
        module = importlib.import_module(f"heapfit.cli.{cmd_name}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        for each in (command, *getattr(command, "commands", {}).values()):
            each.help = reflowed(each.help)
            _show_no_type_of_flags(each)
        return command


def _takes_program(command: Any) -> bool:
    """Whether a command or one of a group's takes a program, as its usage says."""
    words = [command.options_metavar, *(getattr(each, "metavar", "") for each in command.params)]
    of_a_group = getattr(command, "commands", {}).values()
    return any("-- CMD" in (each or "") for each in words) or any(map(_takes_program, of_a_group))


def _show_no_type_of_flags(command: Any) -> None:
    """Typer's help has `<bool>` beside a flag, as if a value were to follow it."""
    for each in command.get_params(typer.Context(command, **SETTINGS)):
        if getattr(each, "is_flag", False):
            each.metavar = ""


def reflowed(text: str | None) -> str:
    """Return a help's paragraphs and items of lists as a line each, which the terminal breaks where
    it is full.

    >>> reflowed("Exit codes:\\n\\n- 0: a choice, or\\n  the advice to stay\\n- 1: none")
    'Exit codes:\\n\\n- 0: a choice, or the advice to stay\\n- 1: none'
    """
    return "\n\n".join(
        re.sub(r"\s*\n(?!\s*- )\s*", " ", each.strip()) for each in (text or "").split("\n\n")
    )


def new_app(**options: Any) -> typer.Typer:
    """Return an empty Typer application with the settings that all of heapfit's share."""
    return typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
        **options,
    )


_root = typer.Typer(cls=LazyGroup, pretty_exceptions_enable=False, context_settings=SETTINGS)


@_root.callback(
    invoke_without_command=True, epilog="Example:  heapfit compare -- python3 my-program.py"
)
def _heapfit(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print heapfit's version.")] = False,
) -> None:
    """Fit a program's heap to the program: compare allocators on it, and run it under the best."""
    if version:
        typer.echo(f"heapfit {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def application(arguments: list[str]) -> int:
    """Run the command that `arguments` name and return its exit code.

    The user's own command line, behind the first `--`, reaches it as its context's `obj`.
    """
    own, program = split_program(arguments)
    command = typer.main.get_command(_root)
    _show_no_type_of_flags(command)
    result = command.main(own, prog_name="heapfit", standalone_mode=False, obj=program)
    return result if isinstance(result, int) else 0
