"""A study runs on several machines: here a real Dask scheduler and two workers on this one."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import Heapfit
from engine_helpers import PYTHON, study_of, wait_for, workload
from heapfit import catalogue
from heapfit.records import (
    InstalledAllocator,
    Study,
    Trial,
    TrialStatus,
)
from heapfit.study import Progress, load
from heapfit.study.cluster import Cluster
from study_files import write_study

pytestmark = pytest.mark.full


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    """Whether somebody does."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class Fleet:
    """A scheduler on loopback and the workers that were started for it."""

    folder: Path
    environment: Mapping[str, str]
    address: str = ""
    scheduler: subprocess.Popen[bytes] | None = None
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        port = free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._dask(
            "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"
        )
        wait_for(lambda: accepts(port))

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


def of_this_system(name: str = "glibc", **environment: str) -> InstalledAllocator:
    """The system's malloc in the version that it has."""
    [system] = catalogue.resolve_allocators(["glibc"])
    return system.model_copy(update={"name": name, "environment": environment})


def study_of_two(*command: str, replicates: int = 3, **fields: object) -> Study:
    """A study of two names for the system's malloc."""
    allocators = [of_this_system("glibc"), of_this_system("other", MARK="1")]
    chosen = workload(*(command or ("true",)), **fields)
    return study_of(chosen, allocators, replicates=replicates)


def run_on(fleet: Fleet, study: Study, folder: Path, progress: Progress | None = None) -> list[str]:
    """Run `study` on the cluster and return what it said."""
    said: list[str] = []
    machines = Cluster(fleet.address, said.append)
    [adopted] = machines.adopt([study])
    machines.execute(adopted, folder, progress)
    return said


def counted(trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if not trial.planned.warmup]


def by_block(trials: list[Trial]) -> dict[int, set[str | None]]:
    machines: dict[int, set[str | None]] = {}
    for trial in counted(trials):
        machines.setdefault(trial.planned.block, set()).add(trial.machine)
    return machines


def test_two_machines_share_a_study_by_whole_blocks(fleet: Fleet, tmp_path: Path) -> None:
    fleet.add("one")
    fleet.add("two")
    study = study_of_two(*PYTHON, "import time; time.sleep(0.2)", replicates=6)
    said = run_on(fleet, study, tmp_path / "study")
    finished, trials = load(tmp_path / "study")
    assert sorted(trial.planned.index for trial in trials) == list(range(len(study.plan)))
    assert {trial.status for trial in trials} == {TrialStatus.OK}
    assert all(len(machines) == 1 for machines in by_block(trials).values())
    assert set().union(*by_block(trials).values()) == {"one", "two"}
    assert "run on one, two" in finished.machine.notes[0]
    assert any("one, two are one machine" in line for line in said)


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
        assert (tmp_path / "home-of-one" / "workloads" / f"{name}-v1").is_dir()
    assert f"--on {fleet.address}" in study.reproduce
