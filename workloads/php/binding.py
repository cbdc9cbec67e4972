"""Makes PHP's extensions use the preloaded allocator: see plain_dlopen.c for why they would not."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("plain_dlopen.c")
FLAGS = ("-std=c17", "-O2", "-fPIC", "-shared")
PRELOAD = "LD_PRELOAD"
_DIGEST_LENGTH = 12


def preloading(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment `base` with the library behind what it preloads already."""
    plain = {name: value for name, value in base.items() if name != PRELOAD}
    libraries = [base.get(PRELOAD, ""), str(_built(folder, plain))]
    return {**plain, PRELOAD: " ".join(filter(None, libraries))}


def _built(folder: Path, environment: Mapping[str, str]) -> Path:
    """Return the compiled library, in `folder` under a name that changes with its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:_DIGEST_LENGTH]
    library = folder / f"plain-dlopen-{digest}.so"
    if library.exists():
        return library
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        sys.exit("there is no C compiler; install gcc")
    # The rename makes a half-written library impossible to load.
    with tempfile.TemporaryDirectory(dir=folder) as place:
        unfinished = Path(place) / library.name
        command = [*compiler.split(), *FLAGS, str(SOURCE), "-o", str(unfinished)]
        done = subprocess.run(command, env=dict(environment), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"cannot compile {SOURCE.name}: {done.stderr.strip()[-2000:]}")
        unfinished.rename(library)
    return library
