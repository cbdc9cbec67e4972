"""What the sources share: describe a library that was found on this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

from heapfit import paths
from heapfit.errors import HeapfitError, UsageError
from heapfit.records import Allocator, InstalledAllocator


def package_of(allocator: Allocator) -> str:
    """Return the package that `allocator` comes from; UsageError when its TOML names none."""
    if allocator.source.package is None:
        raise UsageError(f"{allocator.name}: its source must name a package")
    return allocator.source.package


def describe(allocator: Allocator, version: str, library: Path) -> InstalledAllocator:
    """Return the record of `allocator`, whose shared library is `library`."""
    path = library.absolute()
    paths.check_preloadable(path)
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
