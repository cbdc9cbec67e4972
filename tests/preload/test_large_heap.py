"""A heap of more than 8 GiB works as a small one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import PROGRAMS_FOLDER, Program

pytestmark = pytest.mark.full

GIB = 1 << 30
LIVE_GIB = 12


def available() -> int:
    """Bytes of memory that the machine has left."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


@pytest.mark.full
def test_objects_of_more_than_8_gib_live_at_once(library: Path, tmp_path: Path) -> None:
    if available() < LIVE_GIB * GIB:
        pytest.skip(f"too little memory is free for a heap of {LIVE_GIB} GiB")
    program = tmp_path / "large_heap"
    source = PROGRAMS_FOLDER / "large_heap.c"
    subprocess.run(["/usr/bin/gcc", "-O1", "-pthread", source, "-o", program], check=True)
    large = Program(
        "large_heap",
        [str(program), str(LIVE_GIB)],
        {"large_heap"},
        ["gcc", "libc6-dev"],
        # Objects of which hardly anything is touched: huge pages would make all of it resident.
        environment={"HEAPFIT_OPTIONS": "huge_pages:never"},
    )
    check_same_with_and_without(large, library, tmp_path)
