"""An allocator that is compiled from the source that a crate carries, by its TOML file's recipe."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

from heapfit.catalogue import cargo, debian
from heapfit.catalogue.command import last_line, run_quietly
from heapfit.catalogue.sources import unpacked
from heapfit.catalogue.sources.described import package_of
from heapfit.errors import HeapfitError, UsageError
from heapfit.records import Allocator, AllocatorBuild, InstalledAllocator

_MACHINE = "{machine}"


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return what was compiled earlier by the same recipe; UsageError when there is none."""
    _recipe(allocator)
    return unpacked.find(allocator)


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Fetch the crate's source, compile it and keep the library in the data folder."""
    version, build = _recipe(allocator)
    with tempfile.TemporaryDirectory(prefix="heapfit-") as scratch:
        fetched, made = Path(scratch, "crate"), Path(scratch, "build")
        fetched.mkdir()
        made.mkdir()
        source = cargo.fetch(package_of(allocator), version, fetched, say)
        if build.debian and debian.is_used():
            debian.install(build.debian, say)
        with unpacked.replaced(unpacked.folder(allocator)) as folder:
            library = f"{allocator.name}.so"
            say(f"compiling {allocator.name}")
            places = {
                "source": source,
                "project": fetched,
                "library": folder / library,
                "here": unpacked.CATALOGUE,
            }
            for words in build.commands:
                _run(allocator, expand(words, build, places), made)
            if not (folder / library).is_file():
                raise HeapfitError(f"{allocator.name}: its commands did not make the library")
            unpacked.write_manifest(allocator, folder, version, library)


def expand(words: list[str], build: AllocatorBuild, places: dict[str, Path]) -> list[str]:
    """Return a command with its placeholders filled in, for this machine."""
    expanded: list[str] = []
    for word in words:
        if word == _MACHINE:
            expanded += build.machine_arguments.get(platform.machine(), [])
            continue
        for name, place in places.items():
            word = word.replace(f"{{{name}}}", str(place))
        expanded.append(word)
    return expanded


def _recipe(allocator: Allocator) -> tuple[str, AllocatorBuild]:
    source = allocator.source
    if source.version is None or source.build is None:
        raise UsageError(f"{allocator.name}: a crate as a source needs a version and a build table")
    return source.version, source.build


def _run(allocator: Allocator, command: list[str], folder: Path) -> None:
    result = run_quietly(command, folder=folder)
    if result.returncode == 0:
        return
    errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
    said = errors[0].strip() if errors else last_line(result)
    raise HeapfitError(f"compiling {allocator.name} failed: {said}")
