"""One module per kind of source an allocator's library comes from.

Each has the same two functions: `find(allocator)` returns what is installed or None, and
`install(allocator, say)` brings it onto this machine or raises HeapfitError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from heapfit.catalogue.sources import by_hand, crate, debian, file, heapfit, pypi, system
from heapfit.records import Allocator, InstalledAllocator


class Source(Protocol):
    """What a module of this package offers."""

    def find(self, allocator: Allocator) -> InstalledAllocator | None: ...

    def install(self, allocator: Allocator, say: Callable[[str], None]) -> None: ...


SOURCES: dict[str, Source] = {
    "system": system,
    "heapfit": heapfit,
    "debian": debian,
    "pypi": pypi,
    "crate": crate,
    "file": file,
    "by-hand": by_hand,
}
