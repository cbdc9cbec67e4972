"""The system's own allocator: nothing is preloaded."""

from __future__ import annotations

import os
from collections.abc import Callable

from heapfit.errors import HeapfitError
from heapfit.records import Allocator, InstalledAllocator


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return glibc's malloc, which every machine that this runs on has."""
    return InstalledAllocator(
        name=allocator.name,
        title=allocator.title,
        version=_libc_version(),
        library=None,
        environment=allocator.environment,
    )


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Raise: the system's allocator is there or it is not."""
    raise HeapfitError(f"{allocator.name} comes with the system and cannot be installed")


def _libc_version() -> str:
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION")
    except ValueError:
        libc = None
    if not libc:
        raise HeapfitError("this system's C library is not glibc; heapfit needs glibc")
    return libc.removeprefix("glibc ")
