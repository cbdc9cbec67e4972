"""`heapfit workloads`: the programs to compare allocators on, and getting what they need."""

import json
import re
import shlex
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from heapfit import catalogue, paths
from heapfit.catalogue.workloads import check_startable, is_prepared
from heapfit.cli.arguments import AsJson, time_span
from heapfit.cli.commands import Group, new_app
from heapfit.cli.output import print_facts, print_json, results, say, table
from heapfit.errors import UsageError
from heapfit.files import check_new, write_text
from heapfit.host.program import check_text
from heapfit.records import Workload
from heapfit.text import shell_word

_HIGHEST_PORT = 65535
# What a list says of the first word of a state.
_STATES = {"ready": "ready", "installed;": "prepares", "needs": "missing"}

app = new_app(cls=Group, epilog="Example:  heapfit workloads install redis")


@app.callback(invoke_without_command=True)
def workloads(context: typer.Context, as_json: AsJson = False) -> None:
    """The workloads that heapfit comes with: list them, install what they need, show one."""
    if context.invoked_subcommand is None:
        list_workloads(as_json)


@app.command("list", epilog="Example:  heapfit workloads list --json")
def list_workloads(as_json: AsJson = False) -> None:
    """List the workloads and whether this machine has what they need."""
    known = sorted(catalogue.load_workloads().values(), key=_kind)
    if as_json:
        print_json([_described(workload) for workload in known])
        return
    rows = table("", "", "")
    rows.show_header = False
    for kind, those in groupby(known, _kind):
        rows.add_row(Text(kind, style="bold"))
        for workload in those:
            state = _STATES[_state(workload).partition(" ")[0]]
            rows.add_row(f"  {workload.name}", Text(state, style="dim"), Text(workload.title))
    results.print(rows)
    say("heapfit workloads show NAME: what each asks of an allocator, and what it needs")


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
    """Show everything that is known about one workload."""
    workload = catalogue.resolve_workload(name)
    if as_json:
        print_json(_described(workload))
        return
    print_facts(
        {
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
    )


@app.command(
    "new",
    options_metavar="[OPTIONS] -- CMD",
    epilog="Example:  heapfit workloads new --port 8080 -- ./server --listen 8080",
)
def new(
    context: typer.Context,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The command is a server on this port; trials may replace the port in the "
            "command.",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="10s",
            help="The command is a service that needs no load and does not end: each trial stops "
            "it after this time, with SIGTERM. Compare its memory.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Default: PROGRAM.toml. `-`: print it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a draft workload file for your command; add the load for a server.

    It is written to the current folder, where the command will run.
    """
    if port is not None and for_ is not None:
        raise UsageError(
            "--port is for a server that a load drives, --for for one without: give one"
        )
    time_s = None if for_ is None else time_span(for_, "--for")
    command: list[str] | None = context.obj
    if not command:
        raise UsageError("a workload of what? write: heapfit workloads new -- CMD")
    if port is not None and not 0 < port <= _HIGHEST_PORT:
        raise UsageError(f"--port takes a number from 1 to {_HIGHEST_PORT}, not {port}")
    check_startable(command[0])
    check_text(command)
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", Path(command[0]).name).strip("-") or "program"
    text = _toml(name, command, port, time_s)
    if str(output) == "-":
        if as_json:
            raise UsageError("--json describes a file that was written; leave it out, or -o -")
        results.file.write(text)
        return
    path = output or Path(f"{name}.toml")
    check_new(path)
    write_text(path, text, "choose another place with -o")
    if as_json:
        print_json(_described(catalogue.resolve_workload(str(path.absolute()))))
        return
    todo = "put the load that drives the server into its [run], then run" if port else "run"
    goal = "" if for_ is None else "--goal mean "
    results.print(f"wrote {path}; {todo}: heapfit fit {goal}{shell_word(path)}", soft_wrap=True)


# Beyond what a trial takes, until it is given up.
_PATIENCE_S = 60


def _toml(name: str, command: list[str], port: int | None, time_s: float | None) -> str:
    """Return the file's text."""
    title = shlex.join(command)
    if time_s is not None:
        parts = [
            "[server]",
            f"command = {_written(command)}",
            'ready = "started"',
            "",
            "# How long it runs. A load that drives it may stand here instead.",
            "[run]",
            f"command = {_written(['sleep', f'{time_s:g}'])}",
        ]
    elif port is None:
        parts = ["[run]", f"command = {_written(command)}"]
    else:
        words = [re.sub(rf"\b{port}\b", "{port}", word) for word in command]
        client = ["curl", "--silent", "--show-error", "--fail", "http://127.0.0.1:{port}/"]
        parts = [
            "[server]",
            f"command = {_written(words)}",
            f'ready = "tcp:{"{port}" if words != command else port}"',
            "",
            "# The load that drives the server, and is timed. One request is too little: put wrk",
            "# or a script of your own in its place, with as many requests as take some seconds.",
            "[run]",
            f"command = {_written(client if words != command else _at(client, port))}",
        ]
    lines = [
        f"name = {_written(name)}",
        f"title = {_written(title)}",
        'question = "What does an allocator cost this program?"',
        "",
        *parts,
        f"timeout_s = {_PATIENCE_S + (time_s or 0):g}",
        "",
        "[check]",
        '# "same": the program must print the same under every allocator.',
        f'stdout = "{"same" if port is None and time_s is None else "ignore"}"',
    ]
    return "\n".join(lines) + "\n"


def _written(value: str | list[str]) -> str:
    """Return a string or a list as TOML has it: as in JSON, but no character in two halves."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _at(words: list[str], port: int) -> list[str]:
    return [word.replace("{port}", f"{port}") for word in words]


def _kind(workload: Workload) -> str:
    """The folder that a workload is in, or that it is beside others of the same package in."""
    parts = workload.here.relative_to(paths.workloads_dir().absolute()).parts
    return parts[0] if len(parts) > 1 else "servers" if workload.server else "programs"


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
