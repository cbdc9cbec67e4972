"""The trading middleware: right to the last report, and nothing left behind however it ends."""

from __future__ import annotations

import re
import runpy
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from heapfit import paths
from heapfit.catalogue import load_workloads
from heapfit.catalogue.studies import load_study
from loopback import accepts, free_port
from shared_home import workload_data

pytestmark = pytest.mark.full  # its programs take minutes to compile

ROOT = Path(__file__).parents[2]
FOLDER = paths.workloads_dir() / "trading"
DICTIONARY = FOLDER / "dictionary.xml"
STUDY = ROOT / "studies" / "trading.toml"
PROCESSES = ("trading-gateway", "trading-sessions", "trading-data")

ORDERS = 1200
SESSIONS = 3
NO_LIMIT = 1_000_000
START_TIMEOUT_S = 60
CLIENT_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the built programs."""
    return workload_data(load_workloads([FOLDER])["trading"])


@dataclass
class Middleware:
    supervisor: subprocess.Popen[str]
    port: int
    scratch: Path

    def processes(self) -> dict[str, psutil.Process]:
        """The three processes by the names of their programs."""
        children = psutil.Process(self.supervisor.pid).children()
        return {Path(child.cmdline()[0]).name: child for child in children}

    def stop(self) -> int:
        self.supervisor.terminate()
        return self.supervisor.wait(STOP_TIMEOUT_S)


@contextmanager
def middleware(
    programs: Path, scratch: Path, *, threads: int = 2, limit: int = NO_LIMIT
) -> Iterator[Middleware]:
    scratch.mkdir(exist_ok=True)
    port = free_port()
    command = [programs / "trading", "--programs", programs, "--dictionary", DICTIONARY]
    command += ["--scratch", scratch, "--port", port, "--sessions", SESSIONS]
    command += ["--threads", threads, "--limit", limit]
    supervisor = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    running = Middleware(supervisor, port, scratch)
    children: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(port):
            assert supervisor.poll() is None, supervisor.communicate()[1]
            assert time.monotonic() < deadline, "the middleware did not start in time"
            time.sleep(0.05)
        children = list(running.processes().values())
        yield running
    finally:
        if supervisor.poll() is None:
            running.stop()
        supervisor.communicate()
        _, alive = psutil.wait_procs(children, STOP_TIMEOUT_S)
        for process in alive:
            process.kill()
        assert not alive, f"outlived the middleware: {alive}"


def trade(
    programs: Path, running: Middleware, *, timeout_s: int = 60, orders: int = ORDERS
) -> subprocess.CompletedProcess[str]:
    command = [programs / "trading-client", "--port", running.port, "--orders", orders]
    command += ["--sessions", SESSIONS, "--timeout", timeout_s, "--dictionary", DICTIONARY]
    command += ["--transcript", running.scratch / "reports.txt"]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=CLIENT_TIMEOUT_S
    )


def executed(reports: str) -> int:
    """The quantity of all executions in a transcript."""
    return sum(map(int, re.findall(r"execution F .* last (\d+) at", reports)))


def test_tells_every_broker_the_right_thing_and_ends_cleanly(
    programs: Path, tmp_path: Path
) -> None:
    with middleware(programs, tmp_path) as running:
        done = trade(programs, running)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("check ok\n")
        assert sorted(running.processes()) == sorted(PROCESSES)
        assert running.stop() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal.sqlite", "reports.txt"]


def test_the_journal_has_every_execution(programs: Path, tmp_path: Path) -> None:
    with middleware(programs, tmp_path) as running:
        assert trade(programs, running).returncode == 0
        running.stop()
    journal = sqlite3.connect(tmp_path / "journal.sqlite")
    try:
        assert journal.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        query = "SELECT sum(last_quantity) FROM execution WHERE execution = 'F'"
        (quantity,) = journal.execute(query).fetchone()
    finally:
        journal.close()
    assert quantity == executed((tmp_path / "reports.txt").read_text()) > 0


def test_the_number_of_threads_changes_nothing_of_what_is_told(
    programs: Path, tmp_path: Path
) -> None:
    transcripts = []
    for threads in 1, 3:
        scratch = tmp_path / str(threads)
        with middleware(programs, scratch, threads=threads) as running:
            assert trade(programs, running).returncode == 0
        transcripts.append((scratch / "reports.txt").read_text())
    assert transcripts[0] == transcripts[1] != ""


def test_the_client_notices_a_wrong_answer(programs: Path, tmp_path: Path) -> None:
    """Orders beyond a low limit are rejected, which the client's own reckoning knows nothing of."""
    with middleware(programs, tmp_path, limit=20) as running:
        done = trade(programs, running)
    assert done.returncode == 1
    assert "BROKER00" in done.stderr
    assert "execution 8" in done.stderr
    assert "check ok" not in done.stdout


