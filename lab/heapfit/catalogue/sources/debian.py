"""An allocator from a Debian package."""

from __future__ import annotations

import platform
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from heapfit.catalogue import debian
from heapfit.catalogue.sources.described import describe, package_of
from heapfit.records import Allocator, InstalledAllocator


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return the package's library when the package is installed."""
    package = package_of(allocator)
    version = debian.version(package)
    library = _library(allocator, package) if version else None
    return describe(allocator, version, library) if version and library else None


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Install the package with apt-get."""
    debian.install([package_of(allocator)], say)


def _library(allocator: Allocator, package: str) -> Path | None:
    pattern = (allocator.source.library or "lib*.so*").replace("{machine}", platform.machine())
    matching = (file for file in debian.files(package) if fnmatch(file.name, pattern))
    return next((file for file in matching if file.is_file()), None)
