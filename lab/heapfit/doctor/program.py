"""Whether preloading an allocator into a program measures what it seems to.

The program is looked at, not run: its file, and the libraries that the dynamic loader finds for it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from heapfit.catalogue.command import run_quietly
from heapfit.doctor import elf
from heapfit.doctor.finding import Finding
from heapfit.errors import HeapfitError

_TIMEOUT_S = 10.0
_SCRIPT = b"#!"
_LONGEST_FIRST_LINE = 256  # what the kernel reads of a script's first line
_RESOLVED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_C_LIBRARY = "libc.so."
_MALLOC = b"malloc"
_CAPABILITIES = "security.capability"  # extended attribute of a file with capabilities


def examine(command: Sequence[str]) -> Finding | None:
    """Return what is to be said of the malloc of the program that `command` starts.

    None when there is no such program, or none that can be read.
    """
    program = _program(command)
    file = _read(program) if program else None
    if program is None or file is None:
        return None
    topic = f"malloc of {Path(command[0]).name}"
    obstacle = _obstacle(program, file)
    if obstacle is not None:
        state, advice = obstacle
        return Finding(topic=topic, state=state, advice=advice)
    assert file.loader is not None, "it would be linked statically"
    return _of_libraries(topic, _libraries(file.loader, program))


def why_not_preloadable(command: Sequence[str]) -> str | None:
    """Return why a preloaded malloc would not be used by the program that `command` starts.

    None when it would, or when the program cannot be read.
    """
    program = _program(command)
    file = _read(program) if program else None
    obstacle = _obstacle(program, file) if program and file else None
    return None if obstacle is None else obstacle[1]


def _obstacle(program: Path, file: elf.Elf) -> tuple[str, str] | None:
    """Return what its malloc is and what to do, where a preload would not replace it."""
    if file.loader is None:
        return (
            "built in, for it is linked statically",
            "nothing can be preloaded into it: link it dynamically",
        )
    if _MALLOC in file.exports:
        return "its own", "it would not use a preloaded one: build it without its own"
    if _gets_other_rights(program):
        return (
            "protected, for it runs with other rights than yours (setuid or capabilities)",
            "nothing can be preloaded into it: start it as the user whose rights it takes",
        )
    return None


def _gets_other_rights(program: Path) -> bool:
    """Whether the loader ignores LD_PRELOAD for us (AT_SECURE)."""
    status = program.stat()
    if os.geteuid() == 0:
        return bool(status.st_mode & stat.S_ISUID and status.st_uid != 0)
    is_other = (status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()) or (
        status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
    )
    return bool(is_other) or _CAPABILITIES in os.listxattr(program)


def _program(command: Sequence[str]) -> Path | None:
    found = shutil.which(command[0])
    return interpreter_of(Path(found)) if found else None


def _of_libraries(topic: str, libraries: Sequence[Path]) -> Finding:
    c_library = next((path for path in libraries if path.name.startswith(_C_LIBRARY)), None)
    for path in libraries:
        library = None if path == c_library else _read(path)
        if library is not None and _MALLOC in library.exports:
            return Finding(
                topic=topic,
                state=f"from {path.name}, which it is linked with",
                advice="'glibc' preloads nothing and would measure that one: "
                f"add libc={c_library} to --allocators",
            )
    return Finding(topic=topic, state="the C library's")


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


def libraries_of(program: Path) -> list[Path]:
    """Return the libraries that the dynamic loader finds for a program, itself among them; none
    for what is linked statically, or no program."""
    file = _read(program)
    if file is None or file.loader is None:
        return []
    return list(dict.fromkeys([file.loader, *_libraries(file.loader, program)]))


def _libraries(loader: Path, program: Path) -> list[Path]:
    """Ask the loader which libraries it would load, in the order in which it searches them."""
    try:
        listed = run_quietly([str(loader), "--list", str(program)], timeout_s=_TIMEOUT_S).stdout
    except HeapfitError:
        return []
    return [Path(path) for path in _RESOLVED.findall(listed)]


def _read(path: Path) -> elf.Elf | None:
    try:
        return elf.read(path)
    except OSError:
        return None
