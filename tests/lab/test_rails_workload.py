"""The telephone directory on Rails: visitors are served rightly, through restarts too."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from engine_helpers import run_once, system_allocator
from heapfit import paths
from heapfit.catalogue import load_workloads
from heapfit.records import TrialStatus, WorkloadCheck, WorkloadRun
from loopback import accepts, free_port
from shared_home import workload_data

# Rails takes seconds to load, and each test loads it anew.
pytestmark = pytest.mark.full

FOLDER = paths.workloads_dir() / "rails"
WORKLOAD = load_workloads([FOLDER])["rails"]
PEOPLE = 100
REQUESTS = 120
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60
DRIVER_TIMEOUT_S = 120
# Much less than Rails takes to load on any machine, much more than a fork takes.
LOADING_CPU_S = 0.1

# Drives the directory as the workload does, and looks into the memory maps meanwhile.
PEEK = """
import pathlib, subprocess, sys, time
import psutil
library, ledger, *command = sys.argv[1:]

def has_library(pid):
    return library in pathlib.Path(f"/proc/{pid}/maps").read_text()

driver = subprocess.Popen(command)
clients = []
while driver.poll() is None and not clients:
    clients = [p.pid for p in psutil.Process(driver.pid).children() if p.name() == "wrk"]
    time.sleep(0.01)
workers = {int(line.split()[1]) for line in open(ledger)}
print("workers:", len(workers), "all with:", all(map(has_library, workers)))
print("clients:", len(clients), "any with:", any(map(has_library, clients)))
sys.exit(driver.wait())
"""


@pytest.fixture(scope="module")
def data() -> Path:
    """The folder with the prepared database."""
    return workload_data(WORKLOAD)


@dataclass
class Directory:
    """A running directory; `scratch` has its database and the workers' ledger."""

    supervisor: subprocess.Popen[str]
    port: int
    scratch: Path
    workers: int

    @property
    def database(self) -> Path:
        return self.scratch / "directory.sqlite3"

    def said(self) -> str:
        return (self.scratch / "supervisor.err").read_text()

    def noted(self, event: str) -> list[list[str]]:
        """What follows the name of `event` in each such line of the ledger."""
        ledger = self.scratch / "ledger"
        lines = ledger.read_text().splitlines() if ledger.exists() else []
        return [line.split()[1:] for line in lines if line.startswith(f"{event} ")]

    def stop(self) -> int:
        self.supervisor.terminate()
        return self.supervisor.wait(STOP_TIMEOUT_S)

    def accepts(self) -> bool:
        return accepts(self.port)

    def have_started(self) -> bool:
        return len(self.noted("started")) == self.workers

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            assert self.supervisor.poll() is None, self.said()
            assert time.monotonic() < deadline, "not there in time"
            time.sleep(0.05)

    def driver(self, requests: int = REQUESTS) -> list[str]:
        """The command that drives it."""
        command = [sys.executable, FOLDER / "drive.py", self.port, self.scratch, self.workers]
        return [str(word) for word in [*command, 1, requests]]

    def drive(self, requests: int = REQUESTS) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.driver(requests), capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S
        )


@contextmanager
def directory(
    database: Path,
    scratch: Path,
    *,
    workers: int = 1,
    restart_every: int = 0,
    started: bool = True,
) -> Iterator[Directory]:
    port = free_port()
    command = ["/usr/bin/ruby", "--disable-gems", FOLDER / "supervisor.rb", port, workers, 1]
    command += [restart_every, database, scratch]
    with (scratch / "supervisor.err").open("w") as errors:
        words = list(map(str, command))
        supervisor = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors, text=True)
    try:
        running = Directory(supervisor, port, scratch, workers)
        running.wait_until(running.have_started if started else running.accepts)
        yield running
    finally:
        processes = psutil.Process(supervisor.pid).children() if supervisor.poll() is None else []
        supervisor.terminate()
        supervisor.wait(STOP_TIMEOUT_S)
        _, alive = psutil.wait_procs(processes, STOP_TIMEOUT_S)
        for process in alive:
            process.kill()
        assert not alive, f"outlived the supervisor: {alive}"


def figure(name: str, printed: str) -> float:
    found = re.search(rf"^{name} ([0-9.]+)$", printed, re.MULTILINE)
    assert found, printed
    return float(found[1])


def test_serves_its_visitors_and_ends_cleanly(data: Path, tmp_path: Path) -> None:
    with directory(data / "directory.sqlite3", tmp_path) as running:
        done = running.drive()
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.endswith("answers right\n")
        assert figure("restarts", done.stdout) == 0
        assert running.stop() == 0
        ((_, cpu_s, served, _, _),) = running.noted("left")
        assert int(served) == REQUESTS
        serving_cpu_s = REQUESTS * figure("ruby_cpu_s_per_request", done.stdout)
        assert 0 < serving_cpu_s <= float(cpu_s) - figure("ruby_start_cpu_s", done.stdout)
        rss, pss = (figure(f"ruby_{each}_bytes", done.stdout) for each in ("rss", "pss"))
        assert 20e6 < pss <= rss < 500e6


