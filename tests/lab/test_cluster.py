"""A study runs on several machines: here a real Dask scheduler and two workers on this one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import Heapfit
from engine_helpers import PYTHON, study_of, wait_for, workload
from heapfit import catalogue
from heapfit.records import TrialStatus
from heapfit.study import load, machine_side
from heapfit.study.cluster import Cluster
from study_files import write_study

pytestmark = pytest.mark.full


@dataclass
class Fleet:
    """A scheduler on loopback and the workers that were started for it."""

    folder: Path
    environment: Mapping[str, str]
    address: str = ""
    scheduler: subprocess.Popen[bytes] | None = None
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        told = self.folder / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(told))
        self.scheduler = self._dask("scheduler", *words, "--no-dashboard")
        wait_for(lambda: told.exists() and told.read_text().endswith("}"))
        self.address = json.loads(told.read_text())["address"]

    def add(self, name: str, **environment: str) -> None:
        """Start the worker of a machine called `name`."""
        self.workers[name] = self._dask(
            *("worker", self.address, "--host", "127.0.0.1", "--name", name, "--nthreads", "1"),
            *("--no-nanny", "--no-dashboard", "--local-directory", str(self.folder / name)),
            *("--resources", "heapfit=1"),
            **environment,
        )
        log = self.folder / f"{len(self.workers)}.log"
        wait_for(lambda: b"Registered to" in log.read_bytes())

    def kill(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()

    def stop(self) -> None:
        for process in [*self.workers.values(), *([self.scheduler] if self.scheduler else [])]:
            process.kill()
            process.wait()

    def _dask(self, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.workers) + (words[0] == 'worker')}.log").open("wb")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", *words],
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
            )


@pytest.fixture
def fleet(tmp_path: Path, clean_environment: dict[str, str]) -> Iterator[Fleet]:
    """A scheduler without workers."""
    folder = tmp_path / "fleet"
    folder.mkdir()
    started = Fleet(folder, {**clean_environment, "TMPDIR": str(folder)})
    try:
        started.start()
        yield started
    finally:
        started.stop()


def test_two_machines_share_a_study_by_whole_blocks(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("one")
    fleet.add("two")
    [glibc] = catalogue.resolve_allocators(["glibc"])
    other = glibc.model_copy(update={"name": "other", "environment": {"MARK": "1"}})
    work = workload(*PYTHON, "import time; time.sleep(0.2)")
    said: list[str] = []
    machines = Cluster(fleet.address, said.append)
    [study] = machines.adopt([study_of(work, [glibc, other], replicates=6)])
    machines.execute(study, tmp_path / "study", None)
    finished, trials = load(tmp_path / "study")
    assert sorted(trial.planned.index for trial in trials) == list(range(len(study.plan)))
    assert {trial.status for trial in trials} == {TrialStatus.OK}
    by_block: dict[int, set[str | None]] = {}
    for trial in trials:
        if not trial.planned.warmup:
            by_block.setdefault(trial.planned.block, set()).add(trial.machine)
    assert all(len(machines) == 1 for machines in by_block.values())
    assert set().union(*by_block.values()) == {"one", "two"}
    assert "run on one, two" in finished.machine.notes[0]
    assert any("one, two are one machine" in line for line in said)


def test_each_command_looks_anew_at_what_a_machine_measures(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho 1\n")
    program.chmod(0o755)
    glibc = catalogue.resolve_allocators(["glibc"])
    study = study_of(workload(str(program)), glibc).model_dump_json()
    before = machine_side.prepare(study)
    assert machine_side.prepare(study) == before
    program.write_text("#!/bin/sh\necho 22\n")
    assert machine_side.prepare(study) != before


@pytest.mark.usefixtures("library")
def test_a_study_of_many_workloads_runs_on_the_cluster(
    fleet: Fleet, tmp_path: Path, run_heapfit: Heapfit
) -> None:
    fleet.add("one", HEAPFIT_HOME=str(tmp_path / "home-of-one"))
    path, out = write_study(tmp_path), tmp_path / "out"
    result = run_heapfit("study", "run", path, "--no-probes", "--out", out, "--on", fleet.address)
    assert result.returncode == 0, result.stderr
    assert (out / "report.html").is_file()
    for name in ("small-churn", "small-pareto"):
        study, trials = load(out / name)
        assert len(trials) == len(study.plan)
        assert {(trial.machine, trial.status) for trial in trials} == {("one", TrialStatus.OK)}
        assert list((tmp_path / "home-of-one" / "workloads").glob(f"{name}-v1-*"))
    assert f"--on {fleet.address}" in study.reproduce
