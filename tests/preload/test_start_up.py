"""What a program pays for its first malloc, in system calls: no more than was stored."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
STORED = json.loads((ROOT / "docs/results/start-up.json").read_text())
# A kernel or C library that is another may want one or two more.
TOLERATED = 2


def test_one_malloc_makes_no_more_system_calls_than_are_stored(tmp_path: Path) -> None:
    counts = runpy.run_path(str(ROOT / "benchmarks/start_up.py"))["count_all"](tmp_path)
    stored = {name: count - STORED["glibc"] for name, count in STORED.items()}
    more = {name: count - counts["glibc"] for name, count in counts.items()}
    assert more.keys() == stored.keys()
    assert all(more[name] <= stored[name] + TOLERATED for name in stored), (more, stored)
