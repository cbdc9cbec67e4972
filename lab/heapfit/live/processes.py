"""Which processes there are to ask, and why one cannot be asked: what /proc says of them."""

from __future__ import annotations

import mmap
import os
import pwd
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from heapfit import options
from heapfit.errors import HeapfitError
from heapfit.live.channel import opened
from heapfit.program import undeleted

_PROC = Path("/proc")
_LISTENS = 0x10000  # __SO_ACCEPTCON, in the flags of /proc/net/unix
_NAME = re.compile(r"@heapfit/([1-9][0-9]{0,9})")
_LIBRARY = re.compile(r"libheapfit(?:-([\w-]+))?\.so[.0-9]*")
_RECORDER = re.compile(r"libheapfit-record\.so[.0-9]*")
# A longer command line hides what a message says.
_LONGEST_COMMAND = 120
# To find out who listens takes no answer of the process.
_LOOK_TIMEOUT_S = 0.5


class Gone(HeapfitError):
    """There is no such process, or it has ended."""


class NotListening(HeapfitError):
    """The process is there and cannot be asked."""


class NotAnswering(HeapfitError):
    """The process listens and has not answered in time: it is stopped, or waits for something."""


@dataclass(frozen=True)
class Process:
    """A process of this machine. `own_pid` is its number as it sees itself, in a container."""

    pid: int
    own_pid: int
    user: int
    name: str
    command: tuple[str, ...]

    @property
    def command_line(self) -> str:
        """The command as a shell would be given it, without what a terminal would obey."""
        return plain(shlex.join(self.command) or self.name)


def plain(text: str) -> str:
    """Return `text` without control characters: it comes from a process that need not be ours.

    >>> plain("a\\x1b[2Jb")
    'a?[2Jb'
    """
    return "".join(each if each.isprintable() else "?" for each in text)


# ---------------------------------------------------------------- finding them


def find(pid: int) -> Process | None:
    """Return what is known of a process; None when there is none, or only what is left of it."""
    status = status_of(pid)
    # The number of a thread leads to a folder too.
    if status is None or status["Tgid"] != str(pid):
        return None
    if status["State"][0] in "ZX" and living(pid) is None:
        return None
    return Process(
        pid=pid,
        own_pid=int(status.get("NSpid", str(pid)).split()[-1]),
        user=int(status["Uid"].split()[1]),  # real, effective, saved, of the file system
        name=plain(status["Name"]),
        command=_command(words(read_file(pid, "cmdline"))),
    )


def living(pid: int) -> int | None:
    """Return the number under which /proc tells the memory of a process: that of its first thread,
    or of another where that has ended before them; None where all have."""
    for number in (pid, *threads(pid)):
        status = status_of(number)
        if status is not None and status["State"][0] not in "ZX":
            return number
    return None


def threads(pid: int) -> Iterator[int]:
    """Yield the numbers of a process's threads; none where it has ended."""
    with suppress(OSError):
        yield from map(int, os.listdir(_PROC / str(pid) / "task"))


def _command(words: list[str]) -> tuple[str, ...]:
    """Return the words of a command; a program that writes a title over them leaves empty ones."""
    while len(words) > 1 and not words[-1]:
        words.pop()
    return tuple(words)


def present(pid: int, advice: str = "heapfit top shows which can be watched") -> Process:
    """Return what is known of a process; Gone when there is none, with an advice."""
    process = find(pid)
    if process is None:
        raise Gone(f"there is no process {pid}; {advice}")
    return process


def largest(number: int) -> list[tuple[Process, int]]:
    """Return the processes with the most resident memory, with that in bytes, but for this one."""
    sizes = []
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            pages = read_file(int(entry.name), "statm").split()
            if len(pages) > 1 and pages[1] != b"0":
                sizes.append((int(pages[1]) * mmap.PAGESIZE, int(entry.name)))
    ranked = ((find(pid), resident) for resident, pid in sorted(sizes, reverse=True))
    return list(islice(((each, size) for each, size in ranked if each is not None), number))


def listening() -> list[Process]:
    """Return the processes that may be asked by us, in the order of their numbers."""
    found = [process for number in _names() if (process := _listener(number))]
    ours = [process for process in found if belongs_to_another(process) is None]
    return sorted(ours, key=lambda process: process.pid)


