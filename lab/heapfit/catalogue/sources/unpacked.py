"""Libraries that heapfit fetches itself: `allocators/NAME/` in the data folder.

The folder holds the library and `installed.json`, which says which version it is. It appears by
a rename once it is whole, so an interrupted installation leaves nothing that looks finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heapfit import paths
from heapfit.catalogue.sources.described import describe
from heapfit.errors import HeapfitError
from heapfit.records import Allocator, InstalledAllocator

_MANIFEST = "installed.json"

# The folder of the catalogue's own TOML files. Recipes name source files beside them as `{here}/…`.
CATALOGUE = Path(__file__).resolve().parent.parent / "allocators"
_BESIDE = "{here}/"


def folder(allocator: Allocator) -> Path:
    """Return where `allocator` is kept once it is installed."""
    return paths.data_dir() / "allocators" / allocator.name


def find(allocator: Allocator) -> InstalledAllocator | None:
    """Return what was fetched earlier, unless the catalogue now has another version or recipe."""
    try:
        manifest = json.loads((folder(allocator) / _MANIFEST).read_text(encoding="utf-8"))
        version, library = manifest["version"], folder(allocator) / manifest["library"]
    except (OSError, ValueError, KeyError):
        return None
    wanted = allocator.source.version
    if wanted not in (None, version) or manifest.get("build") != _recipe(allocator):
        return None
    if not library.is_file():
        return None
    return describe(allocator, version, library)


@contextmanager
def replaced(final: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `final` when the block ends without an error.

    Raises HeapfitError when the folder cannot be made or written.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    except OSError as error:
        raise HeapfitError(
            f"cannot write to {final.parent}: {error.strerror}; "
            "set HEAPFIT_HOME to a folder that you may write to"
        ) from error
    try:
        yield temporary
        temporary.chmod(0o755)
        if final.exists():
            shutil.rmtree(final)
        os.rename(temporary, final)
    except OSError as error:
        raise HeapfitError(f"cannot write to {final.parent}: {error.strerror}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_manifest(allocator: Allocator, into: Path, version: str, library: str) -> None:
    """Record in the folder `into` which version its `library` is, and by what recipe if any."""
    manifest = {"version": version, "library": library, "build": _recipe(allocator)}
    (into / _MANIFEST).write_text(json.dumps(manifest) + "\n", encoding="utf-8")


def _recipe(allocator: Allocator) -> dict[str, Any] | None:
    """Return what the library was made by: the commands, and the digests of our files in them."""
    build = allocator.source.build
    if build is None:
        return None
    words = {word for command in build.commands for word in command if word.startswith(_BESIDE)}
    files = {word: _digest(CATALOGUE / word.removeprefix(_BESIDE)) for word in sorted(words)}
    return {**build.model_dump(mode="json"), "files": files}


def _digest(file: Path) -> str | None:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None
