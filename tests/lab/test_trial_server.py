"""A server under test, driven from outside by a client: redis-server and redis-benchmark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from engine_helpers import PYTHON, allowed_cores, jemalloc, run_once, study_of, workload
from heapfit.errors import HeapfitError
from heapfit.records import TrialStatus, Workload, WorkloadCheck, WorkloadServer
from heapfit.study import execute

REDIS = [
    "redis-server",
    "--port",
    "{port}",
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--dir",
    "{scratch}",
]


def redis(*client: str, **fields: Any) -> Workload:
    fields.setdefault("check", WorkloadCheck(stdout="ignore"))
    return workload(*client, server=WorkloadServer(command=REDIS), **fields)


def test_only_the_server_has_the_allocator(tmp_path: Path) -> None:
    show = (
        'echo "client=$LD_PRELOAD"; pid=$(redis-cli -p {port} info server |'
        " sed -n 's/process_id:\\([0-9]*\\).*/\\1/p'); grep -c jemalloc /proc/$pid/maps"
    )
    work = redis("sh", "-c", show, check=WorkloadCheck(must_match=r"^client=\n[1-9]"))
    trial = run_once(work, tmp_path, allocator=jemalloc())
    assert trial.status is TrialStatus.OK, trial.reason


@pytest.mark.full
@pytest.mark.skipif(allowed_cores() < 2, reason="needs a core for each side")
def test_server_and_client_run_apart(tmp_path: Path) -> None:
    first, *rest = sorted(os.sched_getaffinity(0))
    show = (
        "import os, re, subprocess, sys\n"
        "info = subprocess.run(['redis-cli', '-p', sys.argv[1], 'info', 'server'],"
        " capture_output=True, text=True).stdout\n"
        "pid = int(re.search(r'process_id:(\\d+)', info).group(1))\n"
        "print(*sorted(os.sched_getaffinity(pid)), '|', *sorted(os.sched_getaffinity(0)))"
    )
    expected = rf"^{first} \| {' '.join(map(str, rest))}$"
    trial = run_once(
        redis(*PYTHON, show, "{port}", check=WorkloadCheck(must_match=expected)), tmp_path
    )
    assert trial.status is TrialStatus.OK, trial.reason


def test_a_server_that_dies_is_blamed_rather_than_its_client(tmp_path: Path) -> None:
    crash = "redis-cli -p {port} debug segfault >&2; exit 1"
    work = workload(
        "sh",
        "-c",
        crash,
        server=WorkloadServer(
            command=[*REDIS, "--enable-debug-command", "yes", "--crash-log-enabled", "no"]
        ),
    )
    trial = run_once(work, tmp_path)
    assert trial.status is TrialStatus.FAILED
    assert "server" in trial.reason
    assert "SIGSEGV" in trial.reason


def test_a_server_that_turns_into_a_daemon_is_told_not_to(tmp_path: Path) -> None:
    work = workload("true", server=WorkloadServer(command=["true"]))
    with pytest.raises(HeapfitError, match="a trial of the server fails under the baseline glibc"):
        execute(study_of(work), tmp_path / "out")
    assert run_once(work, tmp_path).reason.endswith("a daemon, have it stay in the foreground")


def test_a_service_that_needs_no_load_runs_for_as_long_as_it_is_told(tmp_path: Path) -> None:
    keep = (
        "import signal, sys; x = bytearray(40 << 20); open(sys.argv[1], 'w').close(); "
        "signal.pause()"
    )
    server = WorkloadServer(command=[*PYTHON, keep, "{scratch}/there"], ready="started")
    wait = "until [ -e {scratch}/there ]; do sleep 0.05; done; sleep 0.2"
    trial = run_once(workload("sh", "-c", wait, server=server), tmp_path)
    assert trial.status is TrialStatus.OK, trial.reason
    assert trial.metrics["wall_s"] >= 0.2
    assert trial.metrics["peak_rss_bytes"] > 40 << 20
    ended = run_once(workload("sleep", "5", server=server.model_copy(
        update={"command": ["sh", "-c", "exit 3"]})), tmp_path / "2")  # fmt: skip
    assert ended.reason == "the server was not there to the end: exit code 3"


def test_a_service_may_exit_with_what_shells_make_of_sigterm(tmp_path: Path) -> None:
    """A JVM could not be compared, since it exits with 143."""
    there = "until [ -e {scratch}/there ]; do sleep 0.05; done"
    for code, status in ((143, TrialStatus.OK), (3, TrialStatus.FAILED)):
        trap = f"trap 'exit {code}' TERM; : > {{scratch}}/there; while :; do sleep 0.05; done"
        server = WorkloadServer(command=["sh", "-c", trap], ready="started")
        trial = run_once(workload("sh", "-c", there, server=server), tmp_path / str(code))
        assert trial.status is status, trial.reason
