"""Large programs, and runtimes that bring much of their own memory management with them.

They are marked `slow` for what they need installed; run them with `pytest -m slow`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program

pytestmark = pytest.mark.slow

PROGRAMS = [
    Program(
        name="clang",
        command=["sh", "{programs}/compile_clang.sh", "{workloads}", "{programs}"],
        loaded_in={"clang++-16", "clang-16", "ld"},
        packages=["clang-16", "libstdc++-12-dev"],
    ),
    Program(
        name="ruby",
        command=["ruby", "{programs}/objects.rb"],
        loaded_in={"ruby"},
        packages=["ruby"],
    ),
    Program(
        name="php",
        command=["php", "-n", "{programs}/page.php"],
        loaded_in={"php"},
        packages=["php-cli"],
        environment={"USE_ZEND_ALLOC": "0"},
    ),
    Program(
        name="java",
        command=["java", "{programs}/Work.java"],
        loaded_in={"java"},
        packages=["openjdk-17-jdk-headless"],
    ),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_behaves_the_same_under_the_library(
    program: Program, library: Path, tmp_path: Path
) -> None:
    check_same_with_and_without(program, library, tmp_path)
