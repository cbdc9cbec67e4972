"""The environment is of one size under every allocator: it decides how the stack is aligned."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Heapfit
from study_files import trials_in

pytestmark = pytest.mark.usefixtures("library")

# Bytes on the stack: each variable's text, its end and the pointer to it.
SIZE = "import os; print(sum(len(k) + len(v) + 10 for k, v in os.environb.items()))"


def test_every_allocators_program_has_an_environment_of_one_size(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    words = ["compare", "--allocators", "glibc,heapfit", "--replicates", "1", "--cores", "1"]
    words += ["--out", str(tmp_path), "--", "/usr/bin/python3", "-c", SIZE]
    result = run_heapfit(*words)
    assert result.returncode == 0, result.stderr
    # What a program prints must be the same under every allocator.
    assert [trial["status"] for trial in trials_in(tmp_path)] == ["ok"] * 4
