"""Which processes there are to ask, and why one cannot be asked: what /proc says of them."""

from __future__ import annotations

import os
import pwd
import re
import shlex

from heapfit import options
from heapfit.errors import HeapfitError
from heapfit.host.proc import (
    PROC,
    Gone,
    Process,
    children,
    environment_of,
    find,
    from_folder,
    read_file,
    started_as,
    undeleted,
)
from heapfit.host.program import why_not_replaced
from heapfit.live.channel import opened

_LISTENS = 0x10000  # __SO_ACCEPTCON, in the flags of /proc/net/unix
_NAME = re.compile(r"@heapfit/([1-9][0-9]{0,9})")
_LIBRARY = re.compile(r"libheapfit(?:-([\w-]+))?\.so[.0-9]*")
_RECORDER = re.compile(r"libheapfit-record\.so[.0-9]*")
# To find out who listens takes no answer of the process.
_LOOK_TIMEOUT_S = 0.5


class NotListening(HeapfitError):
    """The process is there and cannot be asked: why, and what starts it so that it can be."""

    def __init__(self, reason: str, start: str = "") -> None:
        super().__init__(f"{reason}; start it with: {start}" if start else reason)
        self.reason, self.start = reason, start


class NotAnswering(HeapfitError):
    """The process listens and has not answered in time: it is stopped, or waits for something."""


# ---------------------------------------------------------------- finding them


def listening() -> list[Process]:
    """Return the processes that may be asked by us, in the order of their numbers."""
    found = [process for number in _names() if (process := _listener(number))]
    ours = [process for process in found if belongs_to_another(process) is None]
    return sorted(ours, key=lambda process: process.pid)


def _names() -> set[int]:
    """Return the numbers of all who listen in this network namespace, as they see themselves."""
    found = set()
    for line in (PROC / "net" / "unix").read_text(errors="replace").splitlines()[1:]:
        fields = line.split(maxsplit=7)  # Num RefCount Protocol Flags Type St Inode Path
        if len(fields) == 8 and int(fields[3], 16) & _LISTENS:
            name = _NAME.fullmatch(fields[7])
            if name:
                found.add(int(name[1]))
    return found


def _listener(number: int) -> Process | None:
    """Return the process that listens under `number`, if that is its own."""
    try:
        with opened(number, _LOOK_TIMEOUT_S) as channel:
            process = find(channel.peer.pid)
    except TimeoutError:  # Its queue is full, perhaps of us: a stopped process serves nobody.
        process = find(number) if _library(number) else None
    except OSError:  # It has ended since.
        return None
    return process if process and process.own_pid == number else None


# ------------------------------------------------------------- why not this one


def belongs_to_another(process: Process) -> NotListening | None:
    """Return the error for a process of somebody else; None when we may ask it."""
    if os.geteuid() in (process.user, 0):
        return None
    owner = _user_name(process.user)
    return NotListening(
        f"process {process.pid} ({process.name}) belongs to {owner}, who alone may watch and "
        f"control it; put before the command: sudo -u {owner}"
    )


def why_not_listening(pid: int) -> HeapfitError:
    """Return the error for a process that does not listen: what it lacks, and what to do."""
    process = _to_be_asked(pid, "heapfit top shows which can be watched")
    if isinstance(process, HeapfitError):
        return process
    who = f"process {pid} ({process.name})"
    environment = environment_of(pid)
    library = _library(pid)
    start = _start_line(process, environment, library)
    if library is None:
        if why := why_not_replaced(PROC / str(pid) / "exe"):
            return NotListening(f"{who} does not run under heapfit, and cannot: {why}")
        return NotListening(
            f"{who} does not run under heapfit; start it with: {start}; or see what it allocates "
            f"from now on: heapfit record --pid {pid}"
        )
    if environment is None:
        return NotListening(
            f"{who} runs under heapfit and does not listen: it was started without control:on, or "
            "says on its stderr why it does not",
            start,
        )
    if "control:on" in environment.get(options.VARIABLE, "").replace(" ", "").split(","):
        return NotListening(
            f"{who} was started with control:on and does not listen; it says why on its stderr"
        )
    return NotListening(f"{who} runs under heapfit without control:on", start)


