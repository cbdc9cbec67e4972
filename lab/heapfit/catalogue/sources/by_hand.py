"""An allocator that no package registry has: listed, so that its name says how to come by it."""

from __future__ import annotations

from collections.abc import Callable

from heapfit.errors import HeapfitError
from heapfit.records import Allocator, InstalledAllocator


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return None: what the user builds is named by its path, not by the catalogue."""
    return None


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Raise with how to name a library that the user has built."""
    raise HeapfitError(
        f"{allocator.name} is in no package registry; build its shared library and name it "
        f"{how_to_name(allocator)}"
    )


def how_to_name(allocator: Allocator) -> str:
    """Return what to write in place of the allocator's name, wherever one is asked for."""
    return f"{allocator.name}=path/to/lib.so"
