"""Processes, and what /proc says of each: nothing of one that has ended, or is not ours to read."""

import mmap
import os
import shlex
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from heapfit.errors import HeapfitError, UsageError

PROC = Path("/proc")
# A longer command line hides what a message says.
_LONGEST_COMMAND = 120
_BEGAN = 19  # of a stat's fields behind the name
_NOT_UTF_8 = "\ufffd"  # what `words` has for it

LISTED_BY = "heapfit why lists the largest processes"


class Gone(HeapfitError):
    """There is no such process, or it has ended."""


class NoProcess(Gone, UsageError):
    """There is no such process from the start."""


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
        yield from map(int, os.listdir(PROC / str(pid) / "task"))


def is_heapfits(pid: int, thread: int) -> bool:
    """Whether a thread is the allocator's own, or the recorder's."""
    return read_file(pid, f"task/{thread}/comm").startswith(b"heapfit-")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started; none where the kernel does not list them
    (CONFIG_PROC_CHILDREN)."""
    lists = (read_file(pid, f"task/{task}/children") for task in threads(pid))
    return [int(each) for found in lists for each in found.split()]


def _command(words: list[str]) -> tuple[str, ...]:
    """Return the words of a command; a program that writes a title over them leaves empty ones."""
    while len(words) > 1 and not words[-1]:
        words.pop()
    return tuple(words)


def present(pid: int, advice: str = LISTED_BY) -> Process:
    """Return what is known of a process; Gone when there is none, with an advice."""
    process = find(pid)
    if process is None:
        raise NoProcess(f"there is no process {pid}; {advice}")
    return process


def largest(number: int) -> list[tuple[Process, int]]:
    """Return the processes with the most resident memory, with that in bytes, but for this one."""
    sizes = []
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and entry.name != str(os.getpid()):
            pages = read_file(int(entry.name), "statm").split()
            if len(pages) > 1 and pages[1] != b"0":
                sizes.append((int(pages[1]) * mmap.PAGESIZE, int(entry.name)))
    ranked = ((find(pid), resident) for resident, pid in sorted(sizes, reverse=True))
    return list(islice(((each, size) for each, size in ranked if each is not None), number))


def started_as(process: Process) -> str:
    """Return the words that started a process, as far as they are known: of one that has changed
    its title, as servers do, the program is, under the name that it was started by. `from_folder`
    goes before them."""
    words = process.command
    name = words[0] if words else ""
    is_path = "/" in name and " " not in name  # perhaps from the folder that it was started in
    if has_other_root(process.pid):
        return "COMMAND"
    if not is_path:
        word = _word_for(name, process.pid)
        if not word:
            return "COMMAND"
        # In a title of several words are its arguments, or something else.
        is_title = word != name and " " in name
        words = (_titled(name, word), "ARGUMENTS") if is_title else (word, *words[1:])
    elif not name.startswith("/"):
        folder = _link(process.pid, "cwd")
        if folder not in ("", os.getcwd()):
            words = (os.path.normpath(f"{folder}/{name}"), *words[1:])
    command = shlex.join(words)
    is_gone = words[:1] and words[0].startswith("/") and not os.path.exists(words[0])
    if not command or is_gone or not command.isprintable() or _NOT_UTF_8 in command:
        return "COMMAND"
    kept = len(words)
    while kept > 1 and len(shlex.join(words[:kept])) > _LONGEST_COMMAND:
        kept -= 1
    return command if kept == len(words) else f"{shlex.join(words[:kept])} ..."


def from_folder(process: Process) -> str:
    """Return what goes before the line that starts a process's program: `cd` to its folder, where
    that is not ours and an argument is, or ends in, a path from there."""
    folder = _link(process.pid, "cwd")
    if folder in ("", os.getcwd()) or not folder.isprintable() or has_other_root(process.pid):
        return ""
    its, arguments = PROC / str(process.pid) / "cwd", process.command[1:]
    names = [name for each in arguments for name in (each, each.partition("=")[2])]
    is_there = (name and name[0] != "/" and os.path.lexists(its / name) for name in names)
    is_needed = "-m" in arguments or any(is_there)  # Python looks there for a module
    return f"cd {shlex.quote(folder)} && " if is_needed else ""


def _word_for(name: str, pid: int) -> str:
    """Return the word that starts the program of a process that was started by `name`: a path where
    our PATH leads to another program, as outside of a virtual environment; nothing: not known."""
    file, ours = _link(pid, "exe"), shutil.which(name)
    theirs = shutil.which(name, path=(environment_of(pid) or {}).get("PATH"))
    if theirs and theirs != ours and os.path.isabs(theirs) and _is_same(theirs, file):
        return theirs
    return name if ours and (not file or _is_same(ours, file)) else file


def _is_same(found: str, file: str) -> bool:
    """Whether a command that was found runs a program's `file`, which may have been deleted."""
    its = os.path.realpath(found)
    return its == file or (os.path.exists(file) and os.path.samefile(its, file))


