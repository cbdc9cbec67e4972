"""`heapfit study`: many workloads as one study, on real programs that run for milliseconds."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Heapfit, assert_one_line
from study_files import STUDY, trials_in, write_study, write_workload

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

WORKLOADS = ["small-churn", "small-pareto"]


@pytest.fixture(scope="module")
def finished(run_heapfit: Heapfit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that has run whole; tests must not change it."""
    folder = tmp_path_factory.mktemp("study")
    result = run_heapfit("study", "run", write_study(folder), "--out", folder / "out")
    assert result.returncode == 0, result.stderr
    (folder / "out" / "stdout.txt").write_text(result.stdout)
    return folder / "out"


def report_of(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


def test_the_same_command_adds_nothing_and_report_makes_it_anew(
    run_heapfit: Heapfit, finished: Path
) -> None:
    before = {name: trials_in(finished / name) for name in WORKLOADS}
    again = run_heapfit("study", "run", finished.parent / "small.toml", "--out", finished)
    assert again.returncode == 0, again.stderr
    assert "13 of 13 trials are already done" in again.stderr
    assert {name: trials_in(finished / name) for name in WORKLOADS} == before
    (finished / "report.md").unlink()
    report = run_heapfit("report", finished)
    assert report.returncode == 0, report.stderr
    assert "geometric mean" in report.stdout
    assert "| geometric mean |" in (finished / "report.md").read_text()


def test_a_part_that_another_run_has_in_hand_is_no_lasting_problem(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    study, out = write_study(tmp_path), tmp_path / "out"
    command = ["study", "run", study, "--out", out, "--no-probes"]
    (out / "small-churn").mkdir(parents=True)
    with (out / "small-churn" / "trials.jsonl").open("a") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)  # as a comparison that was told to use this folder
        blocked = run_heapfit(*command)
    assert blocked.returncode == 1
    assert "another heapfit runs the study in" in blocked.stderr
    assert len(trials_in(out / "small-pareto")) == 5
    problems = json.loads((out / "problems.json").read_text())
    assert "small-churn" not in problems
    assert run_heapfit(*command).returncode == 0
    assert len(trials_in(out / "small-churn")) == 5


def test_a_workload_that_fails_is_told_and_does_not_stop_the_others(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    study = write_study(tmp_path)
    write_workload(tmp_path, "phases", '"--scale", "1"', proof="never printed")
    study.write_text(STUDY.replace('["churn/",', '["phases/", "churn/",'))
    out = tmp_path / "out"
    result = run_heapfit("study", "run", study, "--out", out, "--no-probes", "--replicates", "1")
    assert result.returncode == 1
    assert "small-phases: the program fails under the baseline glibc" in result.stderr
    report = report_of(out)
    assert list(report["problems"]) == ["small-phases"]
    assert list(report["figures"][0]["ratios"]) == WORKLOADS
    assert "small-phases: the program fails" in " ".join(result.stdout.split())


def test_peers_that_are_not_installed_can_be_left_out(run_heapfit: Heapfit, tmp_path: Path) -> None:
    study = write_study(tmp_path, STUDY.replace('"heapfit"]', '"heapfit", "rpmalloc", "snmalloc"]'))
    result = run_heapfit(
        *["study", "run", study, "--out", tmp_path / "out", "--quick", "--replicates", "1"],
        *["--workloads", "churn/", "--allocators", "installed"],
        environment={"HEAPFIT_HOME": str(tmp_path / "empty")},
    )
    assert result.returncode == 0, result.stderr
    compared = json.loads((tmp_path / "out" / "series.json").read_text())["allocators"]
    assert [each["name"] for each in compared] == ["glibc", "heapfit"]


def test_what_a_workload_lacks_is_told_before_anything_runs(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    study = write_study(tmp_path)
    workload = tmp_path / "churn" / "workload.toml"
    workload.write_text(workload.read_text().replace('["cc"]', '["no-such-program"]'))
    result = run_heapfit("study", "run", study, "--out", tmp_path / "out")
    said = ["small-churn needs program no-such-program", "heapfit workloads install small-churn"]
    assert_one_line(result, 1, said)
    assert not (tmp_path / "out").exists()


def test_another_study_in_the_folder_is_refused(run_heapfit: Heapfit, finished: Path) -> None:
    before = (finished / "series.json").read_bytes()
    study = finished.parent / "small.toml"
    result = run_heapfit("study", "run", study, "--out", finished, "--seed", "7")
    assert_one_line(result, 2, ["holds another study", "seed differ"])
    workload = finished.parent / "pareto" / "workload.toml"
    text = workload.read_text()
    workload.write_text(text.replace('"1"]', '"2"]'))
    result = run_heapfit("study", "run", study, "--out", finished)
    workload.write_text(text)
    said = ["small-pareto", "holds another study: workload (run.command) differs"]
    assert_one_line(result, 2, said)
    assert (finished / "series.json").read_bytes() == before
