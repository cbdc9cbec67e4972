"""Finds out which programs really ran with a library preloaded, and whose `malloc` they called.

The dynamic loader keeps the account itself: with LD_DEBUG=files,bindings each process writes what
it loads, and in which file it finds a function, to a file of its own, children and their children
included. So a program that lost LD_PRELOAD on its way (a cleaned environment, a privileged file) is
seen, whatever it printed, and so is a library that was loaded and not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_INITIALISED = re.compile(r"calling init: (\S+)")
_STARTED = re.compile(r"initialize program: (\S+)")
# libc itself asks for these when it is loaded, so that there is a line in every process.
_BOUND = re.compile(
    r"binding file .* to (\S+) \[\d+\]: normal symbol `(?:malloc|calloc|realloc|free)'"
)


@dataclass(frozen=True)
class Start:
    """One exec of a dynamically linked program, with the libraries that it began with.

    `allocators` are the files that its `malloc` and relatives come from.
    """

    program: str
    libraries: frozenset[str]
    allocators: frozenset[str]


class LoaderLog:
    """The loader's account of one run; `folder` is the log's own and outside the run's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o777)  # a program may go on as another user
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_DEBUG": "files,bindings", "LD_DEBUG_OUTPUT": str(self._folder / "loaded")}

    def starts(self) -> list[Start]:
        return [start for file in sorted(self._folder.iterdir()) for start in _starts(file)]


def _starts(log: Path) -> Iterator[Start]:
    """A process that calls exec goes on in the same file: each start closes a list of libraries.

    What a program binds later, at its first call, is counted with the start that follows in its
    process, where there is one: it may not come from elsewhere either.
    """
    libraries: set[str] = set()
    allocators: set[str] = set()
    with log.open(errors="replace") as lines:
        for line in lines:
            if found := _BOUND.search(line):
                allocators.add(found.group(1))
            elif found := _INITIALISED.search(line):
                libraries.add(found.group(1))
            elif found := _STARTED.search(line):
                program = found.group(1)
                # At a fixed address a program stands in for what it calls, with a jump to it.
                called = allocators - {program} or allocators
                yield Start(Path(program).name, frozenset(libraries), frozenset(called))
                libraries.clear()
                allocators.clear()
