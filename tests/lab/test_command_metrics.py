"""A workload's metric that a command of the user's prints when the program has ended."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import jemalloc, study_of, system_allocator, workload
from heapfit.records import CommandMetric, Trial, TrialStatus
from heapfit.trial import run_trial
from heapfit.trial.outcome import as_metric


def metric(*command: str) -> CommandMetric:
    return CommandMetric(
        name="size", label="Size", unit="bytes", better="lower", command=list(command)
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


@pytest.mark.parametrize("printed", ["12 apples", "nan"])
def test_what_is_no_number_is_a_mismatch(tmp_path: Path, printed: str) -> None:
    trial = run_with(tmp_path, ["true"], metric("printf", printed))
    assert trial.status is TrialStatus.MISMATCH
    assert "metric size" in trial.reason
    assert trial.metrics == {}


def test_the_command_runs_without_the_allocator_and_with_the_wanted_environment(
    tmp_path: Path,
) -> None:
    script = "import os; print(int(os.environ['N']) + len(os.environ.get('LD_PRELOAD', '')))"
    declared = metric(sys.executable, "-c", script)
    trial = run_with(tmp_path, ["true"], declared, allocator=jemalloc(), environment={"N": "41"})
    assert trial.status is TrialStatus.OK, trial.reason
    assert trial.metrics["size"] == 41
