"""`heapfit ctl`: ask a running process, and change what its heap does."""

from __future__ import annotations

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
    _check(action, words or [])
    number = process_number(pid)
    if action == _RECORD:
        answer: Any = _record(Recorder(number), (words or [])[0], as_json)
    else:
        answer = _ACTIONS[action](Client(number), words or [], as_json)
    if as_json:
        print_json(answer)


def _check(action: str, words: list[str]) -> None:
    """Raise UsageError unless the request makes sense; nothing has been sent then."""
    if action not in (*_ACTIONS, _RECORD):
        raise unknown("action", action, (*_ACTIONS, _RECORD))
    if action == _RECORD and (len(words) != 1 or words[0] not in _RECORD_WORDS):
        raise UsageError("record takes start, stop or status: heapfit ctl PID record status")
    if action == "get" and len(words) != 1:
        raise UsageError("get takes one name: heapfit ctl PID get decay_ms")
    if action == "set" and not (words and all(_is_setting(word) for word in words)):
        raise UsageError("set takes NAME=VALUE, one or several: heapfit ctl PID set decay_ms=100")
    if action not in ("get", "set", _RECORD) and words:
        raise UsageError(f"{action} takes nothing more, not {words[0]!r}")


def _is_setting(word: str) -> bool:
    name, _, value = word.partition("=")
    return bool(name and value)


def _stats(client: Client, _: list[str], as_json: bool) -> Any:
    snapshot = take(client)
    if not as_json:
        show_snapshot(snapshot, None)
    return described(snapshot)


def _options(client: Client, _: list[str], as_json: bool) -> Any:
    snapshot = take(client)
    if not as_json:
        show_options(snapshot)
    return snapshot.options


def _get(client: Client, words: list[str], as_json: bool) -> Any:
    value = client.get(words[0])
    if not as_json:
        results.print(value, markup=False)
    return {"name": words[0], "value": value}


def _set(client: Client, words: list[str], as_json: bool) -> Any:
    """Set one after the other; where one is refused, say what has been set before it."""
    done: list[dict[str, str]] = []
    for name, _, value in (word.partition("=") for word in words):
        try:
            done.append({"name": name, "value": client.set(name, value)})
        except HeapfitError as error:
            before = ", ".join(each["name"] for each in done)
            raise type(error)(f"{error} ({before} set before)" if before else str(error)) from error
    if not as_json:
        for each in done:
            results.print(f"{each['name']} = {each['value']}", markup=False)
    return done


def _shrink(client: Client, _: list[str], as_json: bool) -> Any:
    return _given_back(client.shrink(), as_json)


def _trim(client: Client, _: list[str], as_json: bool) -> Any:
    return _given_back(client.trim(), as_json)


def _given_back(given_back: int, as_json: bool) -> Any:
    if not as_json:
        results.print(f"{figures.size(given_back)} given back")
    return {"given_back": given_back}


def _restore(client: Client, _: list[str], as_json: bool) -> Any:
    client.restore()
    if not as_json:
        results.print("the options are in force again")
    return {"shrunk": False}


def _record(recorder: Recorder, word: str, as_json: bool) -> RecorderState:
    state = {"start": recorder.start, "stop": recorder.stop, "status": recorder.status}[word]()
    if not as_json:
        results.print(_in_words(state), markup=False, soft_wrap=True)
    return state


def _in_words(state: RecorderState) -> str:
    if not state.file:
        return "nothing is recorded, and nothing was"
    what = "recording to" if state.recording else "not recording; the last is"
    lost = f", {state.lost:,} lost" if state.lost else ""
    size = figures.size(state.bytes)
    return f"{what} {plain(state.file)}: {state.events:,} events, {size}{lost}"


_RECORD = "record"
_RECORD_WORDS = ("start", "stop", "status")
_ACTIONS = {
    "stats": _stats,
    "options": _options,
    "get": _get,
    "set": _set,
    "shrink": _shrink,
    "restore": _restore,
    "trim": _trim,
}
