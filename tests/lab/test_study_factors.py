"""Factors beyond allocators and cores: what a trial's program gets of them, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import PYTHON, start_the_clock_late, study_of, system_allocator, workload
from heapfit.errors import HeapfitError, UsageError
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
from heapfit.study.stopping import RemainingTime
from heapfit.trial import OPTIONAL_METRIC_NAMES, unavailable_metrics
from heapfit.trial.placeholders import Levels, Placeholders

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


def test_the_baseline_opens_the_warm_ups_in_each_setting() -> None:
    for warmups in (0, 1):
        study = study_of(
            printing(), TWO, baseline="other", factors=[THREADS, SIZE], warmups=warmups
        )
        first = study.plan[:6]
        assert {each.allocator for each in first} == {"other"}
        assert all(each.warmup for each in first)
        assert {each.setting for each in first} == set(study.settings())


def test_the_order_of_a_study_without_further_factors_has_not_changed() -> None:
    """A folder begun by an earlier version goes on: its plan is that of the same seed."""
    three = [*TWO, system_allocator("third", THIRD="1")]
    study = study_of(workload("true"), three, replicates=2, seed=1)
    assert [each.allocator for each in study.plan] == [
        *("glibc", "other", "third"),
        *("third", "glibc", "other"),
        *("third", "other", "glibc"),
    ]


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


def test_the_default_of_a_parameter_may_follow_the_cores(tmp_path: Path) -> None:
    work = printing("{threads}", parameters={"threads": "{cores}"})
    study = study_of(work, TWO)
    levels = Levels.of(study, study.plan[0])
    values = Placeholders(work, tmp_path, 2, parameters=levels.parameters)
    assert values.expand("{threads} {cores} {awk}") == "2 2 {awk}"


def test_output_is_compared_with_the_baseline_of_the_same_setting(tmp_path: Path) -> None:
    study = study_of(printing("{threads} {cores}"), TWO, factors=[THREADS], replicates=2)
    finished(study, tmp_path)


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


def test_a_baseline_that_fails_at_one_level_stops_the_study_and_names_it(tmp_path: Path) -> None:
    work = workload("sh", "-c", "test {threads} != 4", parameters=PARAMETERS)
    with pytest.raises(HeapfitError, match=r"fails under the baseline glibc at threads = 4, so"):
        execute(study_of(work, TWO, factors=[THREADS]), tmp_path)


def test_a_trial_is_given_up_at_one_level_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = tmp_path / "begun"
    start_the_clock_late(begun, monkeypatch)
    script = f'echo $$ >> {begun}; test "${{OTHER}}{{threads}}" != 14 || exec sleep 60'
    work = workload("sh", "-c", script, parameters=PARAMETERS)
    execute(study_of(work, TWO, factors=[THREADS], warmups=0, timeout_s=1.0), tmp_path)
    given_up = [each for each in load(tmp_path)[1] if each.status is TrialStatus.TIMEOUT]
    assert [each.planned.level("threads") for each in given_up] == ["4"]


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


def test_a_level_of_the_environment_goes_before_all_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODE", "of the lab")
    allocator = system_allocator("glibc", MODE="of the allocator")
    seen = seen_by(tmp_path, {"env.MODE": "fast"}, allocator, MODE="of the workload")
    assert seen["MODE"] == "fast"


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
        ({"factors": [Factor(name="x", levels=["1"])]}, r"the parameters of test: threads, size"),
        ({"factors": [THREADS, THREADS]}, "'threads' is given twice"),
        ({"factors": [Factor(name="threads", levels=["1", "1"])]}, "level '1' twice"),
        ({"factors": [THREADS], "parameters": {"threads": "2"}}, "both varied and set to '2'"),
        ({"parameters": {"sise": "1"}}, "did you mean 'size'"),
        ({"factors": [Factor(name="option.decay", levels=["1"])]}, "did you mean 'decay_ms'"),
        ({"factors": [Factor(name="option.decay_ms", levels=["x"])]}, "not a whole number"),
        ({"factors": [Factor(name="option.decay_ms", levels=["1"])]}, "not among the allocators"),
        ({"factors": [Factor(name="env.", levels=["1"])]}, "not the name of an env"),
        ({"shown": ["wal_s"]}, "unknown metric 'wal_s'; did you mean 'wall_s'"),
    ],
)
def test_factors_that_make_no_sense_are_refused(fields: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        study_of(printing(), TWO, **fields)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("cores", "no parameter may be called 'cores'"), ("a b", "cannot name a parameter")],
)
def test_a_parameter_of_a_useless_name_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        study_of(printing(parameters={name: "1"}), TWO)


def test_a_study_of_other_levels_is_another_study(tmp_path: Path) -> None:
    execute(study_of(printing("{threads}"), TWO, factors=[THREADS]), tmp_path)
    fewer = Factor(name="threads", levels=["1", "2"])
    larger = study_of(printing("{threads}"), TWO, factors=[THREADS], parameters={"size": "1m"})
    with pytest.raises(UsageError, match="another study: factors differ"):
        execute(study_of(printing("{threads}"), TWO, factors=[fewer]), tmp_path)
    with pytest.raises(UsageError, match="another study: parameters differ"):
        execute(larger, tmp_path)


# ----------------------------------------------------------- resuming, time, figures


@pytest.mark.parametrize("cut", [1, 40])
def test_a_line_torn_amid_its_levels_is_measured_again(tmp_path: Path, cut: int) -> None:
    study = study_of(printing("{threads}"), TWO, factors=[THREADS], replicates=2)
    execute(study, tmp_path)
    journal = tmp_path / "trials.jsonl"
    last = journal.read_bytes().splitlines(keepends=True)[-1]
    torn = last.index(b'"levels"') + cut
    journal.write_bytes(journal.read_bytes()[: torn - len(last)])
    execute(study, tmp_path)
    assert [trial.planned for trial in load(tmp_path)[1]] == study.plan


def test_more_replicates_continue_a_study_with_factors(tmp_path: Path) -> None:
    for replicates in (1, 3):
        execute(
            study_of(printing("{threads}"), TWO, factors=[THREADS], replicates=replicates), tmp_path
        )
    study, trials = load(tmp_path)
    assert len(trials) == len(study.plan) == 6 + 3 * 6


def test_the_time_left_is_told_by_the_trials_of_the_same_level() -> None:
    study = study_of(printing(), TWO, factors=[THREADS])
    one, two = (
        next(each for each in study.plan if each.level("threads") == level) for level in ("1", "2")
    )
    remaining = RemainingTime()
    remaining.add(one, 1.0)
    remaining.add(two, 5.0)
    assert remaining.of([one]) == 1.0
    assert remaining.of([two, two]) == 10.0


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


def test_what_this_machine_cannot_give_is_left_out_with_a_note_or_refused() -> None:
    missing = unavailable_metrics()
    if not missing:
        pytest.skip("this machine can give every metric")
    name, reason = next(iter(missing.items()))
    study = study_of(printing(), TWO, shown=["wall_s", name])
    assert study.shown == ["wall_s"]
    assert f"{name} cannot be measured: {reason}" in study.machine.notes
    with pytest.raises(HeapfitError, match=f"{name} cannot be measured on this machine"):
        study_of(printing(), TWO, primary_metric=name)


def test_a_study_of_other_metrics_is_another_study(tmp_path: Path) -> None:
    execute(study_of(printing(), TWO), tmp_path)
    missing = unavailable_metrics(OPTIONAL_METRIC_NAMES)
    optional = next(name for name in OPTIONAL_METRIC_NAMES if name not in missing)
    more = study_of(printing(), TWO, shown=[optional])
    with pytest.raises(UsageError, match="another study: metrics differ"):
        execute(more, tmp_path)
