"""A workload's metric that a command of the user's prints when the program has ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import (
    read_pids,
    run_once,
    study_of,
    system_allocator,
    wait_until_gone,
    workload,
)
from heapfit.records import CommandMetric, Trial, TrialStatus, WorkloadMetric
from heapfit.trial import run_trial
from heapfit.trial.launcher import Ended, Running
from heapfit.trial.verdict import as_metric


def metric(*command: str, name: str = "size") -> CommandMetric:
    return CommandMetric(
        name=name, label="Size", unit="bytes", better="lower", command=list(command)
    )


def run_with(tmp_path: Path, program: list[str], *declared: CommandMetric, **fields: Any) -> Trial:
    """Run a trial of a study that has the command metrics among its metrics."""
    allocator = fields.pop("allocator", system_allocator())
    work = workload(*program, command_metrics=list(declared), here=tmp_path, **fields)
    study = study_of(work, [allocator])
    names = {each.name for each in declared}
    others = [each for each in study.metrics if each.name not in names]
    metrics = [*others, *map(as_metric, declared)]
    study = study.model_copy(update={"metrics": metrics})
    return run_trial(study, study.plan[0], tmp_path / "w", None)


def test_the_last_line_of_the_command_is_the_figure(tmp_path: Path) -> None:
    command = metric("sh", "-c", "echo looking; echo; echo ' 2.5e3 '; echo")
    trial = run_with(tmp_path, ["true"], command)
    assert trial.status is TrialStatus.OK, trial.reason
    assert trial.metrics["size"] == 2500


def test_the_command_sees_what_the_program_wrote_and_printed(tmp_path: Path) -> None:
    program = ["sh", "-c", "printf 12345 > {scratch}/file; echo seven77"]
    written = metric("sh", "-c", "wc -c < {scratch}/file", name="written")
    printed = metric("sh", "-c", "wc -c < {stdout}", name="printed")
    trial = run_with(tmp_path, program, written, printed)
    assert trial.status is TrialStatus.OK, trial.reason
    assert (trial.metrics["written"], trial.metrics["printed"]) == (5, 8)


def test_it_is_said_where_the_figure_comes_from() -> None:
    assert as_metric(metric("true")).source == "printed by true after the trial"


def test_a_command_that_fails_fails_the_trial_with_its_last_words(tmp_path: Path) -> None:
    trial = run_with(tmp_path, ["true"], metric("sh", "-c", "echo 1; echo no disk >&2; exit 3"))
    assert trial.status is TrialStatus.FAILED
    assert trial.reason == "the command of metric size failed: exit code 3 (it says: no disk)"
    assert trial.metrics == {}


def test_a_command_that_is_not_there_fails_the_trial(tmp_path: Path) -> None:
    trial = run_with(tmp_path, ["true"], metric("no-such-command"))
    assert trial.status is TrialStatus.FAILED
    assert "cannot run 'no-such-command'" in trial.reason


@pytest.mark.parametrize("printed", ["", "12 apples", "nan", "inf", "1\\nnone"])
def test_what_is_no_number_is_a_mismatch(tmp_path: Path, printed: str) -> None:
    trial = run_with(tmp_path, ["true"], metric("printf", printed))
    assert trial.status is TrialStatus.MISMATCH
    assert "metric size" in trial.reason
    assert trial.metrics == {}


def test_a_command_that_hangs_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heapfit.trial.run.COMMAND_TIMEOUT_S", 0.5)
    pids = tmp_path / "pids"
    wait = Running.wait

    def wait_once_it_hangs(running: Running, timeout_s: float) -> Ended | None:
        if running.command[0] == "sh":
            read_pids(pids, 1)
        return wait(running, timeout_s)

    monkeypatch.setattr(Running, "wait", wait_once_it_hangs)
    hang = metric("sh", "-c", f"setsid sleep 600 & echo $! > {pids}; wait")
    trial = run_with(tmp_path, ["true"], hang)
    assert trial.status is TrialStatus.FAILED
    assert "still ran after 0.5 s" in trial.reason
    assert wait_until_gone(read_pids(pids, 1), timeout_s=0) == []


def test_no_command_is_run_after_a_program_that_failed(tmp_path: Path) -> None:
    trial = run_with(tmp_path, ["false"], metric("touch", str(tmp_path / "ran")))
    assert trial.reason == "exit code 1, 0 expected"
    assert not (tmp_path / "ran").exists()


def test_the_command_runs_without_the_allocator_and_with_the_wanted_environment(
    tmp_path: Path,
) -> None:
    script = "import os; print(int(os.environ['N']) + len(os.environ.get('LD_PRELOAD', '')))"
    library = next(Path("/usr/lib").glob("*/libjemalloc.so.2"))
    allocator = system_allocator("jemalloc", library)
    declared = metric(sys.executable, "-c", script)
    trial = run_with(tmp_path, ["true"], declared, allocator=allocator, environment={"N": "41"})
    assert trial.status is TrialStatus.OK, trial.reason
    assert trial.metrics["size"] == 41


def test_a_printed_metric_must_be_finite(tmp_path: Path) -> None:
    rate = WorkloadMetric(
        name="rate", label="Rate", unit="1/s", better="higher", pattern=r"rate: (\w+)"
    )
    trial = run_once(workload("echo", "rate: nan", metrics=[rate]), tmp_path)
    assert trial.status is TrialStatus.MISMATCH
    assert "not finite" in trial.reason