def test_a_retired_worker_is_followed_by_a_new_process_and_no_request_is_lost(
    data: Path, tmp_path: Path
) -> None:
    every = 40
    with directory(data / "directory.sqlite3", tmp_path, workers=2, restart_every=every) as running:
        done = running.drive(240)
        assert done.returncode == 0, done.stdout + done.stderr
        left = {int(pid): int(served) for pid, _, served, _, _ in running.noted("left")}
        started = {int(pid): float(cpu_s) for pid, cpu_s in running.noted("started")}
        assert len(started) == len(running.noted("started")) >= 2 + 3
        # Each has loaded the application itself: a copy of one that had would be ready at once.
        assert min(started.values()) > LOADING_CPU_S
        assert figure("restarts", done.stdout) >= 3
        # What it had accepted by then, it still answered.
        assert all(every <= served < 2 * every for served in left.values())


def test_the_allocator_is_in_ruby_and_not_in_wrk(data: Path, tmp_path: Path, library: Path) -> None:
    driver = [*WORKLOAD.run.command[:-1], str(REQUESTS)]
    peek = [sys.executable, "-c", PEEK, str(library), "{scratch}/ledger", *driver]
    seen = r"workers: 1 all with: True\nclients: 1 any with: False\n(.|\n)*answers right"
    work = WORKLOAD.model_copy(
        update={
            "run": WorkloadRun(command=peek),
            "check": WorkloadCheck(stdout="ignore", must_match=seen),
        }
    )
    trial = run_once(work, tmp_path, allocator=system_allocator("heapfit", library), data=data)
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
    assert trial.metrics["requests_per_s"] > 0


def test_a_visitor_notices_a_wrong_page(data: Path, tmp_path: Path) -> None:
    with (
        directory(data / "directory.sqlite3", tmp_path) as running,
        subprocess.Popen(
            running.driver(6000), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as driver,
    ):
        while driver.poll() is None:
            with sqlite3.connect(running.database, timeout=START_TIMEOUT_S) as database:
                database.execute("UPDATE people SET phone = '+45 ' || abs(random() % 10000)")
            database.close()
            time.sleep(0.05)
        assert driver.returncode == 1
        assert driver.stderr is not None
        assert re.search(r"drive\.py: wrong: \d+ has \+45", driver.stderr.read())


def test_the_driver_notices_what_was_not_stored(data: Path, tmp_path: Path) -> None:
    """One round, so that no visitor sees the table again after its update."""
    forgetful = tmp_path / "forgetful.sqlite3"
    forgetful.write_bytes((data / "directory.sqlite3").read_bytes())
    database = sqlite3.connect(forgetful)
    database.execute(
        "CREATE TRIGGER forget BEFORE UPDATE ON people BEGIN SELECT RAISE(IGNORE); END"
    )
    database.commit()
    database.close()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with directory(forgetful, scratch) as running:
        done = running.drive(6)
    assert done.returncode == 1
    assert "does not have what was stored" in done.stderr


@pytest.mark.parametrize("after_s", [0.05, 0.3, 0.6, 0.9])
def test_ends_at_once_while_its_workers_still_start(
    after_s: float, data: Path, tmp_path: Path
) -> None:
    with directory(data / "directory.sqlite3", tmp_path, workers=2, started=False) as running:
        time.sleep(after_s)
        assert running.stop() == 0


def test_a_worker_that_dies_ends_all_and_is_named(data: Path, tmp_path: Path) -> None:
    with directory(data / "directory.sqlite3", tmp_path, workers=2) as running:
        first, second = (int(pid) for (pid, _) in running.noted("started"))
        psutil.Process(first).send_signal(signal.SIGKILL)
        assert running.supervisor.wait(STOP_TIMEOUT_S) == 1
        assert f"a worker failed: pid {first} SIGKILL" in running.said()
        assert not psutil.pid_exists(second)


def test_no_worker_outlives_a_killed_supervisor(data: Path, tmp_path: Path) -> None:
    with directory(data / "directory.sqlite3", tmp_path, workers=2) as running:
        workers = psutil.Process(running.supervisor.pid).children()
        running.supervisor.kill()
        running.supervisor.wait(STOP_TIMEOUT_S)
        gone, alive = psutil.wait_procs(workers, STOP_TIMEOUT_S)
    assert (len(gone), alive) == (2, [])


def test_every_person_is_in_the_prepared_directory(data: Path) -> None:
    database = sqlite3.connect(data / "directory.sqlite3")
    (count,) = database.execute("SELECT count(DISTINCT email) FROM people").fetchone()
    database.close()
    assert count == PEOPLE
