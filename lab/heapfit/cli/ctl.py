"""`heapfit ctl`: ask a running process, and change what its heap does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from heapfit.cli.arguments import AsJson, process_number
from heapfit.cli.commands import new_app
from heapfit.cli.live_tables import described, show_options, show_snapshot
from heapfit.cli.output import print_json, results
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.live import Client, figures, take
from heapfit.live.processes import plain
from heapfit.record import Recorder, RecorderState

app = new_app()

_RECORD = "record"
_SETTING = re.compile("[^=]+=.+", re.DOTALL)
_RECORD_WORDS = ("start", "stop", "status")
_ACTIONS = ("stats", "options", "get", "set", "shrink", "restore", "trim", _RECORD)


@app.command(epilog="Example:  heapfit ctl 12345 set decay_ms=100 shared_span_threshold=64m")
def ctl(
    pid: Annotated[
        str,
        typer.Argument(
            metavar="PID", help="A process with control:on; for record, a recorded one."
        ),
    ],
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION",
            help="stats, options, get NAME, set NAME=VALUE..., shrink, restore, trim, "
            "record start|stop|status.",
        ),
    ] = "stats",
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="What get, set and record are about."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a running process for its heap's figures and options, and steer it.

    shrink gives all free memory back and keeps hardly any until restore; trim gives it back once.
    An option may be set when it is live, see options. The process must be yours, and started by
    heapfit run --control, or with control:on among its HEAPFIT_OPTIONS. record is for one that was
    started by heapfit record: a recording ends with stop, the next start begins another file.
    """
    given = words or []
    _check(action, given)
    number = process_number(pid)
    plain: Any
    told: str | Callable[[], None]
    if action == _RECORD:
        plain, told = _record(Recorder(number), given[0])
    else:
        plain, told = _ask(Client(number), action, given)
    if as_json:
        print_json(plain)
    elif isinstance(told, str):
        results.print(told, markup=False, soft_wrap=True)
    else:
        told()


def _check(action: str, words: list[str]) -> None:
    """Raise UsageError unless the request makes sense; nothing has been sent then."""
    if action not in _ACTIONS:
        raise unknown("action", action, _ACTIONS)
    if action == _RECORD and (len(words) != 1 or words[0] not in _RECORD_WORDS):
        raise UsageError("record takes start, stop or status: heapfit ctl PID record status")
    if action == "get" and len(words) != 1:
        raise UsageError("get takes one name: heapfit ctl PID get decay_ms")
    if action == "set" and not (words and all(map(_SETTING.fullmatch, words))):
        raise UsageError("set takes NAME=VALUE, one or several: heapfit ctl PID set decay_ms=100")
    if action not in ("get", "set", _RECORD) and words:
        raise UsageError(f"{action} takes nothing more, not {words[0]!r}")


def _ask(client: Client, action: str, words: list[str]) -> tuple[Any, str | Callable[[], None]]:
    """Do it; return what came of it as plain data, and for people as text or as what prints it."""
    match action:
        case "stats":
            snapshot = take(client)
            return described(snapshot), partial(show_snapshot, snapshot, None)
        case "options":
            snapshot = take(client)
            return snapshot.options, partial(show_options, snapshot)
        case "get":
            value = client.get(words[0])
            return {"name": words[0], "value": value}, value
        case "set":
            done = _set(client, words)
            return done, "\n".join(f"{each['name']} = {each['value']}" for each in done)
        case "restore":
            client.restore()
            return {"shrunk": False}, "the options are in force again"
        case _:
            given_back = client.shrink() if action == "shrink" else client.trim()
            return {"given_back": given_back}, f"{figures.size(given_back)} given back"


def _set(client: Client, words: list[str]) -> list[dict[str, str]]:
    """Set one after the other; where one is refused, say what has been set before it."""
    done: list[dict[str, str]] = []
    for name, _, value in (word.partition("=") for word in words):
        try:
            done.append({"name": name, "value": client.set(name, value)})
        except HeapfitError as error:
            before = ", ".join(each["name"] for each in done)
            raise type(error)(f"{error} ({before} set before)" if before else str(error)) from error
    return done


def _record(recorder: Recorder, word: str) -> tuple[RecorderState, str]:
    state = {"start": recorder.start, "stop": recorder.stop, "status": recorder.status}[word]()
    return state, _in_words(state)


def _in_words(state: RecorderState) -> str:
    if not state.file:
        return "nothing is recorded, and nothing was"
    what = "recording to" if state.recording else "not recording; the last is"
    lost = f", {state.lost:,} lost" if state.lost else ""
    size = figures.size(state.bytes)
    return f"{what} {plain(state.file)}: {state.events:,} events, {size}{lost}"
