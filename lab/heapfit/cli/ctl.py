"""`heapfit ctl`: ask a running process, and change what its heap does."""

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from heapfit import text
from heapfit.cli.arguments import AsJson, process_number
from heapfit.cli.commands import new_app
from heapfit.cli.ledger_tables import described_ledger, show_ledger
from heapfit.cli.live_tables import described, show_options, show_processes, show_snapshot
from heapfit.cli.output import print_json, results
from heapfit.cli.profile_tables import described_profile, described_site, show_pinners, show_profile
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.files import write_bytes
from heapfit.host.proc import plain
from heapfit.live import Client, Refused, some_clients, take
from heapfit.live.snapshot import read_memory
from heapfit.record import Recorder, RecorderState

app = new_app()

_RECORD = "record"
_SETTING = re.compile("[^=]+=.+", re.DOTALL)
_RECORD_WORDS = ("start", "stop", "status")
_PROFILE = "profile"
_STDOUT = Path("-")
_ACTIONS = (
    "stats",
    "ledger",
    _PROFILE,
    "options",
    "get",
    "set",
    "shrink",
    "restore",
    "trim",
    _RECORD,
)


@app.command(epilog="Example:  heapfit ctl 12345 set decay_ms=100 shared_span_threshold=64m")
def ctl(
    pid: Annotated[
        str | None,
        typer.Argument(
            metavar="PID",
            help="A process with control:on, by ID or name (default: the only one), or for record, "
            "one that heapfit record started.",
        ),
    ] = None,
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="ACTION",
            help="stats, ledger, profile, options, get NAME, set NAME=VALUE..., shrink, restore, "
            "trim, record start|stop|status. Default: stats.",
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD...", help="The arguments of get, set and record."),
    ] = None,
    pprof: Annotated[
        Path | None,
        typer.Option("--pprof", metavar="FILE", help="Write the profile for go tool pprof."),
    ] = None,
    folded: Annotated[
        Path | None,
        typer.Option(
            "--folded", metavar="FILE", help="Write the profile as folded stacks, one per line."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With stats, also show size classes, heaps and nodes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask a running process for its heap's figures and options, and change them.

    - ledger: what each resident page is used for
    - profile: call sites of live objects (needs sampling: set sample=512k)
    - trim: return free memory once
    - shrink: return it and keep almost none until restore
    - options: list the options; live ones can be set
    - record: for a process started by heapfit record; stop ends a recording, and the next start
      begins another file

    The process must be yours, and started by heapfit run --control, or with control:on among its
    HEAPFIT_OPTIONS.
    """
    named, action, given = _read([pid, action, *(words or [])])
    _check(named, action, given)
    if (pprof or folded) and action != _PROFILE:
        raise UsageError("--pprof and --folded are for profile: heapfit ctl PID profile")
    if every and action != "stats":
        raise UsageError("--all is for stats: heapfit ctl PID stats --all")
    if as_json and _STDOUT in (pprof, folded):
        raise UsageError("--json and a profile cannot both go to stdout; name a file instead of -")
    plain: Any
    told: str | Callable[[], None]
    if action == _RECORD:
        plain, told = _record(Recorder(process_number(named or "")), given[0])
    else:
        client = Client(process_number(named)) if named else _only_one()
        if action == _PROFILE:
            plain, told = _profile(client, pprof, folded)
        else:
            plain, told = _ask(client, action, given, every)
    if as_json:
        print_json(plain)
    elif isinstance(told, str):
        results.print(told, soft_wrap=True)
    else:
        told()


def _read(words: Sequence[str | None]) -> tuple[str | None, str, list[str]]:
    """Return the process, the action and its words: the first may be left out, or both.

    >>> _read(["4711", "get", "decay_ms"]), _read(["ledger", None]), _read([None, None])
    (('4711', 'get', ['decay_ms']), (None, 'ledger', []), (None, 'stats', []))
    """
    given = [each for each in words if each is not None]
    named = None if not given or given[0] in _ACTIONS else given.pop(0)
    return named, given[0] if given else "stats", given[1:]


def _only_one() -> Client:
    """Return the one process that listens; where there are several, say which."""
    clients = some_clients()
    if len(clients) > 1:
        show_processes(clients)
        raise UsageError("name one of these processes: heapfit ctl PID")
    return clients[0]


def _check(named: str | None, action: str, words: list[str]) -> None:
    """Raise UsageError unless the request makes sense; nothing has been sent then."""
    if action not in _ACTIONS:
        raise unknown("action", action, _ACTIONS)
    if named is None and words and words[0].isdecimal():
        order = shlex.join([words[0], action, *words[1:]])
        raise UsageError(f"the process ID comes first: heapfit ctl {order}")
    if action == _RECORD and named is None:
        raise UsageError("record needs a process ID: heapfit ctl PID record status")
    if action == _RECORD and (len(words) != 1 or words[0] not in _RECORD_WORDS):
        raise UsageError("record takes start, stop or status: heapfit ctl PID record status")
    if action == "get" and len(words) != 1:
        raise UsageError("get takes one name: heapfit ctl PID get decay_ms")
    if action == "set" and (empty := next((each for each in words if each.endswith("=")), None)):
        raise UsageError(f"{empty} has no value: heapfit ctl PID set {empty}VALUE")
    if action == "set" and not (words and all(map(_SETTING.fullmatch, words))):
        raise UsageError("set takes NAME=VALUE, one or several: heapfit ctl PID set decay_ms=100")
    if action not in ("get", "set", _RECORD) and words:
        raise UsageError(f"{action} takes nothing more, not {words[0]!r}")


def _ask(
    client: Client, action: str, words: list[str], every: bool
) -> tuple[Any, str | Callable[[], None]]:
    """Do it; return what came of it as plain data, and for people as text or as what prints it."""
    match action:
        case "stats":
            snapshot = take(client)
            return described(snapshot), partial(show_snapshot, snapshot, None, every)
        case "ledger":
            return _ledger(client)
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
            return {"shrunk": False}, "the options are active again"
        case _:
            return _give_back(client, action)


def _give_back(client: Client, action: str) -> tuple[dict[str, int | None], str]:
    """Have free memory returned. Of pages that were never touched, or had been returned, nothing is
    felt: what people ask for is what stays resident, which the kernel tells."""
    before = read_memory(client.process.pid)
    given_back = client.shrink() if action == "shrink" else client.trim()
    after = read_memory(client.process.pid)
    told: dict[str, int | None] = {
        "given_back": given_back,
        "resident_before": before.resident if before else None,
        "resident": after.resident if after else None,
    }
    said = f"{text.size(given_back)} returned"
    if before and after:
        said += f"; resident was {text.size(before.resident)}, is {text.size(after.resident)}"
    return told, said


def _ledger(client: Client) -> tuple[Any, Callable[[], None]]:
    """Return the ledger, and whose objects pin what it calls pinned."""
    ledger = client.ledger()
    try:
        profile = client.profile()
    except Refused:  # by a library that has none
        return described_ledger(ledger), partial(show_ledger, ledger)

    def show() -> None:
        show_ledger(ledger)
        show_pinners(profile, client.process.pid, ledger.pinned)

    pinners = [described_site(each) for each in profile.pinners()]
    return {**described_ledger(ledger), "pinners": pinners}, show


def _profile(
    client: Client, pprof: Path | None, folded: Path | None
) -> tuple[Any, Callable[[], None]]:
    """Return the profile; write it to the files that are wanted."""
    from heapfit.export import profile_files

    profile = client.sampled_profile()
    if pprof:
        _write(pprof, profile_files.pprof_file(profile, client.process))
    if folded:
        _write(folded, profile_files.folded_file(profile, client.process))
    shown = partial(show_profile, profile)
    return described_profile(profile), _nothing if _STDOUT in (pprof, folded) else shown


def _nothing() -> None:
    """Show nothing more: a file has gone to standard output."""


def _write(path: Path, content: bytes) -> None:
    if path == _STDOUT:
        sys.stdout.buffer.write(content)
        return
    write_bytes(path, content, "name another file")


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
        return "not recording; nothing recorded yet"
    what = "recording to" if state.recording else "not recording; the last recording is"
    lost = f", {state.lost:,} lost" if state.lost else ""
    size = text.size(state.bytes)
    return f"{what} {plain(state.file)}: {state.events:,} events, {size}{lost}"
