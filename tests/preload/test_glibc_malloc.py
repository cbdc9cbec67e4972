"""glibc's own tests of malloc run with heapfit preloaded.

Only in the full suite: the source is fetched once and compiled (glibc_tests.py).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from glibc_tests import Unavailable, compile_all, fetch

# Against those that hang; most of them end themselves after 20 s. The longest forks 17,000 times.
TIMEOUT_S = 600
# They end themselves after 20 to 100 s, unless this says how much slower the machine may be.
SLOWER = {"TIMEOUTFACTOR": "5"}

pytestmark = pytest.mark.full

PASSING = """
mallocbug tst-malloc tst-malloc-fork-deadlock tst-mallocfork2 tst-valloc tst-calloc tst-obstack
tst-malloc-check tst-mallocfork tst-trim1 tst-realloc tst-reallocarray tst-posix_memalign
tst-pvalloc tst-pvalloc-fortify tst-memalign tst-malloc-thread-exit tst-malloc-thread-fail
tst-free-errno tst-malloc-tcache-leak tst-malloc_info tst-mallinfo2 tst-malloc-too-large tst-tcfree1
tst-tcfree2 tst-tcfree3 tst-mxfast tst-mallopt
"""
TESTS = PASSING.split()

# Why the others of malloc/Makefile in glibc 2.36 are not here.
LEFT_OUT = {
    "sets MALLOC_CHECK_, which heapfit does not have": "tst-malloc-usable",
    "sets GLIBC_TUNABLES, which heapfit does not have": "tst-malloc-usable-tunables",
    "writes over glibc's own data before a block and expects an abort": "tst-malloc-backtrace",
    "writes into freed memory as glibc links it": "tst-safe-linking",
    "looks for words of glibc's text, 'max mmap bytes'": "tst-malloc-stats-cancellation",
    "does not end in a minute under glibc either": "tst-mallocfork3",
    "needs files that glibc's build prepares": "tst-mtrace",
    "is an allocator itself": (
        "tst-interpose-nothread tst-interpose-thread tst-interpose-static-nothread "
        "tst-interpose-static-thread"
    ),
    "saves and restores glibc's heap": "tst-mallocstate",
    "uses hooks that glibc itself has given up": "tst-compathooks-off tst-compathooks-on",
    "is about glibc's internals, not malloc": (
        "tst-alloc_buffer tst-scratch_buffer tst-dynarray tst-dynarray-fail tst-dynarray-at-fail"
    ),
    "needs glibc's internal headers": "tst-mallocalign1",
}


@pytest.fixture(scope="session")
def programs() -> Path:
    folder = Path(__file__).parents[2] / "build/glibc-tests"
    try:
        compile_all(fetch(folder), folder, TESTS)
    except Unavailable as error:
        pytest.skip(f"glibc's source cannot be had: {error}")
    return folder


@pytest.mark.parametrize("name", TESTS)
def test_passes(name: str, programs: Path, library: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [programs / name],
        env={"LD_PRELOAD": str(library), "PATH": "/usr/bin:/bin", **SLOWER},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_tests_of_the_source_are_here_or_left_out_for_a_reason(programs: Path) -> None:
    sources = programs.glob("glibc-*/malloc/tst-*.c")
    parts = {"tst-interpose-aux", "tst-interpose-aux-nothread", "tst-interpose-aux-thread"}
    left_out = set(" ".join(LEFT_OUT.values()).split())
    assert {file.stem for file in sources} <= {*TESTS, *left_out, *parts, "tst-interpose-skeleton"}
    assert not set(TESTS) & left_out
