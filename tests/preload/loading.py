"""Finds out which programs really ran with a library preloaded.

The dynamic loader keeps the account itself: with LD_DEBUG=files each process writes what it loads
to a file of its own, children and their children included. So a program that lost LD_PRELOAD on
its way (a cleaned environment, a privileged file) is seen, whatever it printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_INITIALISED = re.compile(r"calling init: (\S+)")
_STARTED = re.compile(r"initialize program: (\S+)")


@dataclass(frozen=True)
class Start:
    """One exec of a dynamically linked program, with the libraries that it began with."""

    program: str
    libraries: frozenset[str]


class LoaderLog:
    """The loader's account of one run; `folder` is the log's own and outside the run's."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o777)  # a program may go on as another user
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(self._folder / "loaded")}

    def starts(self) -> list[Start]:
        files = sorted(self._folder.iterdir())
        return [start for file in files for start in _starts(file.read_text(errors="replace"))]


def _starts(log: str) -> Iterator[Start]:
    """A process that calls exec goes on in the same file: each start closes a list of libraries."""
    libraries: set[str] = set()
    for line in log.splitlines():
        if found := _INITIALISED.search(line):
            libraries.add(found.group(1))
        elif found := _STARTED.search(line):
            yield Start(Path(found.group(1)).name, frozenset(libraries))
            libraries.clear()
