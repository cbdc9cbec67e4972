"""Factors beyond allocators and cores: what a trial's program gets of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import PYTHON, study_of, system_allocator, workload
from heapfit.errors import UsageError
from heapfit.records import Factor, InstalledAllocator, Study, TrialStatus, Workload, WorkloadMetric
from heapfit.study import execute, load

pytestmark = pytest.mark.full

TWO = [system_allocator("glibc"), system_allocator("other", OTHER="1")]
THREADS = Factor(name="threads", levels=["1", "2", "4"])
PARAMETERS = {"threads": "1", "size": "64k"}


def printing(*words: str, **fields: Any) -> Workload:
    return workload("echo", *words, **{"parameters": PARAMETERS, **fields})


def finished(study: Study, folder: Path) -> Study:
    execute(study, folder)
    _, trials = load(folder)
    assert [trial.status for trial in trials] == [TrialStatus.OK] * len(study.plan)
    return study


def test_a_level_takes_the_place_of_its_placeholder(tmp_path: Path) -> None:
    rate = WorkloadMetric(
        name="threads", label="t", unit="count", pattern="^t=([0-9]+) s=256k", better="lower"
    )
    work = printing("t={threads} s={size} {other}", metrics=[rate])
    study = study_of(work, TWO, factors=[THREADS], parameters={"size": "256k"})
    finished(study, tmp_path)
    for trial in load(tmp_path)[1]:
        assert trial.metrics["threads"] == float(trial.planned.level("threads"))


def seen_by(
    tmp_path: Path, levels: dict[str, str], allocator: InstalledAllocator, **environment: str
) -> dict[str, str]:
    """The environment of a program that ran under `allocator` at these levels."""
    show = (
        f"import os, json; print(json.dumps(dict(os.environ)), file=open('{tmp_path}/seen', 'w'))"
    )
    work = workload(*PYTHON, show, environment=environment)
    factors = [Factor(name=name, levels=[level]) for name, level in levels.items()]
    finished(study_of(work, [allocator], factors=factors), tmp_path / "out")
    seen: dict[str, str] = json.loads((tmp_path / "seen").read_text())
    return seen


def test_an_empty_level_leaves_a_variable_unset_whoever_sets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODE", "of the lab")
    assert "MODE" not in seen_by(tmp_path / "1", {"env.MODE": ""}, system_allocator())
    seen = seen_by(tmp_path / "2", {"env.MODE": ""}, system_allocator(), MODE="of the workload")
    assert "MODE" not in seen


def test_options_are_not_for_other_allocators(tmp_path: Path, library: Path) -> None:
    mine = InstalledAllocator(name="mine", title="mine", version="1", library=library)
    decay = Factor(name="option.decay_ms", levels=["1", "100"])
    work = workload("sh", "-c", 'echo "$HEAPFIT_OPTIONS" >> ' + str(tmp_path / "seen"))
    finished(study_of(work, [system_allocator(), mine], factors=[decay], warmups=0), tmp_path / "o")
    # The two reference trials and one trial at each level are glibc's.
    seen = (tmp_path / "seen").read_text().splitlines()
    assert seen.count("") == 4
    assert set(seen) == {"", "decay_ms:1", "decay_ms:100"}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"factors": [Factor(name="thread", levels=["1"])]}, "did you mean 'threads'"),
        ({"factors": [THREADS, THREADS]}, "'threads' is given twice"),
        ({"factors": [THREADS], "parameters": {"threads": "2"}}, "both varied and set to '2'"),
        ({"factors": [Factor(name="option.decay", levels=["1"])]}, "did you mean 'decay_ms'"),
        ({"factors": [Factor(name="option.decay_ms", levels=["x"])]}, "not a whole number"),
        ({"factors": [Factor(name="option.decay_ms", levels=["1"])]}, "not among the allocators"),
    ],
)
def test_factors_that_make_no_sense_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        study_of(printing(), TWO, **fields)
