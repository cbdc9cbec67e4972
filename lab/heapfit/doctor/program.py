"""Whether preloading an allocator into a program measures what it seems to.

The program is looked at, not run: its file, and the libraries that the dynamic loader finds for it.
"""

from __future__ import annotations

import re
import shutil
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


def examine(command: Sequence[str]) -> Finding | None:
    """Return what is to be said of the malloc of the program that `command` starts.

    None when there is no such program, or none that can be read.
    """
    topic = f"malloc of {Path(command[0]).name}"
    found = shutil.which(command[0])
    program = _interpreter(Path(found)) if found else None
    file = _read(program) if program else None
    if program is None or file is None:
        return None
    if file.loader is None:
        return Finding(
            topic=topic,
            state="built in, for it is linked statically",
            advice="nothing can be preloaded into it: link it dynamically",
        )
    if _MALLOC in file.exports:
        return Finding(
            topic=topic,
            state="its own",
            advice="it would not use a preloaded one: build it without its own",
        )
    return _of_libraries(topic, _libraries(file.loader, program))


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


def _interpreter(program: Path) -> Path:
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
