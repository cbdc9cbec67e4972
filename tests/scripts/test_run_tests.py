"""`scripts/run-tests` calls no suite good whose preparation failed, and leaves nothing behind."""

from __future__ import annotations

import errno
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "run-tests"


def load() -> ModuleType:
    """The script as a module."""
    loader = SourceFileLoader("run_tests", str(PROGRAM))
    spec = importlib.util.spec_from_loader("run_tests", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_tests"] = module  # its dataclass asks for it
    loader.exec_module(module)
    return module


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, whose results go to a folder of the test's own."""
    module = load()
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


@pytest.mark.parametrize(("preparation", "code"), [("true", "0"), ("false", "1")])
def test_a_suite_fails_with_what_it_needs(
    runner: ModuleType, tmp_path: Path, preparation: str, code: str
) -> None:
    steps = [
        runner.Step("build", [preparation]),
        runner.Step("tests", ["true"], ("build",), suite="tests", tier=runner.EVERYDAY),
    ]
    runner.Run(steps, time.monotonic() + 60).run()
    assert (tmp_path / "tests.exit").read_text().strip() == code


# ---- how a run ends --------------------------------------------------------------------------

PATIENCE_S = 60

# One suite, of a command, in a folder of its own, with END_S as the command line says.
RUN = """
import sys, test_run_tests
from pathlib import Path
command, folder, end_s = sys.argv.pop(), Path(sys.argv.pop()), float(sys.argv.pop())
runner = test_run_tests.load()
runner.RESULTS, runner.LOCK, runner.END_S = folder / "results", folder / "lock", end_s
runner.suites = lambda: [
    runner.Step("tests", ["bash", "-c", command], suite="tests", tier=runner.EVERYDAY)
]
sys.exit(runner.main())
"""

# A process that minds no signal, another in a session of its own; then it says all their numbers.
STUBBORN = """
(trap "" INT TERM; sleep 1000; sleep 1000) & mind=$!
setsid sleep 1000 & apart=$!
echo $$ $mind $apart > "$PIDS.new"; mv "$PIDS.new" "$PIDS"; wait
"""

Start = Callable[..., "subprocess.Popen[str]"]


def as_from_a_shell() -> None:
    """Whatever started the tests, in the background or under nohup, may have ignored these."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Begins a run of one suite, and returns when it has begun; `end_s` as END_S."""

    def begin(end_s: float = 0.2, command: str = STUBBORN) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(end_s), str(tmp_path), command],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).parent),
                "PIDS": str(tmp_path / "pids"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=as_from_a_shell,
        )
        wait_for(lambda: process.poll() is not None or (tmp_path / "pids").exists())
        return process

    return begin


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def those_that_run(folder: Path) -> list[int]:
    """Of the processes that the suite has named, those that go on."""
    return [pid for pid in map(int, (folder / "pids").read_text().split()) if goes_on(pid)]


def goes_on(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_leaves_no_process(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    run = start()
    assert len(those_that_run(tmp_path)) == 3
    run.send_signal(number)
    said, _ = run.communicate(timeout=PATIENCE_S)
    assert those_that_run(tmp_path) == []
    assert "interrupted; not done: tests" in said
    assert said.endswith("0 passed, 1 failed\n")
    assert run.returncode == 1


def test_a_disk_that_is_full_ends_the_run_and_leaves_no_process(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    begun: list[int] = []

    def full(run: Any, name: str) -> None:
        begun.extend(process.pid for _, process, _ in run._going.values())
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(runner.Run, "_ended", full)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest's own stay
    steps = [
        runner.Step(name, ["sleep", seconds], suite=name, tier=runner.EVERYDAY)
        for name, seconds in {"short": "0", "long": "1000"}.items()
    ]
    assert runner.run_all(steps, minutes=1) == 1
    said = capfd.readouterr().out
    assert "cannot go on: [Errno 28] No space left on device" in said
    assert said.endswith("0 passed, 2 failed\n")
    assert len(begun) == 2
    assert not any(map(goes_on, begun))


def test_who_interrupts_again_does_not_wait(start: Start, tmp_path: Path) -> None:
    run = start(end_s=1000)
    assert run.stdout is not None
    run.send_signal(signal.SIGINT)
    assert any("interrupted" in line for line in run.stdout)
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=PATIENCE_S)
    assert those_that_run(tmp_path) == []
    assert said.endswith("0 passed, 1 failed\n")


def test_a_run_whose_terminal_has_gone_leaves_no_process(start: Start, tmp_path: Path) -> None:
    run = start(end_s=1000)
    assert run.stdout is not None
    run.stdout.close()
    run.send_signal(signal.SIGHUP)
    run.wait(PATIENCE_S)
    assert those_that_run(tmp_path) == []


def test_of_a_checkout_there_is_one_run_at_a_time(start: Start, tmp_path: Path) -> None:
    first = start()
    kept = tmp_path / "results" / "kept"
    kept.write_text("by the first")
    second = start(command="true")
    said, _ = second.communicate(timeout=PATIENCE_S)
    assert "another run goes on in this checkout" in said
    assert second.returncode == 1
    assert kept.exists()
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=PATIENCE_S)
    third = start(command="true")
    assert "another run" not in third.communicate(timeout=PATIENCE_S)[0]


def test_a_time_that_is_no_number_is_said_before_anything_is_done(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAPFIT_TEST_MINUTES", "ten")
    with pytest.raises(SystemExit, match="HEAPFIT_TEST_MINUTES is 'ten'"):
        runner.minutes_of(runner.EVERYDAY)