def why_not_recording(pid: int) -> HeapfitError:
    """Return the error for a process whose recorder does not listen: what it lacks."""
    process = _to_be_asked(pid, "a recording of it is in the file that it was given")
    if isinstance(process, HeapfitError):
        return process
    who = f"process {pid} ({process.name})"
    start = f"{from_folder(process)}heapfit record --later -- {started_as(process)}"
    if not _has_recorder(pid):
        if recorded := next(filter(_has_recorder, children(pid)), None):
            return NotListening(
                f"{who} does not run under the recorder, but process {recorded}, which it has "
                f"started, does: heapfit ctl {recorded} record status"
            )
        if why := why_not_replaced(PROC / str(pid) / "exe"):
            return NotListening(f"{who} does not run under the recorder, and cannot: {why}")
        return NotListening(
            f"{who} does not run under the recorder; record it as it is with heapfit record "
            f"--pid {pid}, or start it with: {start}"
        )
    return NotListening(
        f"{who} has a recorder that nobody can start: it was recorded before, or is a child of a "
        f"program that was; record it as it is with heapfit record --pid {pid}, or start it with: "
        f"{start.replace('--later', '--later --attach-children')}"
    )


def _has_recorder(pid: int) -> bool:
    return any(map(_RECORDER.fullmatch, _libraries(pid)))


def _to_be_asked(pid: int, what_is_left: str) -> Process | HeapfitError:
    """Return the process; the error where it has ended, or its socket is not in our namespace."""
    process = find(pid)
    if process is None:
        return Gone(f"process {pid} has ended; {what_is_left}")
    return in_another_network(process) or process


def in_another_network(process: Process) -> NotListening | None:
    """Return the error for a process whose socket is not in our network namespace."""
    if _namespace(process.pid) in (None, _namespace(os.getpid())):
        return None
    return NotListening(
        f"process {process.pid} ({process.name}) is in another network namespace, where its socket "
        f"is; go there with: sudo nsenter --target {process.pid} --net heapfit …"
    )


def _start_line(process: Process, environment: dict[str, str] | None, library: str | None) -> str:
    """Return the line that starts the same program so that it listens."""
    known = environment or {}
    given = known.get(options.VARIABLE, "")
    is_linked = environment is not None and "libheapfit" not in known.get("LD_PRELOAD", "")
    if library and is_linked:
        value = options.merge(given, {"control": "on"})
        words = [f"{options.VARIABLE}={shlex.quote(value)}"]
    else:
        words = ["heapfit run --control", *_variant(library), *_settings(given), "--"]
    return from_folder(process) + " ".join([*words, started_as(process)])


def _variant(library: str | None) -> list[str]:
    name = _LIBRARY.fullmatch(library) if library else None
    return [f"--variant {name[1]}"] if name and name[1] else []


def _settings(given: str) -> list[str]:
    pairs = [entry.partition(":")[::2] for entry in given.split(",") if entry.strip()]
    stripped = [(name.strip(), value.strip()) for name, value in pairs]
    return [f"--set {shlex.quote(f'{n}={v}')}" for n, v in stripped if n != "control"]


def _library(pid: int) -> str | None:
    """Return the file name of heapfit's library in a process; None when there is none to see."""
    names = [name for name in _libraries(pid) if not _RECORDER.fullmatch(name)]
    found = [name for name in names if _LIBRARY.fullmatch(name)]
    return found[0] if found else None


def _libraries(pid: int) -> list[str]:
    """Return the file names of what is mapped into a process."""
    lines = read_file(pid, "maps").decode(errors="replace").split("\n")
    return [undeleted(line).rpartition("/")[2] for line in lines]


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(PROC / str(pid) / "ns" / "net")
    except OSError:
        return None


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"#{user}"  # As sudo takes it.
