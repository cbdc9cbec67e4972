"""heapfit's own library, from the installation that this command belongs to."""

from __future__ import annotations

from collections.abc import Callable

from heapfit import __version__, paths
from heapfit.catalogue.sources.described import describe
from heapfit.records import Allocator, InstalledAllocator


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return the built library; None in a source checkout that has not been built."""
    library = paths.libraries().get(allocator.source.library or paths.DEFAULT_VARIANT)
    return describe(allocator, __version__, library) if library else None


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Raise with what to do: it is there once heapfit itself is built."""
    paths.library(allocator.source.library or paths.DEFAULT_VARIANT)
