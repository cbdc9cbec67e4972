"""What is compiled for the trials: once for each state of its sources, for all applications.

It is kept beside the applications' data.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A checkout and a wheel have the same folders beside `workloads`.
ROOT = HERE.parents[1]
EXTENSION_BUILD = ROOT / "integrations" / "php" / "build"
# What has the version: in a checkout, and in a wheel.
_VERSION_FILES = (ROOT / "lab" / "heapfit" / "__init__.py", ROOT.parent / "__init__.py")
_FOLDER = "php-native"
_TIMEOUT_S = 600
_DIGEST_LENGTH = 12
# What compilers and Python leave beside sources says nothing about them.
_SOURCES = {".c", ".h", ".m4", ".map", ""}


def extension(data: Path) -> Path:
    """Return heapfit's extension of PHP, heapfit.so."""
    if not EXTENSION_BUILD.exists():
        sys.exit(f"no {EXTENSION_BUILD}: this heapfit comes without its extension of PHP")
    folders = [ROOT / "allocator", ROOT / "include", EXTENSION_BUILD.parent]
    sources = [path for folder in folders for path in folder.rglob("*")]
    return _built(
        data, "heapfit.so", sources, lambda folder: ["bash", str(EXTENSION_BUILD), str(folder)]
    )


def preload_helper(data: Path) -> Path:
    """Return the library of deepbind.c."""
    source = HERE / "deepbind.c"
    name = "php-deepbind.so"
    flags = ["-std=c17", "-O2", "-Wall", "-shared", "-fPIC"]
    return _built(
        data, name, [source], lambda folder: ["gcc", *flags, str(source), "-o", f"{folder}/{name}"]
    )


def _built(
    data: Path, name: str, sources: Iterable[Path], command: Callable[[Path], list[str]]
) -> Path:
    """Return the library `name`, made by `command`, which is told the folder."""
    place = data.parent / _FOLDER / _digest(sources)
    if (place / name).exists():
        return place / name
    place.mkdir(parents=True, exist_ok=True)
    # The rename makes a half-written library impossible to load.
    with tempfile.TemporaryDirectory(dir=place) as unfinished:
        words = command(Path(unfinished))
        done = subprocess.run(
            words,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0:
            sys.exit(f"{words[0]} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
        (Path(unfinished) / name).rename(place / name)
    return place / name


def _environment() -> dict[str, str]:
    """What a compiler runs in: without the trial's allocator, and with heapfit's version."""
    plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    for path in _VERSION_FILES:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if found := re.search(r'^__version__ = "(.*)"$', text, re.MULTILINE):
            return {**plain, "HEAPFIT_VERSION": found[1]}
    return plain


def _digest(sources: Iterable[Path]) -> str:
    state = hashlib.sha256()
    for path in sorted(sources):
        if path.is_file() and path.suffix in _SOURCES:
            state.update(path.name.encode())
            state.update(path.read_bytes())
    return state.hexdigest()[:_DIGEST_LENGTH]
