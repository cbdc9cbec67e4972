"""heapfit's PHP extension, built from the sources beside these workloads, once for each state."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# A checkout and a wheel have the same folders beside `workloads`.
ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("allocator", "include", "integrations/php")
BUILD = ROOT / "integrations" / "php" / "build"
NAME = "heapfit.so"
_BUILD_TIMEOUT_S = 600
_DIGEST_LENGTH = 12
# What Python and phpize leave beside sources says nothing about them.
_SUFFIXES = {".c", ".h", ".m4", ""}


def _digest() -> str:
    state = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and path.suffix in _SUFFIXES:
                state.update(str(path.relative_to(ROOT)).encode())
                state.update(path.read_bytes())
    return state.hexdigest()[:_DIGEST_LENGTH]


def built(folder: Path) -> Path:
    """Return heapfit.so of the present sources, in a folder of its own below `folder`."""
    place = folder / "extension" / _digest()
    library = place / NAME
    if library.exists():
        return library
    if not BUILD.exists():
        sys.exit(f"no {BUILD}: this heapfit comes without its PHP extension")
    place.parent.mkdir(parents=True, exist_ok=True)
    # The rename makes a half-built extension impossible to load.
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        done = subprocess.run(
            [str(BUILD), unfinished],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
        )
        if done.returncode != 0:
            sys.exit(f"{BUILD} failed: {(done.stdout + done.stderr).strip()[-2000:]}")
        place.mkdir(exist_ok=True)
        os.replace(Path(unfinished) / NAME, library)
    return library
