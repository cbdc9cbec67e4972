"""The benchmark of false differences: it compares programs with themselves, and counts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import load_benchmark
from heapfit.records import Verdict

pytestmark = pytest.mark.full

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "aa.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """With one tiny program and the fewest blocks."""
    module = load_benchmark(BENCHMARK)
    monkeypatch.setattr(module, "PROGRAMS", {"true": ["true"]})
    monkeypatch.setattr(module, "REPLICATES", 3)
    monkeypatch.setattr(sys, "argv", ["aa.py", "--studies", "2", "--out", str(tmp_path)])
    return module


def test_a_program_is_compared_with_itself_in_studies_that_are_kept(
    benchmark: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    benchmark.main()
    first = capsys.readouterr().out
    assert "2 of 2 studies: verdicts: " in first
    assert "wall_s: " in first
    assert sorted(each.name for each in tmp_path.iterdir()) == ["true-1", "true-2"]
    kept = (tmp_path / "true-2" / "trials.jsonl").read_bytes()
    benchmark.main()
    assert capsys.readouterr().out == first
    assert (tmp_path / "true-2" / "trials.jsonl").read_bytes() == kept


@pytest.mark.parametrize(("p", "exit_code"), [(0.04, 1), (0.06, 0)])
def test_too_many_false_differences_are_told(
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    p: float,
    exit_code: int,
) -> None:
    verdict = Verdict.model_construct(metric="wall_s", p=p)
    monkeypatch.setattr(benchmark, "verdicts_of", lambda study, folder: [verdict])
    assert benchmark.main() == exit_code
    out = capsys.readouterr().out
    assert f"wall_s: {2 if exit_code else 0} of 2 false" in out
    assert f"studies with any: {2 if exit_code else 0} of 2 false" in out


def test_its_programs_run_and_print_the_same_each_time(tmp_path: Path) -> None:
    """Under two names each, once: `execute` ends the study of a program that fails."""
    module = load_benchmark(BENCHMARK)
    assert len(module.PROGRAMS) == 5
    module.REPLICATES = 1
    for name, command in module.PROGRAMS.items():
        study = module.study_of(module.catalogue.ad_hoc_workload(command), "glibc", seed=1)
        module.verdicts_of(study, tmp_path / name)
