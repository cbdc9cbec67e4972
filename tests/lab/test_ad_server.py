"""The ad server: the same right answers under any allocator, through reloads, and a clean end."""

from __future__ import annotations

import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from engine_helpers import run_once, system_allocator
from heapfit import paths
from heapfit.catalogue import load_workloads
from heapfit.records import TrialStatus
from sampling import first
from shared_home import workload_data

pytestmark = pytest.mark.full

FOLDER = paths.workloads_dir() / "ad-server"
WORKLOAD = load_workloads([FOLDER])["ad-server"]
MEBIBYTES, SWING, WORKERS = 8, 8, 3
# Tiny, for a whole trial.
SMALL = {"mebibytes": "8", "swing": "8", "workers": "2", "seconds": "2", "reload_s": "1"}
QUESTIONS = 72
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
DRIVER_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def program() -> Path:
    """The built server."""
    return workload_data(WORKLOAD) / "ad-server"


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int

    def ask(self, path: str, method: str = "GET") -> str:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        with urllib.request.urlopen(asked, timeout=START_TIMEOUT_S) as answer:
            return str(answer.read().decode())

    def status(self, name: str) -> list[str]:
        """What follows `name` in each such line of the status."""
        return re.findall(rf"^{name}(?: (.*))?$", self.ask("/status"), re.MULTILINE)

    def wait_for_reload(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.status("reloading") == ["1"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def server(
    program: Path, *, library: Path | None = None, options: str = "", **switches: str
) -> Iterator[Server]:
    """A running server, which the test stops or which is ended here."""
    command = [program, "--port", 0, "--workers", WORKERS]
    command += ["--mebibytes", MEBIBYTES, "--swing", SWING]
    for name, value in switches.items():
        command += [f"--{name}", value]
    environment = {**os.environ, "HEAPFIT_OPTIONS": options}
    if library:
        environment["LD_PRELOAD"] = str(library)
    with subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield Server(process, int(process.stdout.readline().rpartition(":")[2]))
        finally:
            process.kill()


def drive(running: Server, scratch: Path, *, seconds: int = 1, reload_s: float = 0.5) -> str:
    """Load the server as the workload does; what the driver prints."""
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, FOLDER / "drive.py", running.port, scratch, seconds, reload_s]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def figures(printed: str) -> dict[str, float]:
    return {name: float(figure) for name, figure in re.findall(r"(?m)^(\S+) ([0-9.]+)$", printed)}


def answers(program: Path, library: Path | None, scratch: Path, **switches: str) -> str:
    """What a server under load answered, through a reload."""
    with server(program, library=library, **switches) as running:
        assert running.status("contexts") == ["1" if switches["contexts"] == "on" else "0"]
        came = figures(drive(running, scratch))
        assert came["reloads"] >= 1
        assert came["large_requests"] > 0
        assert running.stop() == 0
    return (scratch / "answers.txt").read_text()


@pytest.fixture(scope="module")
def answers_under_glibc(program: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    scratch = tmp_path_factory.mktemp("glibc")
    return answers(program, None, scratch, shrink="off", contexts="off")


@pytest.mark.parametrize(
    ("shrink", "contexts"), first(2, [("off", "off"), ("on", "on"), ("off", "on"), ("on", "off")])
)
def test_answers_alike_under_glibc_and_heapfit_whatever_is_switched_on(
    program: Path,
    library: Path,
    tmp_path: Path,
    answers_under_glibc: str,
    shrink: str,
    contexts: str,
) -> None:
    came = answers(program, library, tmp_path, shrink=shrink, contexts=contexts)
    assert len(came.splitlines()) == QUESTIONS
    assert came == answers_under_glibc


@pytest.mark.parametrize(
    "options",
    [
        "thread_span_threshold:0,decay_ms:0,huge_pages:never",
        "thread_span_threshold:1m,decay_ms:30000",
    ],
)
def test_answers_stay_right_when_heapfit_keeps_nothing_and_when_it_keeps_all(
    options: str, program: Path, library: Path, tmp_path: Path
) -> None:
    with server(program, library=library, options=options) as running:
        assert drive(running, tmp_path).endswith("answers right\n")
        assert running.stop() == 0


def test_a_trial_has_every_figure_and_the_allocator_in_the_server(
    program: Path, library: Path, tmp_path: Path
) -> None:
    small = WORKLOAD.model_copy(update={"parameters": {**WORKLOAD.parameters, **SMALL}})
    allocator = system_allocator("heapfit", library)
    trial = run_once(small, tmp_path, allocator=allocator, data=program.parent)
    assert trial.status is TrialStatus.OK, f"{trial.reason}\n{trial.stderr_tail}"
    promised = {metric.name for metric in WORKLOAD.metrics if not metric.optional}
    assert promised <= trial.metrics.keys()
    counted = {name for name in trial.metrics if name.endswith("_calls_per_request")}
    assert counted <= {"memory_calls_per_request"}


def test_a_reload_goes_on_beside_requests_and_is_told_in_the_status(program: Path) -> None:
    question = "/ads?user=3&words=1+2+3&limit=500"
    with server(program) as running:
        before = running.ask(question)
        running.ask("/reload", "POST")
        while running.status("reloading") == ["1"]:
            assert running.ask(question) == before
        (told,) = running.status("reload")
        begin, end = map(int, told.split())
        assert 0 < end - begin < START_TIMEOUT_S * 1e9
        assert running.ask(question) == before
        assert running.stop() == 0


def test_asks_the_allocator_by_what_it_has(program: Path, library: Path) -> None:
    jemalloc = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")
    with server(program) as running:
        assert running.status("means_to_shrink") == ["malloc_trim"]
    with server(program, library=library, shrink="on") as running:
        assert running.status("means_to_shrink") == ["hf_footprint_shrink"]
        running.ask("/reload", "POST")
        running.wait_for_reload()
        assert running.stop() == 0
    if jemalloc.exists():
        with server(program, library=jemalloc) as running:
            assert running.status("means_to_shrink") == ["mallctl"]


def test_the_journal_takes_a_record_of_each_request(program: Path) -> None:
    with server(program) as running:
        for user in range(10):
            running.ask(f"/ads?user={user}&words=5&limit=50")
        deadline = time.monotonic() + START_TIMEOUT_S
        while running.status("noted") != ["10"]:  # after the answer has been sent
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_serves_many_at_once(program: Path) -> None:
    with server(program) as running:
        path = "/forecast?user=1&from=100&count=5000"
        right, wrong = running.ask(path), []

        def ask() -> None:
            if running.ask(path) != right:
                wrong.append(path)

        askers = [threading.Thread(target=ask) for _ in range(12)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert not wrong
        assert running.stop() == 0


def test_refuses_what_it_does_not_know(program: Path) -> None:
    with server(program) as running:
        for path, status in (("/", 404), ("/reload", 405)):
            with pytest.raises(urllib.error.HTTPError, match=str(status)):
                running.ask(path)
        with socket.create_connection(("127.0.0.1", running.port)) as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert client.recv(1024).startswith(b"HTTP/1.1 400 ")
        assert running.ask("/ads?words=&limit=x").startswith('{"candidates": 0,')


def test_the_driver_notices_a_wrong_answer(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = runpy.run_path(str(FOLDER / "drive.py"), run_name="drive")
    with server(program) as running:
        asked = module["questions"](module["Server"](running.port))
        spoilt = [module["Question"](each.path, f"{each.answer} ", each.is_large) for each in asked]
        file = module["write_answers"](spoilt, tmp_path)
        with pytest.raises(SystemExit, match="wrong answer: 200 /"):
            module["load"](module["Server"](running.port), file, 1, 0)


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGINT])
def test_ends_at_once_in_the_middle_of_a_reload(ends: signal.Signals, program: Path) -> None:
    with server(program, shrink="on") as running:
        running.ask("/reload", "POST")
        running.process.send_signal(ends)
        assert running.process.wait(STOP_TIMEOUT_S) == 0


def test_listens_on_loopback_only(program: Path) -> None:
    with server(program) as running:
        connections = psutil.Process(running.process.pid).net_connections("inet")
        listening = [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
        assert listening == ["127.0.0.1"]


@pytest.mark.parametrize(
    "arguments", [["--port"], ["--port", "65536"], ["--shrink", "yes"], ["--mebibytes", "-1"]]
)
def test_says_how_it_is_used(arguments: list[str], program: Path) -> None:
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_latencies_are_those_of_their_reloads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = runpy.run_path(str(FOLDER / "figures.py"), run_name="figures")
    span = module["Span"]
    usual = [span(i, i + 0.001) for i in range(98)]
    stalled = [span(50.5, 50.9), span(50.8, 51.2)]
    came = module["latencies"](usual + stalled, [span(50.6, 50.85)])
    assert came["latency_p50_s"] == pytest.approx(0.001)
    assert came["reload_latency_p50_s"] == pytest.approx(0.4)
    assert came["reload_latency_p999_s"] == pytest.approx(0.4)
    without = module["latencies"](usual, [])
    assert not any(name.startswith("reload") for name in without)
    assert module["corrected"]([1.0, 3.5], 1.0) == [1.0, 3.5, 2.5, 1.5]
