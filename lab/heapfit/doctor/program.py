"""Whether preloading an allocator into a program measures what it seems to.

The program is looked at, not run: its file, and the libraries that the dynamic loader finds for it.
"""

import os
import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from heapfit.catalogue.command import run_quietly
from heapfit.doctor.checks import Finding
from heapfit.errors import HeapfitError
from heapfit.host.elf import has_malloc, read_or_none
from heapfit.host.interpreters import hiding
from heapfit.host.program import STARTERS, obstacle, started_by
from heapfit.text import capitalised

_TIMEOUT_S = 10.0
_RESOLVED = re.compile(r"^\s*(?:.+ => )?(.*/.+) \(0x", re.MULTILINE)
C_LIBRARY = "libc.so."
_LOADER = "ld-"


def examine(command: Sequence[str]) -> Finding | None:
    """Return what is to be said of the malloc of the program that `command` starts.

    None when there is no such program, or none that can be read.
    """
    program = started_by(command[0])
    file = read_or_none(program) if program else None
    if program is None or file is None:
        return None
    topic = f"malloc of {Path(command[0]).name}"
    if found := obstacle(program):
        state, advice = found
        return Finding(topic=topic, state=state, advice=advice)
    if program.name in STARTERS:
        return Finding(
            topic=topic,
            state=f"unknown: {program.name} starts other programs",
            advice="name the real program, or just compare: 'heapfit compare' rejects a "
            "run if the allocator was not loaded in the process that did the work",
        )
    assert file.loader is not None, "it would be linked statically"
    return _of_libraries(topic, _libraries(file.loader, program))


def examine_objects(command: Sequence[str]) -> Finding | None:
    """Return what an interpreter keeps from any malloc in the program that `command` starts; None
    where that is no such interpreter, or was told to keep nothing."""
    program = started_by(command[0])
    found = hiding(str(program.resolve()), os.environ) if program else None
    if found is None:
        return None
    return Finding(
        topic=f"objects of {Path(command[0]).name}",
        state=capitalised(f"{found.keeps}, which no preloaded malloc serves"),
        advice=f"to see them, {found.instead}",
    )


def _of_libraries(topic: str, libraries: Sequence[Path]) -> Finding:
    found = linked_allocator(libraries)
    if not libraries:
        return Finding(
            topic=topic,
            state="unknown: the dynamic loader does not list its libraries",
            advice="see whether it starts, and whether one of its libraries is missing",
        )
    if found is None:
        return Finding(topic=topic, state="can be replaced: it is the C library's")
    return Finding(
        topic=topic,
        state=f"from {found.name}, which it is linked with",
        advice="as an allocator, 'glibc' means the program as it is, with that one; for glibc's "
        f"own, add libc={c_library(libraries)} to --allocators",
    )


def linked_allocator(libraries: Iterable[Path]) -> Path | None:
    """Return the first of a program's libraries that brings a malloc and is searched before the C
    library, in the loader's order. The loader's own malloc serves nobody else (glibc 2.31)."""
    before = takewhile(lambda path: not path.name.startswith(C_LIBRARY), libraries)
    others = (path for path in before if not path.name.startswith(_LOADER))
    return next(filter(has_malloc, others), None)


def c_library(libraries: Iterable[Path]) -> Path | None:
    """Return the C library among a program's libraries."""
    return next((path for path in libraries if path.name.startswith(C_LIBRARY)), None)


def libraries_of(program: Path) -> list[Path]:
    """Return the libraries that the dynamic loader finds for a program, itself among them; none
    for what is linked statically, or no program."""
    file = read_or_none(program)
    if file is None or file.loader is None:
        return []
    return list(dict.fromkeys([file.loader, *_libraries(file.loader, program)]))


def _libraries(loader: Path, program: Path) -> list[Path]:
    """Ask the loader which libraries it would load, in the order in which it searches them."""
    try:
        command = [str(loader), "--list", str(program.absolute())]  # it searches for mere names
        listed = run_quietly(command, timeout_s=_TIMEOUT_S).stdout
    except HeapfitError:
        return []
    return [Path(path) for path in _RESOLVED.findall(listed)]
