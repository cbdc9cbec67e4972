"""The benchmark of contexts: its programs do the same work in every mode, its ratios are right."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import shared_home
from conftest import load_benchmark
from heapfit import paths

pytestmark = pytest.mark.full

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "contexts.py"
PROGRAMS = ["context-pairs", "context-request", "context-end"]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    return load_benchmark(BENCHMARK)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_work_in_every_mode(
    benchmark: ModuleType, tmp_path: Path, name: str
) -> None:
    program = benchmark.compiled(name, tmp_path)
    outputs = {
        benchmark.run([str(program), "--scale", "1", "--mode", mode], paths.library()).stdout
        for mode in "0123"
    }
    assert len(outputs) == 1
    assert "check ok" in outputs.pop()


def test_a_context_needs_heapfit(benchmark: ModuleType, tmp_path: Path) -> None:
    program = benchmark.compiled("context-pairs", tmp_path)
    done = subprocess.run([program, "--mode", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs heapfit preloaded" in done.stderr


def answers_of(*words: str | Path | None) -> list[dict[str, Any]]:
    """What the benchmark finds with the library that has been built as its subject."""
    command = [sys.executable, BENCHMARK, "--heapfit", paths.library(), "--json", *words]
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.mark.full
def test_it_compares_pairs_of_real_runs() -> None:
    peer = shared_home.allocator("jemalloc").library
    answers = answers_of("--pairs", "6", "--scale", "2", "--peer", peer)
    assert len(answers) == 6
    for answer in answers:
        assert len(answer["ratios"]) == 6
        assert min(answer["ratios"]) <= answer["interval"]["median"] <= max(answer["ratios"])
    assert "free_all" in answers[-1]["question"]


@pytest.mark.full
def test_the_peer_is_the_library_that_is_named() -> None:
    """Against itself a context costs, in instructions, what it costs against its own heap."""

    def ratio(question: str, peer: Path | None) -> float:
        counted = ("--instructions", "--pairs", "1")
        [answer] = answers_of(*counted, "--peer", peer, "--only", f"request: context / {question}")
        return float(answer["ratios"][0])

    own = ratio("heapfit", paths.library())
    assert ratio("peer", paths.library()) == pytest.approx(own, rel=0.05)
    jemalloc = shared_home.allocator("jemalloc").library
    assert ratio("peer", jemalloc) != pytest.approx(own, rel=0.1)


def test_what_the_loop_itself_takes_is_subtracted(benchmark: ModuleType) -> None:
    ours, theirs, nothing = (benchmark.Side(Path("l"), (name,)) for name in "abc")
    question = benchmark.Question("q", "p", ours, theirs, 0.9, nothing)
    costs = {ours: 5.0, theirs: 7.0, nothing: 3.0}
    answer = benchmark.ask(question, 6, costs.__getitem__, random.Random(1))
    assert answer.ratios == [0.5] * 6
    assert answer.verdict == 0


@pytest.mark.parametrize(
    ("ratios", "verdict"), [([0.8] * 6, 0), ([1.0] * 6, 1), ([0.8, 1.0] * 3, 3)]
)
def test_the_verdict_is_the_intervals(
    benchmark: ModuleType, ratios: list[float], verdict: int
) -> None:
    interval = benchmark.median_interval(ratios)
    assert benchmark.Answer("q", 0.9, ratios, interval).verdict == verdict
