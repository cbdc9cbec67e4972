"""`heapfit ctl`, `top` and `export` on a real process under heapfit, and their errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import Heapfit, assert_fits_everywhere, assert_one_line, heapfit_command
from engine_helpers import wait_for
from heapfit.live import listening
from heapfit.live.client import LEDGER_TIMEOUT_S
from live_double import Double

HERE = Path(__file__).resolve().parent
DEADLINE_S = 600
MIB = 1 << 20

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with something in every figure."""
    made = tmp_path_factory.mktemp("live") / "live-program"
    source = HERE / "live_program.c"
    flags = ["-std=c17", "-D_DEFAULT_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["cc", *flags, "-o", made, source], check=True)
    return made


@pytest.fixture
def start(program: Path, clean_environment: dict[str, str]) -> Iterator[Start]:
    """Starts the program by `heapfit run` with the words given; all are ended after the test."""
    running: list[subprocess.Popen[str]] = []

    def started(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            heapfit_command("run", *words, "--", program),
            env=clean_environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield started
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def pid(start: Start) -> str:
    """The number of a process that can be steered, and keeps what it frees."""
    return listening_pid(start("--control", "--set", "decay_ms=unlimited"))


def listening_pid(process: subprocess.Popen[str]) -> str:
    wait_for(lambda: process.pid in [each.pid for each in listening()])
    return str(process.pid)


def as_json(result: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert result.returncode == 0, result.stderr
    answer: dict[str, object] = json.loads(result.stdout)
    return answer


def test_the_statistics_of_a_process_are_read_from_outside(
    run_heapfit: Heapfit, pid: str, program: Path
) -> None:
    found = json.loads(run_heapfit("ctl", pid, "stats", "--json").stdout)
    assert "size classes, heaps and nodes" in run_heapfit("ctl", pid).stdout
    assert "refills" in run_heapfit("ctl", pid, "stats", "--all").stdout
    total = found["stats"]["total"]
    assert found["command"] == [str(program)]
    assert found["stats"]["pid"] == int(pid)
    assert 20_000 * 100 < total["live_bytes"] < 20_000 * 100 * 2
    assert total["dirty_bytes"] + total["cached_bytes"] > 16 * MIB
    assert total["footprint"] >= total["live_bytes"]
    assert found["memory"]["resident"] > total["live_bytes"]
    assert any(each["live_objects"] > 15_000 for each in found["stats"]["classes"])
    assert {each["thread"] for each in found["stats"]["heaps"]} > {0, int(pid)}


def test_an_option_is_set_from_outside(run_heapfit: Heapfit, pid: str) -> None:
    both = run_heapfit("ctl", pid, "set", "decay_ms=100", "free_page_threshold=1m")
    assert both.stdout == "decay_ms = 100\nfree_page_threshold = 1048576\n"
    assert run_heapfit("ctl", pid, "get", "decay_ms").stdout == "100\n"
    options = json.loads(run_heapfit("ctl", pid, "options", "--json").stdout)
    values = {option["name"]: option["value"] for option in options}
    assert (values["decay_ms"], values["control"]) == ("100", "on")


@pytest.mark.full
def test_shrinking_gives_memory_back_and_restoring_keeps_it_again(
    run_heapfit: Heapfit, pid: str
) -> None:
    resident = resident_of(pid)
    told = as_json(run_heapfit("ctl", pid, "shrink", "--json"))
    assert isinstance(told["given_back"], int)
    assert told["given_back"] > 16 * MIB
    assert resident_of(pid) < resident - 16 * MIB
    assert told["resident"] < told["resident_before"] - 16 * MIB
    assert json.loads(run_heapfit("ctl", pid, "--json").stdout)["stats"]["shrunk"] is True
    assert run_heapfit("ctl", pid, "restore").stdout == "the options are active again\n"
    assert json.loads(run_heapfit("ctl", pid, "--json").stdout)["stats"]["shrunk"] is False


def resident_of(pid: str) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_the_library_says_what_is_wrong_with_a_setting(run_heapfit: Heapfit, pid: str) -> None:
    unknown = run_heapfit("ctl", pid, "set", "decay_ms=7", "decay_sm=1")
    assert_one_line(unknown, 2, ["'decay_sm'", "'decay_ms'", "(decay_ms set before)"])
    assert run_heapfit("ctl", pid, "get", "decay_ms").stdout == "7\n"
    assert_one_line(run_heapfit("ctl", pid, "set", "decay_ms=soon"), 2, ["soon"])
    assert_one_line(run_heapfit("ctl", pid, "set", "huge_pages=never"), 2, ["huge_pages"])
    assert_one_line(run_heapfit("ctl", pid, "set", "decay_ms=1 000"), 2, ["is not one word"])


def test_a_process_without_control_is_told_the_line_to_start_with(
    run_heapfit: Heapfit, start: Start, program: Path
) -> None:
    process = start("--set", "decay_ms=100")
    line = f"heapfit run --control --set decay_ms=100 -- {program}"
    assert_one_line(run_heapfit("ctl", str(process.pid)), 1, ["without control:on", line])
    said = ["there is no process 4194304", "heapfit top"]
    assert_one_line(run_heapfit("ctl", "4194304"), 2, said)


@pytest.mark.parametrize(
    "words",
    [
        ["ctl", "PID"],
        ["ctl", "PID", "stats", "--all"],
        ["ctl", "PID", "options"],
        ["ctl", "PID", "ledger"],
        ["export", "--json", "--ledger", "PID"],
        ["ctl", "PID", "get", "decay_ms"],
        ["ctl", "PID", "set", "decay_ms=100"],
        ["ctl", "PID", "trim"],
        ["top", "PID", "--once", "--interval", "0.1"],
        ["top", "--once", "--interval", "0.1"],
        ["export", "--prometheus", "--once", "PID"],
    ],
    ids=" ".join,
)
def test_every_answer_fits_a_narrow_terminal_a_pipe_and_a_program(
    run_heapfit: Heapfit, pid: str, words: list[str]
) -> None:
    """But for what a scraper reads: that is no terminal's affair."""
    asked = [pid if word == "PID" else word for word in words]
    headline = f"{pid} "

    def is_whole(line: str) -> bool:
        return words[0] == "export" or line.startswith(headline)

    assert_fits_everywhere(run_heapfit, asked, is_whole=is_whole)


def test_ctl_without_a_process_shows_the_choice(run_heapfit: Heapfit, start: Start) -> None:
    pids = [listening_pid(start("--control")) for _ in range(2)]
    asked = run_heapfit("ctl", "ledger")
    assert asked.returncode == 2
    assert asked.stderr.splitlines() == ["heapfit: name one of these processes: heapfit ctl PID"]
    assert all(each in asked.stdout for each in pids)


def test_a_process_that_is_named_twice_is_exported_once(run_heapfit: Heapfit, start: Start) -> None:
    first, second = (listening_pid(start("--control")) for _ in range(2))
    found = json.loads(run_heapfit("export", "--json", first, second, first).stdout)
    assert [str(each["pid"]) for each in found] == [first, second]


@contextmanager
def exported(
    environment: dict[str, str], *words: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A `heapfit export --prometheus` at a port of its own, and its address."""
    command = heapfit_command("export", "--prometheus", "--port", "0", *words)
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "http://127.0.0.1:" in said, said
        try:
            yield said.split()[1].rstrip(";"), process
        finally:
            process.kill()


def scrape(address: str) -> str:
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    request = urllib.request.Request(address, headers=accept)
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
        assert "openmetrics" in answer.headers["Content-Type"]
        return str(answer.read().decode())


def test_processes_come_and_go_while_they_are_exported(
    clean_environment: dict[str, str], start: Start
) -> None:
    with exported(clean_environment) as (address, _):
        first, second = start("--control"), start("--control")
        pids = [listening_pid(first), listening_pid(second)]
        text = scrape(address)
        assert all(f'pid="{pid}"' in text for pid in pids)
        first.communicate("")
        text = scrape(address)
    assert f'pid="{pids[0]}"' not in text
    assert f'pid="{pids[1]}"' in text


def test_an_export_ends_at_once_although_a_process_is_being_asked(
    clean_environment: dict[str, str], double: Double
) -> None:
    """Up to a minute, after which whoever ends a container has lost patience."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def behave(request: str) -> bytes:
        if request == "ledger":
            is_asked.set()
            may_answer.wait()
        return double.answer(request)

    double.behave = behave
    with exported(clean_environment, "--ledger", str(os.getpid())) as (address, process):
        at = urlsplit(address)
        with socket.create_connection((at.hostname, at.port)) as scraper:
            scraper.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert is_asked.wait(DEADLINE_S)
            process.terminate()
            try:
                assert process.wait(LEDGER_TIMEOUT_S / 2) == 0
            finally:
                may_answer.set()


@pytest.mark.parametrize("command", ["export", "top"])
def test_of_all_that_can_be_watched_one_that_fails_stops_no_other(
    run_heapfit: Heapfit, start: Start, command: str
) -> None:
    start("--control")
    with Double() as double:
        found = json.loads(run_heapfit(command, "--json").stdout)
        assert os.getpid() in [each["pid"] for each in found]
        double.behave = lambda _: b"garbage\n"
        result = run_heapfit(command, "--json")
    assert os.getpid() not in [each["pid"] for each in json.loads(result.stdout)]
    assert f"process {os.getpid()}" in result.stderr
