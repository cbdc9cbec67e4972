"""The benchmark of what measuring costs runs, and its verdict follows from what it measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import load_benchmark

pytestmark = pytest.mark.full

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "trial_overhead.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load_benchmark(BENCHMARK)


@pytest.mark.full
def test_it_compares_pairs_of_real_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--pairs", "7", "--seconds", "0.05", "--json"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    result = json.loads(done.stdout)
    assert len(result["runs"]) == 7
    ratios = sorted(run["trial"]["wall"] / run["bare"]["wall"] for run in result["runs"])
    assert result["wall"]["median"] == pytest.approx(ratios[3] - 1)
    assert result["wall"]["low"] <= result["wall"]["median"] <= result["wall"]["high"]
    assert result["bare_s"]["median"] > 0.02
    expected = 0 if result["wall"]["high"] < 0.005 else 1 if result["wall"]["low"] > 0.005 else 3
    assert done.returncode == expected


def test_a_slower_program_shows(benchmark: ModuleType) -> None:
    """Half of the runs take a tenth longer, then all do."""
    assert benchmark.overhead([1.0] * 20).high == 0
    assert benchmark.overhead([1.1] * 20).low == pytest.approx(0.1)
    mixed = benchmark.overhead([1.0, 1.1] * 10)
    assert mixed.low == 0 < mixed.median < mixed.high == pytest.approx(0.1)


def test_the_program_that_is_timed_must_not_fail(benchmark: ModuleType, tmp_path: Path) -> None:
    bare = benchmark.compiled(BENCHMARK.parent / "bare_run.c", tmp_path)
    core = str(min(os.sched_getaffinity(0)))
    good = subprocess.run([bare, core, "true"], capture_output=True, text=True)
    bad = subprocess.run([bare, core, "false"], capture_output=True, text=True)
    missing = subprocess.run([bare, core, "no-such-program"], capture_output=True, text=True)
    assert good.returncode == 0
    assert int(good.stdout.split()[0]) > 0
    assert bad.returncode == missing.returncode == 1
    assert "could not be run" in bad.stderr
