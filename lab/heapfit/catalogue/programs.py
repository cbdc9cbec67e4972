"""Builds of the user's own program as treatments: each a program under an allocator.

They are variants of the allocators, which set the parameter `program` of the workload; so what is
measured, kept and compared is what it is for any variant.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from heapfit.errors import HeapfitError, UsageError
from heapfit.records import InstalledAllocator, Workload
from heapfit.text import join_words

PROGRAM = "program"
PLACEHOLDER = f"{{{PROGRAM}}}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def resolve_programs(text: str) -> dict[str, str]:
    """Return the files that `old=./a,new=./b` names, by name, as absolute paths.

    Raises UsageError for what makes no sense, HeapfitError for a file that is not there.
    """
    found: dict[str, str] = {}
    for word in text.split(","):
        name, equals, file = (part.strip() for part in word.partition("="))
        if not equals or not file or not _NAME.fullmatch(name):
            raise UsageError(f"--programs takes NAME=FILE,NAME=FILE, not {word!r}")
        if name in found:
            raise UsageError(f"two programs are called {name!r}; give each a name of its own")
        found[name] = _file(name, file)
    if len(found) < 2:
        raise UsageError("--programs compares two or more: write --programs old=./a,new=./b")
    return found


def _file(name: str, file: str) -> str:
    path = Path(file).expanduser().absolute() if "/" in file else Path(shutil.which(file) or file)
    if not path.is_file():
        raise UsageError(f"{name}: there is no program {file!r}; check its path, or build it")
    return str(path)


def with_programs(
    programs: Mapping[str, str], allocators: Sequence[InstalledAllocator]
) -> list[InstalledAllocator]:
    """Return each of the `programs` under each of the `allocators`, the first program first."""
    several = len(allocators) > 1
    return [
        allocator.model_copy(
            update={
                "name": f"{name}+{allocator.name}" if several else name,
                "title": f"{Path(path).name} under {allocator.title}",
                "variant_of": allocator,
                "program": name,
                "parameters": {PROGRAM: path},
            }
        )
        for name, path in programs.items()
        for allocator in allocators
    ]


def taking_programs(workload: Workload, programs: Mapping[str, str]) -> Workload:
    """Return `workload` with the parameter that its command shall have where a program stands.

    Raises UsageError where the command has no place for it, HeapfitError for a file that cannot be
    run in that place.
    """
    command = (workload.server or workload.run).command
    if not any(PLACEHOLDER in word for word in command):
        raise UsageError(f"the command takes no program: write {PLACEHOLDER} where it goes")
    if command[0] == PLACEHOLDER:
        for name, path in programs.items():
            if not os.access(path, os.X_OK):
                raise HeapfitError(f"{name}: {path} may not be run; is it executable for you?")
    parameters = {**workload.parameters, PROGRAM: next(iter(programs.values()))}
    title = f"{join_words(list(programs))}: {workload.title}"
    return workload.model_copy(update={"parameters": parameters, "title": title})
