"""The benchmark of programs on musl: its ratios are right, and it notices a wrong output."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import musl_programs
import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "musl.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    described = importlib.util.spec_from_file_location("musl_benchmark", BENCHMARK)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[described.name] = module  # its dataclasses ask for it
    described.loader.exec_module(module)
    return module


def test_a_ratio_is_heapfits_figure_over_that_of_the_run_beside_it(benchmark: ModuleType) -> None:
    def run(wall_s: float, peak_bytes: int) -> object:
        return benchmark.Run(wall_s, peak_bytes, b"")

    pairs = [
        benchmark.Pair(musl=run(2.0, 100), heapfit=run(1.0, 150)),
        benchmark.Pair(musl=run(4.0, 100), heapfit=run(1.0, 50)),
        benchmark.Pair(musl=run(8.0, 200), heapfit=run(8.0, 400)),
    ]
    found = benchmark.answer("any", pairs)
    assert (found.time.low, found.time.median, found.time.high) == (0.25, 0.5, 1.0)
    assert (found.peak.low, found.peak.median, found.peak.high) == (0.5, 1.5, 2.0)
    assert found.musl_s.median == 4.0


def test_it_writes_every_pair(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    words = ["--pairs", "2", "--small", "--only", "bc", "--cpus", "0", "--json", results]
    command = [sys.executable, str(BENCHMARK), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(results.read_text())["programs"]
    assert found["program"] == "bc"
    assert len(found["pairs"]) == 2
    assert all(figure > 0 for pair in found["pairs"] for sides in pair.values() for figure in sides)
    assert f"| bc | {found['musl_s']['median']:.2f} |" in done.stdout


def test_a_program_that_prints_something_else_with_heapfit_ends_it(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    script = tmp_path / "differs"
    script.write_text('#!/bin/sh\necho "preloaded: ${LD_PRELOAD:-nothing}"\n')
    script.chmod(0o755)
    program = musl_programs.Program("differs", script, ())
    bench = benchmark.Bench(tmp_path, tmp_path / "none.so", [0])
    with pytest.raises(SystemExit, match="does not print the same"):
        bench.pair(program, (), random.Random(1))