def _titled(title: str, file: str) -> str:
    """Return the name in a title, such as redis-server, that leads to the program's `file`; else
    that. A program may do by its name what it does: redis-server is a link to redis-check-rdb."""
    name = title.split()[0].removesuffix(":") if title.split() else ""
    found = name if name.startswith("/") else shutil.which(name) if name else None
    return name if found and os.path.realpath(found) == file else file


def named(name: str) -> list[Process]:
    """Return the processes of this name, or started as it, in the order of their numbers; but for
    this one."""
    numbers = sorted(int(each.name) for each in PROC.iterdir() if each.name.isdecimal())
    found = (find(number) for number in numbers if number != os.getpid())
    return [each for each in found if each and name in (each.name, _started_name(each))]


def _started_name(process: Process) -> str:
    """Return the file name of the program in a process's command line; the kernel cuts names."""
    word = process.command[0] if process.command else ""
    if " " in word and not os.path.lexists(os.path.join(_link(process.pid, "cwd"), word)):
        word = word.split(" ")[0]  # of a title
    return os.path.basename(word)


def _link(pid: int, name: str) -> str:
    """Return where a link of /proc/PID leads; nothing where that is not ours to know."""
    try:
        return undeleted(os.readlink(PROC / str(pid) / name))
    except OSError:
        return ""


# ------------------------------------------------------------------ its files


def undeleted(path: str) -> str:
    """Return a file's path in /proc without what follows it there once the file is deleted.

    >>> undeleted("/lib/libjvm.so (deleted)")
    '/lib/libjvm.so'
    """
    return path.removesuffix(" (deleted)")


def has_other_root(pid: int) -> bool:
    """Whether a process has another root folder than we have, as in a container; not where that is
    not ours to know."""
    try:
        return not os.path.samefile(PROC / str(pid) / "root", "/")
    except OSError:
        return False


def inside(folder: Path, path: str) -> Path:
    """Return where a file is that a process maps: /proc tells it as seen from the process's root,
    or from ours, if the process is in a folder of it (chroot)."""
    path = undeleted(path)
    its = folder / "root" / path.lstrip("/")
    return its if os.path.exists(its) else Path(path)  # False, too, where we may not look


def status_of(pid: int) -> dict[str, str] | None:
    """Return what /proc/PID/status says, line by line; None of no process."""
    lines = read_file(pid, "status").decode(errors="replace").split("\n")
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return status if {"Name", "State", "Tgid", "Uid"} <= status.keys() else None


def read_file(pid: int, name: str) -> bytes:
    """Return a file of a process: nothing when it has ended, or is not ours to read."""
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def environment_of(pid: int) -> dict[str, str] | None:
    """Return the variables that a process was started with; None where they may not be read, or it
    has written something else over them, as those do that set a long title."""
    try:
        given = words((PROC / str(pid) / "environ").read_bytes())
    except OSError:
        return None
    whole = all("=" in each for each in given)
    return dict(each.partition("=")[::2] for each in given) if whole else None


def fields_of(pid: int) -> list[bytes]:
    """Return the fields of a process's stat behind its name, which may hold anything."""
    return read_file(pid, "stat").rpartition(b")")[2].split()


def began(pid: int) -> int:
    """Return when a process began, in ticks since the machine did; 0: not known."""
    fields = fields_of(pid)
    return int(fields[_BEGAN]) if len(fields) > _BEGAN else 0


def words(raw: bytes) -> list[str]:
    """Return the words of a list that a zero byte ends after each."""
    return raw.decode(errors="replace").removesuffix("\0").split("\0") if raw else []
