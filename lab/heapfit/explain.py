"""Reports of memory errors, as the library writes them on stderr, with functions and lines.

A report is a line that says what happened, lines that say who did what, each with the places of a
stack, and is followed by whatever else the program says:

    heapfit: use after free: read of 0x…, byte 8 of the block at 0x… of 48 bytes
    heapfit:   accessed by thread 32642:
    heapfit:     /home/me/sessions+0x11de
    heapfit:   build ID of /home/me/sessions: 54f79b0c…

The last lines, one for each file, tell whether the file is still the one that ran.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from heapfit.symbols import Files, Frame

_PLACE = re.compile(r".*heapfit: {5}(/.+)\+(0x[0-9a-f]+)$")
_ACT = re.compile(r".*heapfit: {3}(\w[\w ]*?) by thread (\d+):?$")
_FILE = re.compile(r".*heapfit: {3}build ID of (/.+): ([0-9a-f]+)$")
_SAID = re.compile(r".*heapfit: (\S.*)$")


@dataclass(frozen=True)
class Place:
    """A place in a report. `rebuilt`: the file that is here now is another build."""

    file: str
    offset: str  # hexadecimal
    rebuilt: bool
    frames: list[Frame]  # the innermost first; none where the file says nothing


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


def _places(lines: Sequence[str]) -> Iterator[tuple[str, Place | None]]:
    """Yield each line, and the place that it names, if it is one of a report's."""
    files = Files()
    build_id = cache(files.build_id)
    for line, noted in zip(lines, _build_ids(lines), strict=True):
        named = _PLACE.match(line)
        if named is None:
            yield line, None
            continue
        path, offset = named.groups()
        # Either may be unknown: a linker need not give a file a build ID.
        ids = {noted.get(path, ""), build_id(path)} - {""}
        is_another = len(ids) > 1
        frames: list[Frame] = []
        if not is_another and Path(path).is_file():
            frames = [f for f in files.inlined(path, int(offset, 16)) if f.function is not None]
        yield line, Place(path, offset, is_another, frames)


def explained(lines: Sequence[str]) -> Iterator[str]:
    """Yield each line; a place with its function and line, once for each inlined call, or with a
    note where its file is another build by now."""
    for line, place in _places(lines):
        if place and place.rebuilt:
            yield f"{line}  (this file was rebuilt or replaced since)"
        elif place and place.frames:
            yield from (f"{line}  {frame.where}" for frame in place.frames)
        else:
            yield line


def reports(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return what each report says: its first line, and by act the thread and the stack."""
    found: list[dict[str, Any]] = []
    for line, place in _places(lines):
        act, said = _ACT.match(line), _SAID.match(line)
        if place and found and found[-1]["acts"]:
            known: list[Frame | None] = [*place.frames] or [None]
            found[-1]["acts"][-1]["stack"] += [
                {
                    "file": place.file,
                    "offset": place.offset,
                    "rebuilt": place.rebuilt,
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
