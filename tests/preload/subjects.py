"""Programs of programs/: how they are compiled, and run with something preloaded."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from comparison import PROGRAMS_FOLDER

TIMEOUT_S = 300  # against those that hang


def compiled(source: str | Path, folder: Path, *flags: str | Path, to: str | None = None) -> Path:
    """Compile a program, under the name of its source or another one, in a folder."""
    program = folder / (to or Path(source).stem)
    compiler = "/usr/bin/g++" if str(source).endswith(".cpp") else "/usr/bin/gcc"
    words = [compiler, "-O1", "-pthread", PROGRAMS_FOLDER / source, *flags, "-o", program]
    subprocess.run(words, check=True)
    return program


def run(
    *words: str | Path, preload: str | Path = "", settings: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; `settings` are HEAPFIT_OPTIONS."""
    preloaded = {"LD_PRELOAD": str(preload), "HEAPFIT_OPTIONS": settings}
    return subprocess.run(
        words,
        env={**os.environ, **preloaded, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
