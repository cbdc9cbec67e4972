"""A preloaded library names what a program does wrong in one line, and ends it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "programs/misuse.cpp"
TIMEOUT_S = 60

ADDRESS = "0x[0-9a-f]+"
TWICE = f"double free of {ADDRESS}"
NOT_ALLOCATED = rf"{{}} of {ADDRESS}, which is not allocated \(freed before\?\)"
INSIDE = (
    f"{{}} of an interior pointer: {ADDRESS} points {{}} bytes into the {{}} at {ADDRESS} "
    "of [0-9]+ bytes"
)
FOREIGN = f"free of a foreign pointer: {ADDRESS} was not allocated by heapfit"
WRONG_SIZE = f"free of {ADDRESS} with size {{}}, but only [0-9]+ bytes were allocated"

LINES = {
    "small_twice": TWICE,
    "large_twice": NOT_ALLOCATED.format("free"),
    "realloc_freed": NOT_ALLOCATED.format("realloc"),
    "inside_small": INSIDE.format("free", 16, "block"),
    "on_the_stack": FOREIGN,
    "sized_delete": WRONG_SIZE.format(5000),
    "write_after_free": (
        f"(corrupted free list: the free block at {ADDRESS} was written to after it was freed"
        # The hardened library, which looks at all of it.
        f"|use after free: the free block at {ADDRESS} of 112 bytes was written to at {ADDRESS})"
    ),
}


@pytest.fixture(scope="session")
def misuse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("misuse") / "misuse"
    flags = ["-std=c++17", "-O1", "-w", "-fno-builtin", "-pthread"]
    subprocess.run(["/usr/bin/g++", *flags, SOURCE, "-o", program], check=True)
    return program


def check_that_it_is_named(way: str, misuse: Path, library: Path, settings: str = "") -> None:
    result = subprocess.run(
        [misuse, way],
        cwd=misuse.parent,
        env={**os.environ, "LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": settings},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert re.fullmatch(f"heapfit: {LINES[way]}\n", result.stderr), result.stderr
    assert result.returncode == -signal.SIGABRT


@pytest.mark.parametrize("way", LINES)
def test_a_mistake_is_named_in_one_line(way: str, misuse: Path, library: Path) -> None:
    check_that_it_is_named(way, misuse, library)


@pytest.mark.parametrize("way", ["small_twice", "inside_small"])
def test_a_mistake_with_an_object_of_a_pool_is_named(
    way: str, misuse: Path, pools_library: Path
) -> None:
    check_that_it_is_named(way, misuse, pools_library, "pools:all,pool_min_objects:1")
