"""A build with tests does not pass over what is not installed, unless it is asked to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

SOURCES = Path(__file__).resolve().parents[2]
ADVICE = "configure with -D HEAPFIT_ALLOW_MISSING=ON"

# How CMake is kept from finding something, and what is then said.
MISSING = {
    "-DCMAKE_DISABLE_FIND_PACKAGE_zydis=ON": "No libheapfit-pools: it needs Zydis 4",
    "-DHEAPFIT_ZSTD_LIBRARY=": "No libheapfit-record, no libheapfit-trace: they need libzstd",
}


def configure(folder: Path, *options: str) -> str:
    """Return why CMake stopped, in one line; empty: it did not."""
    command = ["cmake", "-S", SOURCES, "-B", folder, "-G", "Ninja", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else " ".join(done.stderr.split())


@pytest.mark.parametrize(("option", "said"), MISSING.items(), ids=MISSING)
def test_what_is_missing_stops_a_build_with_tests(tmp_path: Path, option: str, said: str) -> None:
    why = configure(tmp_path, option)
    assert said in why
    assert ADVICE in why


def test_a_build_may_go_without_all_of_it(tmp_path: Path) -> None:
    assert configure(tmp_path / "asked", "-DHEAPFIT_ALLOW_MISSING=ON", *MISSING) == ""
    assert configure(tmp_path / "no-tests", "-DHEAPFIT_BUILD_TESTS=OFF", *MISSING) == ""
