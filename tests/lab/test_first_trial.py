"""The benchmark of what a comparison takes before it measures anything."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from conftest import load_benchmark

pytestmark = pytest.mark.full

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "first_trial.py"


def test_the_time_to_the_first_trial_is_within_that_of_the_command(tmp_path: Path) -> None:
    module = load_benchmark(BENCHMARK)
    start = time.time()
    seconds = module.to_first_trial(tmp_path)
    assert 0 < seconds < time.time() - start
    assert (tmp_path / "out" / "trials.jsonl").read_text().count("\n") == 3  # two count
