"""Whether preloading an allocator into a program measures what it seems to.

The program is looked at, not run: its file, and the libraries that the dynamic loader finds for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from heapfit.catalogue.command import run_quietly
from heapfit.doctor.checks import Finding
from heapfit.errors import HeapfitError
from heapfit.program import Elf, obstacle, read, started_by

_TIMEOUT_S = 10.0
_RESOLVED = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x", re.MULTILINE)
_C_LIBRARY = "libc.so."


def examine(command: Sequence[str]) -> Finding | None:
    """Return what is to be said of the malloc of the program that `command` starts.

    None when there is no such program, or none that can be read.
    """
    program = started_by(command[0])
    file = _read(program) if program else None
    if program is None or file is None:
        return None
    topic = f"malloc of {Path(command[0]).name}"
    if found := obstacle(program):
        state, advice = found
        return Finding(topic=topic, state=state, advice=advice)
    assert file.loader is not None, "it would be linked statically"
    return _of_libraries(topic, _libraries(file.loader, program))


def _of_libraries(topic: str, libraries: Sequence[Path]) -> Finding:
    c_library = next((path for path in libraries if path.name.startswith(_C_LIBRARY)), None)
    for path in libraries:
        library = None if path == c_library else _read(path)
        if library is not None and library.has_malloc:
            return Finding(
                topic=topic,
                state=f"from {path.name}, which it is linked with",
                advice="'glibc' preloads nothing and would measure that one: "
                f"add libc={c_library} to --allocators",
            )
    return Finding(topic=topic, state="the C library's")


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


def _read(path: Path) -> Elf | None:
    try:
        return read(path)
    except OSError:
        return None