def _names() -> set[int]:
    """Return the numbers of all who listen in this network namespace, as they see themselves."""
    found = set()
    for line in (_PROC / "net" / "unix").read_text(errors="replace").splitlines()[1:]:
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
        f"process {process.pid} ({process.name}) belongs to {owner}, who alone may watch and steer "
        f"it; put before the command: sudo -u {owner}"
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
        return NotListening(
            f"{who} does not run under heapfit; start it with: {start}; or see what it allocates "
            f"from now on: heapfit record --pid {pid}"
        )
    if "control:on" in environment.get(options.VARIABLE, "").replace(" ", "").split(","):
        return NotListening(
            f"{who} was started with control:on and does not listen; it says why on its stderr"
        )
    return NotListening(f"{who} runs under heapfit without control:on; start it with: {start}")


def why_not_recording(pid: int) -> HeapfitError:
    """Return the error for a process whose recorder does not listen: what it lacks."""
    process = _to_be_asked(pid, "a recording of it is in the file that it was given")
    if isinstance(process, HeapfitError):
        return process
    who = f"process {pid} ({process.name})"
    start = f"heapfit record --later -- {started_as(process)}"
    if not any(map(_RECORDER.fullmatch, _libraries(pid))):
        return NotListening(
            f"{who} does not run under the recorder; record it as it is with heapfit record "
            f"--pid {pid}, or start it with: {start}"
        )
    return NotListening(
        f"{who} has the recorder and no file to write to, or is a child of the program that was to "
        f"be recorded; start it with: {start.replace('--later', '--later --attach-children')}"
    )


def _to_be_asked(pid: int, what_is_left: str) -> Process | HeapfitError:
    """Return the process; the error where it has ended, or its socket is not in our namespace."""
    process = find(pid)
    if process is None:
        return Gone(f"process {pid} has ended; {what_is_left}")
    if _namespace(pid) in (None, _namespace(os.getpid())):
        return process
    return NotListening(
        f"process {pid} ({process.name}) is in another network namespace, where its socket is; go "
        f"there with: sudo nsenter --target {pid} --net heapfit …"
    )


def _start_line(process: Process, environment: dict[str, str], library: str | None) -> str:
    """Return the line that starts the same program so that it listens."""
    given = environment.get(options.VARIABLE, "")
    if library and "libheapfit" not in environment.get("LD_PRELOAD", ""):  # It is linked.
        value = options.merge(given, {"control": "on"})
        words = [f"{options.VARIABLE}={shlex.quote(value)}"]
    else:
        words = ["heapfit run --control", *_variant(library), *_settings(given), "--"]
    return " ".join([*words, started_as(process)])


def started_as(process: Process) -> str:
    """Return the words that started a process, as far as they are known: of one that has changed
    its title, as servers do, the program's file is."""
    words = process.command
    name = words[0] if words else ""
    is_path = "/" in name and " " not in name  # perhaps from the folder that it was started in
    if name.startswith("-") or (not is_path and shutil.which(name) is None):
        try:
            file = undeleted(os.readlink(f"/proc/{process.pid}/exe"))
        except OSError:
            return "COMMAND"
        # In a title of several words are its arguments, or something else.
        words = (file, "ARGUMENTS") if " " in name else (file, *words[1:])
    command = shlex.join(words)
    if not command.isprintable() or len(command) > _LONGEST_COMMAND:
        command = ""
    return command or "COMMAND"


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


# ----------------------------------------------------------------------- /proc


def status_of(pid: int) -> dict[str, str] | None:
    """Return what /proc/PID/status says, line by line; None of no process."""
    lines = read_file(pid, "status").decode(errors="replace").split("\n")
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return status if {"Name", "State", "Tgid", "Uid"} <= status.keys() else None


def read_file(pid: int, name: str) -> bytes:
    """Return a file of a process: nothing when it has ended, or is not ours to read."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def environment_of(pid: int) -> dict[str, str]:
    """Return the variables that a process was started with, as far as they may be read."""
    return dict(each.partition("=")[::2] for each in words(read_file(pid, "environ")))


def preload_of(pid: int) -> str | None:
    """Return the LD_PRELOAD that a process was started with; None where its variables may not be
    read, or it has written something else over them, as those do that set a long title."""
    try:
        given = words((_PROC / str(pid) / "environ").read_bytes())
    except OSError:
        return None
    whole = all("=" in each for each in given)
    return environment_of(pid).get("LD_PRELOAD", "") if whole else None


def words(raw: bytes) -> list[str]:
    """Return the words of a list that a zero byte ends after each."""
    return raw.decode(errors="replace").removesuffix("\0").split("\0") if raw else []


def _namespace(pid: int) -> str | None:
    try:
        return os.readlink(_PROC / str(pid) / "ns" / "net")
    except OSError:
        return None


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"#{user}"  # As sudo takes it.
