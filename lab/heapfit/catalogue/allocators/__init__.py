"""The allocators of the catalogue, `*.toml` beside this file, and those that the user names.

Wherever allocators are named, a name of the catalogue, `name=path/to/lib.so`, or the path of a
TOML file of the same form is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from heapfit.catalogue.record_file import read_record
from heapfit.catalogue.smoke import check_loads, smoke_test
from heapfit.catalogue.sources import SOURCES, Source
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.records import Allocator, AllocatorSource, InstalledAllocator

_FOLDER = Path(__file__).parent


def load_allocators() -> dict[str, Allocator]:
    """Return the catalogue by name, in alphabetical order but for glibc and heapfit, which lead."""
    return {entry.name: entry for entry in _entries()}


@cache
def _entries() -> Sequence[Allocator]:
    """The catalogue in its order, read once: a study asks for it with each of its variants."""
    entries = [read_record(path, Allocator) for path in _FOLDER.glob("*.toml")]
    leading = {"system": 0, "heapfit": 1}
    entries.sort(key=lambda entry: (leading.get(entry.source.kind, len(leading)), entry.name))
    return entries


def find_installed(allocator: Allocator) -> InstalledAllocator | None:
    """Return what this machine has of `allocator`, or None when it is not installed."""
    return _source(allocator).find(allocator)


def install_allocator(allocator: Allocator, say: Callable[[str], None]) -> InstalledAllocator:
    """Install `allocator` unless it is there already, try it out, and return it.

    `say` is called with a line before each step that takes a while. Raises HeapfitError when it
    cannot be installed, or when a program does not run under it.
    """
    installed = find_installed(allocator)
    if installed is None:
        _source(allocator).install(allocator, say)
        installed = find_installed(allocator)
    if installed is None:
        raise HeapfitError(
            f"{allocator.source.package or allocator.name} was installed "
            f"but holds no library {allocator.source.library!r}"
        )
    smoke_test(installed)
    return installed


def resolve_allocators(names: Iterable[str]) -> list[InstalledAllocator]:
    """Return the allocators that a user named, each checked to load into a program.

    Raises UsageError for a name that is unknown or given twice, HeapfitError for an allocator
    that is not installed or does not load.
    """
    resolved: dict[str, InstalledAllocator] = {}
    for allocator in find_allocators(names):
        if allocator.name in resolved:
            raise UsageError(f"the allocator {allocator.name!r} is named twice")
        resolved[allocator.name] = _require(allocator)
    for installed in resolved.values():
        check_loads(installed)
    return list(resolved.values())


def find_allocators(names: Iterable[str]) -> list[Allocator]:
    """Return the entries that a user named, installed or not."""
    catalogue = load_allocators()
    return [_find(name.strip(), catalogue) for name in names]


def _find(name: str, catalogue: dict[str, Allocator]) -> Allocator:
    own_name, equals, library = name.partition("=")
    if equals and own_name and library:
        return _from_path(own_name, library)
    if name.endswith(".toml"):
        return _from_file(Path(name))
    if "/" in name:
        raise UsageError(f"a library needs a name of yours: write mine={name}")
    if name not in catalogue:
        raise unknown("allocator", name, catalogue)
    return catalogue[name]


def _source(allocator: Allocator) -> Source:
    return SOURCES[allocator.source.kind]


def _from_path(name: str, library: str) -> Allocator:
    source = AllocatorSource(kind="file", library=str(Path(library).expanduser().absolute()))
    return Allocator(name=name, title=f"{name} ({Path(library).name})", source=source)


def _from_file(path: Path) -> Allocator:
    allocator = read_record(path, Allocator)
    if allocator.source.kind != "file" or allocator.source.library is None:
        return allocator
    library = path.absolute().parent / Path(allocator.source.library).expanduser()
    source = allocator.source.model_copy(update={"library": str(library)})
    return allocator.model_copy(update={"source": source})


def _require(allocator: Allocator) -> InstalledAllocator:
    installed = find_installed(allocator)
    if installed is not None:
        return installed
    if allocator.source.kind in ("file", "heapfit", "by-hand"):
        _source(allocator).install(allocator, lambda _: None)  # Says what is wrong.
    raise HeapfitError(
        f"{allocator.name} is not installed; run: heapfit allocators install {allocator.name}"
    )
