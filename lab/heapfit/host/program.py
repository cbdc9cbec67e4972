"""A program as a file: what runs it, whether a preload reaches it, and why it cannot be started.

Standard library only: this is looked at in front of the user's program, see `cli.quick`.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from heapfit.errors import CannotRun, UsageError
from heapfit.host import elf
from heapfit.text import is_text, shell_word, visible

# Shells and programs that do little but run the command that they are given.
STARTERS = {"sh", "dash", "bash", "zsh", "ksh", "fish", "busybox", "env", "timeout", "taskset",
            "nice", "ionice", "chrt", "nohup", "setsid", "stdbuf", "time", "make", "ninja", "xargs",
            "parallel", "sudo", "numactl", "flock", "unshare", "setarch", "setpriv", "prlimit",
            "nsenter", "chroot"}  # fmt: skip

_SCRIPT = b"#!"
_LONGEST_FIRST_LINE = 256  # what the kernel reads of a script's first line
_CAPABILITIES = "security.capability"  # extended attribute of a file with capabilities


def check_text(command: Sequence[str]) -> None:
    """Raise UsageError for a command that no result can hold: results are JSON, which is text."""
    for word in command:
        if not is_text(word):
            raise UsageError(
                f"{visible(word)} is not UTF-8; put the command into a script, and name that"
            )


def inherited() -> dict[str, str]:
    """Return the environment as this process was given it.

    In the C locale Python sets LC_CTYPE for itself (PEP 538); the program must not see that.
    """
    environment = dict(os.environ)
    with open("/proc/self/environ", "rb") as given:
        if not any(entry.startswith(b"LC_CTYPE=") for entry in given.read().split(b"\0")):
            environment.pop("LC_CTYPE", None)
    return environment


def interpreter_of(program: Path) -> Path:
    """Return the program that runs `program` if that is a script, else itself."""
    try:
        with program.open("rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except OSError:
        return program
    words = first.removeprefix(_SCRIPT).decode(errors="replace").split()
    if not first.startswith(_SCRIPT) or not words:
        return program
    plain = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    by_name = shutil.which(plain[0]) if Path(words[0]).name == "env" and plain else None
    return Path(by_name or words[0])


def started_by(name: str) -> Path | None:
    """Return the file that the kernel runs for the command `name`; None: there is none."""
    found = shutil.which(name)
    return interpreter_of(Path(found)) if found else None


def obstacle(program: Path) -> tuple[str, str] | None:
    """Return what its malloc is and what to do, where a preload would not replace it."""
    try:
        file = elf.read(program)
        has_rights = file is not None and _gets_other_rights(program)
    except OSError:
        return None
    if file is None:
        return None
    if file.loader is None:
        return (
            "built in, because it is linked statically",
            "nothing can be preloaded into it: link it dynamically",
        )
    if file.has_malloc:
        return "its own", "it would not use a preloaded one: build it without its own"
    if has_rights:
        return (
            "protected, because it runs with other rights than yours (setuid or capabilities)",
            "nothing can be preloaded into it: start it as the user whose rights it takes",
        )
    return None


def why_not_replaced(program: Path) -> str | None:
    """Return why a preloaded malloc would not be the one of the file `program`; None: it would."""
    found = obstacle(program)
    return f"its malloc is {found[0]}; {found[1]}" if found else None


def why_not_preloadable(name: str) -> str | None:
    """Return why a preloaded malloc would not be used by the command `name`; None: it would."""
    program = started_by(name)
    return why_not_replaced(program) if program else None


def _gets_other_rights(program: Path) -> bool:
    """Whether the loader ignores LD_PRELOAD for us (AT_SECURE)."""
    status = program.stat()
    if os.geteuid() == 0:
        return bool(status.st_mode & stat.S_ISUID and status.st_uid != 0)
    is_other = (status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()) or (
        status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
    )
    try:
        return bool(is_other) or _CAPABILITIES in os.listxattr(program)
    except OSError:  # A file system without extended attributes keeps no capabilities.
        return False


@contextmanager
def starting(command: Sequence[str]) -> Iterator[None]:
    """Raise CannotRun where what is done within, to start the command, fails."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError) or (
            isinstance(error, OSError) and error.errno == errno.ENOEXEC
        ):
            raise cannot_start(command[0]) from error
        raise CannotRun(f"cannot run {command[0]!r}: {error}", found=True) from error


def cannot_start(name: str) -> CannotRun:
    """Return what to tell of a program that could not be started."""
    file = Path(name) if "/" in name else None
    found = file if file and file.exists() else shutil.which(name, mode=os.F_OK)
    if found is None:
        advice = "check its name, or install it"
        if len(name.split()) > 1:
            advice = f"write its words one by one, or have a shell read them: sh -c {quote(name)}"
        return CannotRun(f"there is no program {name!r}; {advice}", found=False)
    if Path(found).is_dir():
        return CannotRun(f"{name!r} is a folder; name a program in it", found=True)
    if not os.access(found, os.X_OK):
        return CannotRun(
            f"{name!r} is not executable; run: chmod +x {shell_word(name)}", found=True
        )
    interpreter = interpreter_of(Path(found))
    if not interpreter.exists():
        message = (
            f"{name!r} is a script for {interpreter}, which is not there; install that, or mend "
            "its first line"
        )
        return CannotRun(message, found=False)
    if interpreter == Path(found) and _is_text(interpreter):
        message = (
            f"{name!r} does not say what runs it; give it a first line such as #!/bin/sh, or name "
            f"that in the command: sh {name}"
        )
        return CannotRun(message, found=True)
    return CannotRun(f"{name!r} is not a program that this machine can run", found=True)


def _is_text(file: Path) -> bool:
    """Whether a file looks like a script, by what the kernel reads of it to tell."""
    try:
        with file.open("rb") as opened:
            first = opened.read(_LONGEST_FIRST_LINE)
    except OSError:
        return False
    return bool(first) and b"\0" not in first
