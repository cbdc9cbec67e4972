"""Factors beyond allocators and cores: what a trial's program gets of them, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import PYTHON, study_of, system_allocator, workload
from heapfit.errors import UsageError
from heapfit.records import (
    Factor,
    InstalledAllocator,
    Study,
    TrialStatus,
    Workload,
    WorkloadCheck,
    WorkloadMetric,
)
from heapfit.statistics import read, summarise
from heapfit.study import execute, load

pytestmark = pytest.mark.full

TWO = [system_allocator("glibc"), system_allocator("other", OTHER="1")]
THREADS = Factor(name="threads", levels=["1", "2", "4"])
SIZE = Factor(name="size", levels=["256k", "1m"])
PARAMETERS = {"threads": "1", "size": "64k"}


def printing(*words: str, **fields: Any) -> Workload:
    """A program that prints its arguments."""
    return workload("echo", *words, **{"parameters": PARAMETERS, **fields})


def cells_of(study: Study) -> Counter[tuple[object, ...]]:
    return Counter(
        (each.allocator, *each.setting) for each in study.plan if each.block == study.warmups
    )


# ---------------------------------------------------------------------------- plan


def test_a_block_holds_every_combination_of_all_levels_once() -> None:
    study = study_of(printing(), TWO, factors=[THREADS, SIZE], replicates=3)
    assert [factor.name for factor in study.design()] == ["allocator", "cores", "threads", "size"]
    assert len(study.settings()) == 6
    assert cells_of(study) == Counter(
        (each.name, cores, levels) for each in TWO for cores, levels in study.settings()
    )
    assert len(study.plan) == 4 * 12


# -------------------------------------------------------------------- the program


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


def test_an_allocator_that_fails_at_one_level_is_told_with_it(tmp_path: Path) -> None:
    script = 'if test "${OTHER}{threads}" = 12; then echo wrong; else echo right; fi'
    work = workload("sh", "-c", script, parameters=PARAMETERS, check=WorkloadCheck())
    execute(study_of(work, TWO, factors=[THREADS], replicates=2), tmp_path)
    study, trials = load(tmp_path)
    problems = summarise(read(study, trials)).problems
    assert {(each.planned.allocator, each.planned.level("threads")) for each in problems} == {
        ("other", "2")
    }
    assert {each.status for each in problems} == {TrialStatus.MISMATCH}
    assert len(trials) == len(study.plan)


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


def test_options_reach_heapfit_beside_those_that_are_set_already(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAPFIT_OPTIONS", "decay_ms:5,remote_free_batch:8")
    mine = InstalledAllocator(name="mine", title="mine", version="1", library=library)
    seen = seen_by(tmp_path, {"option.decay_ms": "100"}, mine)
    assert seen["HEAPFIT_OPTIONS"] == "remote_free_batch:8,decay_ms:100"


def test_options_are_not_for_other_allocators(tmp_path: Path, library: Path) -> None:
    mine = InstalledAllocator(name="mine", title="mine", version="1", library=library)
    decay = Factor(name="option.decay_ms", levels=["1", "100"])
    work = workload("sh", "-c", 'echo "$HEAPFIT_OPTIONS" >> ' + str(tmp_path / "seen"))
    finished(study_of(work, [system_allocator(), mine], factors=[decay], warmups=0), tmp_path / "o")
    # The two reference trials and one trial at each level are glibc's.
    assert sorted((tmp_path / "seen").read_text().splitlines()) == [
        *[""] * 4,
        "decay_ms:1",
        "decay_ms:100",
    ]


# ------------------------------------------------------------------ what is refused


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


def test_a_study_of_other_levels_is_another_study(tmp_path: Path) -> None:
    execute(study_of(printing("{threads}"), TWO, factors=[THREADS]), tmp_path)
    fewer = Factor(name="threads", levels=["1", "2"])
    larger = study_of(printing("{threads}"), TWO, factors=[THREADS], parameters={"size": "1m"})
    with pytest.raises(UsageError, match="another study: factors differ"):
        execute(study_of(printing("{threads}"), TWO, factors=[fewer]), tmp_path)
    with pytest.raises(UsageError, match="another study: parameters differ"):
        execute(larger, tmp_path)


# ----------------------------------------------------------- resuming, time, figures


def test_every_cell_has_an_estimate_and_ratios_are_within_a_setting(tmp_path: Path) -> None:
    # What glibc prints grows with the threads; the other allocator always prints three times that.
    script = "echo figure=$(({threads} * (1 + 2 * ${OTHER:-0})))"
    figure = WorkloadMetric(
        name="figure", label="f", unit="count", pattern="^figure=([0-9]+)$", better="lower"
    )
    work = workload(
        *("sh", "-c", script),
        parameters=PARAMETERS,
        metrics=[figure],
        check=WorkloadCheck(stdout="ignore"),
    )
    study = finished(study_of(work, TWO, factors=[THREADS], replicates=2), tmp_path)
    estimates = [
        each for each in summarise(read(*load(tmp_path))).estimates if each.metric == "figure"
    ]
    found = {(each.allocator, each.levels["threads"]): each for each in estimates}
    assert len(found) == len(estimates) == len(study.settings()) * len(TWO)
    assert [found["glibc", level].median for level in THREADS.levels] == [1.0, 2.0, 4.0]
    verdicts = [each for each in summarise(read(*load(tmp_path))).verdicts if each.at]
    assert [
        (each.at["threads"], each.second, each.estimate)
        for each in verdicts
        if each.metric == "figure"
    ] == [(level, "glibc", pytest.approx(3.0)) for level in THREADS.levels]


# ------------------------------------------------------------------ optional metrics


def test_an_optional_metric_is_measured_where_a_study_shows_it(tmp_path: Path) -> None:
    optional = "mmap_calls"  # can be counted wherever strace is
    study = study_of(printing(), TWO, shown=[optional])
    assert optional in [metric.name for metric in study.metrics]
    assert optional not in [metric.name for metric in study_of(printing(), TWO).metrics]
    finished(study, tmp_path)
    counting = [trial for trial in load(tmp_path)[1] if not trial.planned.warmup]
    assert all(trial.metrics[optional] > 0 for trial in counting)
