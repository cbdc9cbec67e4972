"""What a study says about the machine that it ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from heapfit.machine import describe


def test_the_machine_is_described_as_the_kernel_knows_it() -> None:
    machine = describe()
    total_kib = int(Path("/proc/meminfo").read_text().split()[1])
    assert machine.memory_bytes == total_kib * 1024
    assert machine.cores == len(os.sched_getaffinity(0))
    assert machine.kernel == platform.release()
    assert machine.libc.startswith("glibc 2.")
    assert machine.cpu
    assert machine.huge_pages in (None, "always", "madvise", "never")


def test_variables_that_steer_an_allocator_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    notes = describe().notes
    assert "MALLOC_ARENA_MAX=1 is set in the environment of every trial" in notes