def test_the_client_gives_up_where_nobody_answers(programs: Path, tmp_path: Path) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        running = Middleware(subprocess.Popen(["true"], text=True), deaf.getsockname()[1], tmp_path)
        done = trade(programs, running, timeout_s=2)
        running.supervisor.wait()
    assert done.returncode == 1
    assert "no logon in time" in done.stderr


@pytest.mark.parametrize("victim", PROCESSES)
def test_a_process_that_dies_ends_the_others_and_is_named(
    victim: str, programs: Path, tmp_path: Path
) -> None:
    with middleware(programs, tmp_path) as running:
        running.processes()[victim].kill()
        _, said = running.supervisor.communicate(timeout=STOP_TIMEOUT_S)
        assert running.supervisor.returncode == 1
    assert f"{victim} was killed by signal 9" in said


def test_no_process_outlives_a_killed_supervisor(programs: Path, tmp_path: Path) -> None:
    with middleware(programs, tmp_path) as running:
        children = list(running.processes().values())
        running.supervisor.kill()
        running.supervisor.wait()
        gone, alive = psutil.wait_procs(children, STOP_TIMEOUT_S)
    assert (len(gone), alive) == (3, [])


def test_stops_in_the_middle_of_trading(programs: Path, tmp_path: Path) -> None:
    with middleware(programs, tmp_path) as running:
        command = [programs / "trading-client", "--port", running.port, "--orders", 30_000]
        command += ["--sessions", SESSIONS, "--timeout", 60, "--dictionary", DICTIONARY]
        command += ["--transcript", tmp_path / "reports.txt"]
        with subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True) as client:
            deadline = time.monotonic() + START_TIMEOUT_S
            journal = tmp_path / "journal.sqlite-wal"
            while not (journal.exists() and journal.stat().st_size > 1 << 18):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert running.stop() == 0
            _, said = client.communicate(timeout=CLIENT_TIMEOUT_S)
    assert client.returncode == 1
    assert "the session has ended" in said


def test_speaks_on_loopback_only(programs: Path, tmp_path: Path) -> None:
    with middleware(programs, tmp_path) as running:
        gateway = running.processes()["trading-gateway"]
        connections = gateway.net_connections("inet")
        listening = [each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN]
    assert listening == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port"], "options are --name value"),
        (["--port", "1"], "needs --programs"),
        (["--programs", ".", "--sessions", "none"], "needs --threads"),
    ],
)
def test_says_what_is_wrong_with_its_options(
    arguments: list[str], message: str, programs: Path
) -> None:
    done = subprocess.run(
        [programs / "trading", *arguments], capture_output=True, text=True, timeout=STOP_TIMEOUT_S
    )
    assert done.returncode == 1
    assert message in done.stderr


def test_asks_mostly_for_small_blocks_and_most_often_for_24_bytes(programs: Path) -> None:
    counts = runpy.run_path(str(FOLDER / "sizes.py"))["measure"](programs, ORDERS)
    assert set(counts) == {"gateway", "sessions", "data"}
    for process, sizes in counts.items():
        assert sizes.most_common(1)[0][0] == 24, process
        assert sum(n for size, n in sizes.items() if size < 64) > 0.7 * sizes.total(), process


def test_the_study_has_the_papers_tables() -> None:
    (experiment,) = load_study(STUDY).experiments
    published = {table.metric: table for table in experiment.published}
    assert set(published) == {"orders_s", "peak_rss_bytes", "fragmentation_events"}
    for table in published.values():
        assert table.columns[1:] == ["1", "2", "3", "4"]
        assert len(table.rows) == 7
        for row in table.rows:
            assert all(re.fullmatch(r"\d+\.\d+ \([A-D]+[a-g]+\)", cell) for cell in row[1:]), row
