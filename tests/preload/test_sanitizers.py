"""Programs built with a sanitizer see the sanitizer's malloc, or say in one line that they cannot.

A sanitizer's run-time library that is part of the program (clang's, unless told otherwise) is found
before what is preloaded. One that is a shared library (gcc's, unless told otherwise) stands behind
it, cannot work there, and is to be named first.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

SOURCE = Path(__file__).parent / "programs/sanitized.c"
TIMEOUT_S = 120
GCC, CLANG = "/usr/bin/gcc", "/usr/bin/clang-16"


@dataclass(frozen=True)
class Sanitized:
    """A program, and the shared run-time library that it needs, if it has none inside."""

    program: Path
    runtime: Path | None

    def run(self, *words: str, preload: str = "") -> subprocess.CompletedProcess[str]:
        variables = {"LD_PRELOAD": preload} if preload else {}
        # Reports need no names of functions, which take long to find.
        quiet = {"ASAN_OPTIONS": "symbolize=0", "TSAN_OPTIONS": "symbolize=0"}
        return subprocess.run(
            [self.program, *words],
            env={**os.environ, **quiet, **variables},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )


def build(folder: Path, compiler: str, sanitizer: str, inside: str) -> Sanitized:
    program = folder / "sanitized"
    short = {"address": "asan", "thread": "tsan"}[sanitizer]
    flags = ["-g", "-O1", "-pthread", f"-fsanitize={sanitizer}"]
    runtime = None
    if compiler == GCC and inside:
        flags.append(f"-static-lib{short}")
    elif compiler == GCC:
        named = [compiler, f"-print-file-name=lib{short}.so"]
        found = subprocess.run(named, check=True, capture_output=True, text=True).stdout
        runtime = Path(found.strip()).resolve()
    subprocess.run([compiler, *flags, SOURCE, "-o", program], check=True)
    return Sanitized(program, runtime)


def check_that_it_sees(sanitized: Sanitized, preload: str) -> None:
    plain = sanitized.run(preload=preload)
    assert (plain.returncode, plain.stdout, plain.stderr) == (0, "worked\n", "")
    mistaken = sanitized.run("read_after_free", preload=preload)
    assert mistaken.returncode != 0
    assert "heap-use-after-free" in mistaken.stderr


@pytest.mark.parametrize(("compiler", "sanitizer"), [(GCC, "thread"), (CLANG, "address")])
def test_a_runtime_inside_the_program_works(
    compiler: str, sanitizer: str, library: Path, tmp_path: Path
) -> None:
    sanitized = build(tmp_path, compiler, sanitizer, inside="yes")
    check_that_it_sees(sanitized, str(library))


@pytest.mark.parametrize(
    ("sanitizer", "line"),
    [
        ("address", "ASan runtime does not come first in initial library list"),
        ("thread", "heapfit: the program has ThreadSanitizer, whose library must come first"),
    ],
)
def test_a_shared_runtime_must_come_first(
    sanitizer: str, line: str, library: Path, tmp_path: Path
) -> None:
    sanitized = build(tmp_path, GCC, sanitizer, inside="")
    behind = sanitized.run(preload=str(library))
    assert (behind.returncode, behind.stdout) == (1, "")
    assert line in behind.stderr
    assert behind.stderr.count("\n") == 1
    check_that_it_sees(sanitized, f"{sanitized.runtime}:{library}")
