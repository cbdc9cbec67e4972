"""libheapfit-hardened.so: real programs run as without it, and attacks do not go through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program
from test_programs import PROGRAMS

pytestmark = pytest.mark.full

ATTACKS = Path(__file__).parents[2] / "benchmarks/attacks.py"
SOME = {"sqlite3", "perl", "git"}


@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.name in SOME], ids=lambda program: program.name
)
def test_programs_behave_the_same(program: Program, hardened_library: Path, tmp_path: Path) -> None:
    check_same_with_and_without(program, hardened_library, tmp_path)


def test_nineteen_of_twenty_attacks_are_stopped() -> None:
    words = ["--allocators", "heapfit-hardened", "--runs", "2", "--least", "95", "--misses"]
    done = subprocess.run(
        [sys.executable, ATTACKS, *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
