"""An allocator whose shared library travels in a wheel.

The wheel is downloaded and only its library unpacked: nothing is installed into this Python.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

from heapfit.catalogue.command import last_line, run_quietly
from heapfit.catalogue.sources import unpacked
from heapfit.catalogue.sources.described import package_of
from heapfit.errors import HeapfitError
from heapfit.records import Allocator

# What pip says of the versions that it found when it found no index either.
_NOT_EVEN_ONE_VERSION = "(from versions: none)"

find = unpacked.find


def install(allocator: Allocator, say: Callable[[str], None]) -> None:
    """Download the wheel with pip and keep its library in the data folder."""
    say(f"downloading {_requirement(allocator)} (pip)")
    with tempfile.TemporaryDirectory(prefix="heapfit-") as download:
        wheel = _download(allocator, Path(download))
        with unpacked.replaced(unpacked.folder(allocator)) as folder:
            library = _extract(allocator, wheel, folder)
            unpacked.write_manifest(allocator, folder, wheel.name.split("-")[1], library)


def _requirement(allocator: Allocator) -> str:
    package, version = package_of(allocator), allocator.source.version
    return f"{package}=={version}" if version else package


def _download(allocator: Allocator, folder: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    wanted = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), _requirement(allocator)]
    result = run_quietly([*pip, "download", "--quiet", *wanted])
    if "No module named pip" in result.stderr:
        raise HeapfitError(f"pip is missing; run: {sys.executable} -m ensurepip")
    wheels = list(folder.glob("*.whl"))
    if _NOT_EVEN_ONE_VERSION in result.stderr:
        raise HeapfitError(
            f"cannot download {_requirement(allocator)}: "
            "no package index that has it can be reached"
        )
    if result.returncode != 0 or not wheels:
        raise HeapfitError(f"cannot download {_requirement(allocator)}: {last_line(result)}")
    return wheels[0]


def _extract(allocator: Allocator, wheel: Path, folder: Path) -> str:
    pattern = allocator.source.library or "*.so*"
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if fnmatch(name, pattern)]
        if not members:
            raise HeapfitError(f"{wheel.name} holds no library {pattern!r}")
        library = Path(members[0]).name
        (folder / library).write_bytes(archive.read(members[0]))
    return library
