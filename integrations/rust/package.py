#!/usr/bin/env python3
"""Pack the crate heapfit-sys with a copy of the C sources, and build what was packed.

In the checkout the crate compiles the C sources where they are; a packed crate has them in vendor/.
The copy is there only while this program runs, so that it never gets old. Cargo tells where the
packed crate lies; arguments are passed on to it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENDOR = HERE / "heapfit-sys" / "vendor"
SOURCES = ("allocator", "include")


@contextmanager
def vendored() -> Iterator[None]:
    """Copy the C sources into the crate for as long as the block runs."""
    shutil.rmtree(VENDOR, ignore_errors=True)
    try:
        for folder in SOURCES:
            shutil.copytree(ROOT / folder, VENDOR / folder)
        yield
    finally:
        shutil.rmtree(VENDOR, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Run `cargo package` beside the copy."""
    environment = dict(os.environ)
    environment.setdefault("CARGO_TARGET_DIR", str(ROOT / "build" / "rust"))
    # --allow-dirty: the copy is not, and shall not be, in the repository.
    command = ["cargo", "package", "--package", "heapfit-sys", "--allow-dirty", *arguments]
    with vendored():
        return subprocess.run(command, cwd=HERE, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
