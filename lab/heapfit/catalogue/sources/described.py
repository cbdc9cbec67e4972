"""What the sources share: describe a library that was found on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.records import Allocator, InstalledAllocator

# The dynamic linker splits LD_PRELOAD at these and offers no way to quote them.
_SEPARATORS = (" ", ":", "\t", "\n")


def describe(allocator: Allocator, version: str, library: Path) -> InstalledAllocator:
    """Return the record of `allocator`, whose shared library is `library`."""
    path = library.absolute()
    if any(separator in str(path) for separator in _SEPARATORS):
        raise HeapfitError(
            f"{path} cannot be preloaded: LD_PRELOAD has no way to write a space or colon; "
            "copy the library to a path without them"
        )
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise HeapfitError(f"cannot read {path}: {error.strerror}") from error
    return InstalledAllocator(
        name=allocator.name,
        title=allocator.title,
        version=version,
        library=path,
        sha256=digest,
        environment=allocator.environment,
    )
