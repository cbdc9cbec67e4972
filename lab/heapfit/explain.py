"""Reports of memory errors, as the library writes them on stderr, with functions and lines.

A report is a line that says what happened, lines that say who did what, each with the places of a
stack, and is followed by whatever else the program says:

    heapfit: use after free: read of 0x…, byte 8 of the block at 0x… of 48 bytes
    heapfit:   accessed by thread 32642:
    heapfit:     /home/me/sessions+0x11de
    heapfit:   build ID of /home/me/sessions: 54f79b0c…

The last lines, one for each file, tell whether the file is still the one that ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heapfit.pools.explanation import Module
from heapfit.symbols import Frame, Symbols, build_id

_PLACE = re.compile(r"(.*heapfit: {5})(/.+)\+(0x[0-9a-f]+)$")
_ACT = re.compile(r".*heapfit: {3}(\w[\w ]*?) by thread (\d+):?$")
_FILE = re.compile(r".*heapfit: {3}build ID of (/.+): ([0-9a-f]+)$")
_SAID = re.compile(r".*heapfit: (\S.*)$")
_WHOLE_FILE = 1 << 64


class Places:
    """Finds frames of offsets in files; each file is read once."""

    def __init__(self) -> None:
        self._symbols: dict[str, Symbols] = {}
        self._now: dict[str, str] = {}

    def frames(self, path: str, offset: int) -> list[Frame]:
        """Return the frames there, the innermost first; none where the file says nothing."""
        if path not in self._symbols:
            modules = [Module(path=path, base=0, end=_WHOLE_FILE)] if Path(path).is_file() else []
            self._symbols[path] = Symbols(modules)
        # A place is that of the call; symbols are asked for by where it returns to.
        frames = self._symbols[path].inlined(offset + 1)
        return [frame for frame in frames if frame.function is not None]

    def is_another(self, path: str, noted: str) -> bool:
        """Tell whether the file that is here now is not the build whose ID was noted."""
        if path not in self._now:
            self._now[path] = build_id(Path(path)) if Path(path).is_file() else ""
        return bool(noted and self._now[path]) and self._now[path] != noted


def _build_ids(lines: Sequence[str]) -> list[dict[str, str]]:
    """Return for each line the build IDs that stand at the end of its report, by file."""
    found: list[dict[str, str]] = []
    report: dict[str, str] = {}
    for line in reversed(lines):
        if noted := _FILE.match(line):
            report[noted[1]] = noted[2]
        found.append(report)
        if _SAID.match(line) and not _PLACE.match(line):
            report = {}
    return found[::-1]


def explained(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line, and behind a place its function and line, for each inlined call one; of a
    file that is another build by now, that it is."""
    places = Places()
    for line, noted in zip(lines, _build_ids(lines), strict=True):
        place = _PLACE.match(line)
        if place and places.is_another(place[2], noted.get(place[2], "")):
            yield f"{line}  (this file was rebuilt or replaced since)"
            continue
        frames = places.frames(place[2], int(place[3], 16)) if place else []
        if not frames:
            yield line
        for frame in frames:
            yield f"{line}  {frame.where}"


def reports(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return what each report says: its first line, and by act the thread and the stack."""
    places = Places()
    found: list[dict[str, Any]] = []
    for line, noted in zip(lines, _build_ids(lines), strict=True):
        place, act, said = _PLACE.match(line), _ACT.match(line), _SAID.match(line)
        if place and found and found[-1]["acts"]:
            is_another = places.is_another(place[2], noted.get(place[2], ""))
            frames = [] if is_another else places.frames(place[2], int(place[3], 16))
            stack = found[-1]["acts"][-1]["stack"]
            known: list[Frame | None] = list(frames) if frames else [None]
            stack += [
                {
                    "file": place[2],
                    "offset": place[3],
                    "rebuilt": is_another,
                    "function": frame and frame.function,
                    "source": frame and frame.file,
                    "line": frame and frame.line,
                }
                for frame in known
            ]
        elif act and found:
            found[-1]["acts"].append({"act": act[1], "thread": int(act[2]), "stack": []})
        elif said and not place:
            found.append({"said": said[1], "acts": []})
    return found
