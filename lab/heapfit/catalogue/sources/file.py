"""A library that the user names by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from heapfit.catalogue.sources.described import describe
from heapfit.errors import UsageError
from heapfit.records import Allocator, InstalledAllocator


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return the library at the path, or None when there is no such file."""
    library = Path(allocator.source.library or "").expanduser()
    version = allocator.source.version or "unknown"
    return describe(allocator, version, library) if library.is_file() else None


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Raise: where the library comes from is the user's affair."""
    raise UsageError(f"{allocator.name}: there is no library at {allocator.source.library}")
