"""No instruction comes into malloc or free unseen: docs/architecture.md has them all, with what
each is for. What another compiler, or another processor's, makes of the source is not told there.
"""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest
from heapfit import paths

ARCHITECTURE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
COMPILER = "GCC: (Debian 12."
LONGEST = 256  # bytes


def listed(function: str) -> list[str]:
    """The instructions, but for registers and places, of the listing that ends the fast path of
    `function` in the documentation."""
    listings = re.findall(
        r"^```text\n(mov    thread_heap@.*?)^```", ARCHITECTURE.read_text(), re.M | re.S
    )
    [found] = [each for each in listings if f"heap_{function}_slow" in each]
    return [line.split()[0] for line in found.splitlines()]


def built(library: Path, function: str) -> list[str]:
    """The same of the library, up to its first `ret`."""
    symbols = output("nm", "--dynamic", "--defined-only", library)
    [start] = [
        int(each.split()[0], 16) for each in symbols.splitlines() if each.endswith(f" {function}")
    ]
    bounds = f"--start-address={start}", f"--stop-address={start + LONGEST}"
    code = output("objdump", "-d", "--no-show-raw-insn", *bounds, library)
    names = re.findall(r"^ +[0-9a-f]+:\t(\w+)", code, re.M)
    return names[: names.index("ret") + 1]


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.gate
@pytest.mark.parametrize("function", ["malloc", "free"])
def test_the_fast_paths_are_what_the_documentation_lists(function: str) -> None:
    library = paths.library()
    if platform.machine() != "x86_64" or COMPILER.encode() not in library.read_bytes():
        pytest.skip(f"the listings are of {COMPILER}..), for x86-64")
    assert built(library, function) == listed(function)
