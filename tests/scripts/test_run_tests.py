"""`scripts/run-tests` calls no suite good whose preparation failed, and leaves nothing behind."""

from __future__ import annotations

import errno
import importlib.util
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
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


def test_a_program_that_is_missing_fails_its_own_step_alone(
    runner: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [
        runner.Step("build", ["no-such-program"]),
        runner.Step("tests", ["true"], ("build",), suite="tests", tier=runner.EVERYDAY),
        runner.Step("others", ["true"], suite="others", tier=runner.EVERYDAY),
        runner.Step("last", ["no-such-program"], suite="last", tier=runner.EVERYDAY),
    ]
    runner.Run(steps, time.monotonic() + 60).run()
    codes = {path.stem: path.read_text().strip() for path in tmp_path.glob("*.exit")}
    assert codes == {"tests": "1", "others": "0", "last": "127"}
    assert "no-such-program" in capsys.readouterr().out


@pytest.mark.parametrize(
    "variable",
    [
        *("CTEST_PARALLEL_LEVEL", "GTEST_FILTER", "GTEST_TOTAL_SHARDS", "PYTEST_ADDOPTS"),
        *("HEAPFIT_LIBRARY", "HEAPFIT_OPTIONS", "HEAPFIT_RECORD", "HEAPFIT_TEST_SECONDS"),
        *("LD_PRELOAD", "GLIBC_TUNABLES", "ASAN_OPTIONS", "PYTHONOPTIMIZE", "SUITES"),
    ],
)
def test_what_would_change_what_is_tested_is_not_passed_on(
    runner: ModuleType, variable: str
) -> None:
    assert runner.inherited({variable: "1", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_where_things_lie_and_what_is_repeated_is_passed_on(runner: ModuleType) -> None:
    kept = dict.fromkeys(("HOME", "HEAPFIT_TEST_HOME", "HEAPFIT_TEST_SEED", "PYTHON"), "1")
    assert runner.inherited(kept) == kept


# ---- how a run ends --------------------------------------------------------------------------

PATIENCE_S = 60

# A suite for each command, in a folder of its own, with END_S as the command line says.
RUN = """
import sys, test_run_tests
from pathlib import Path
_, end_s, folder, *commands = sys.argv
sys.argv[1:] = []
runner, folder = test_run_tests.load(), Path(folder)
runner.RESULTS, runner.LOCK, runner.END_S = folder / "results", folder / "lock", float(end_s)
runner.suites = lambda: [
    runner.Step(name, ["bash", "-c", command], suite=name, tier=runner.EVERYDAY)
    for name, command in zip(("tests", "others"), commands)
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
    for number in signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT:
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
                "RESULTS": str(tmp_path / "results"),
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
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


def test_a_mistake_of_the_program_itself_leaves_no_process(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def mistaken(run: Any, name: str) -> None:
        begun.extend(process.pid for _, process, _ in run._going.values())
        raise ValueError(name)

    monkeypatch.setattr(runner.Run, "_ended", mistaken)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # pytest's own stay
    steps = [
        runner.Step(name, ["sleep", seconds], suite=name, tier=runner.EVERYDAY)
        for name, seconds in {"short": "0", "long": "1000"}.items()
    ]
    with pytest.raises(ValueError, match="short"):
        runner.run_all(steps, minutes=1)
    assert len(begun) == 2
    assert not any(map(goes_on, begun))


def test_a_log_that_the_locale_cannot_print_is_shown_as_far_as_it_can(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    failed = '<testsuite><testcase name="a"><failure>grün</failure></testcase></testsuite>'
    run = start(command=f"echo '{failed}' > $RESULTS/tests.xml; exit 1")
    said, _ = run.communicate(timeout=PATIENCE_S)
    assert "failed: tests: a\n    gr\\xfcn\n" in said
    assert said.endswith("0 passed, 1 failed\n")


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


@pytest.mark.parametrize("variable", ["HEAPFIT_TEST_MINUTES", "HEAPFIT_TEST_END"])
def test_a_time_that_is_no_number_is_said_before_anything_is_done(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "ten")
    with pytest.raises(SystemExit, match=f"{variable} is 'ten'"):
        runner.minutes_of(runner.EVERYDAY)


def test_the_end_of_several_runs_is_that_of_each(
    runner: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEAPFIT_TEST_END", str(time.time() + 5400))
    assert runner.minutes_of(runner.EVERYDAY) == runner.LIMIT_MINUTES[runner.EVERYDAY]
    assert 80 < runner.minutes_of(runner.ALL) <= 90
    monkeypatch.setenv("HEAPFIT_TEST_END", str(time.time() - 3600))
    assert runner.minutes_of(runner.EVERYDAY) == 0


# ---- continuous integration ------------------------------------------------------------------

# Far more than what ends here by itself needs on a busy machine; the test takes as long.
TOTAL_S = 20
# Results as pytest leaves them.
LEAVES_RESULTS = (
    """echo '<testsuite><testcase name="a"/></testsuite>' > {folder}/results/tests.xml"""
)


@pytest.fixture
def integration(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Begins .ci/run in a checkout whose Makefile has the commands of the suites of `make test`
    and `make test-rest`, and that of `make lint`."""

    def begin(test: Sequence[str], rest: Sequence[str], lint: str) -> subprocess.Popen[str]:
        copy = tmp_path / ".ci" / "run"
        copy.parent.mkdir()
        shutil.copy(PROGRAM.parents[1] / ".ci" / "run", copy)
        (tmp_path / "run.py").write_text(RUN)
        run = [sys.executable, str(tmp_path / "run.py"), "0.2", str(tmp_path)]
        lines = {"test": shlex.join([*run, *test]), "test-rest": shlex.join([*run, *rest])}
        rules = [f"{name}:\n\t@{line}\n" for name, line in {**lines, "lint": lint}.items()]
        makefile = "".join(rules).replace("$", "$$")  # which is make's own
        (tmp_path / "Makefile").write_text(makefile)
        return subprocess.Popen(
            [copy, str(TOTAL_S)],
            env={**without_a_run(os.environ), "PYTHONPATH": str(Path(__file__).parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=as_from_a_shell,
        )

    return begin


def without_a_run(environment: Mapping[str, str]) -> dict[str, str]:
    """Return it as a shell's that no `make test` has begun, whose suites and time are its own."""
    return {
        name: value
        for name, value in environment.items()
        if name != "SUITES" and not name.startswith(("MAKE", "MFLAGS", "HEAPFIT_TEST_"))
    }


def sleeper(folder: Path) -> str:
    """A command that says its number and does not end."""
    return f"echo $$ >> {folder}/pids; exec sleep 1000"


def test_continuous_integration_fails_by_a_test_and_by_form_that_did_not_end_in_their_time(
    integration: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    leaves = LEAVES_RESULTS.format(folder=tmp_path)
    begun = time.monotonic()
    run = integration(
        [f"{leaves}; {sleeper(tmp_path)}", sleeper(tmp_path)], ["true"], sleeper(tmp_path)
    )
    said, _ = run.communicate(timeout=TOTAL_S + PATIENCE_S)
    assert time.monotonic() - begun >= TOTAL_S / 2  # what ended it is the time
    assert "the time for the whole run is up; not done: tests, others" in said
    assert "tests      1 passed, 1 failed (was ended before it was done)" in said
    assert "others     0 passed, 1 failed (left no results)" in said
    assert ".ci/run: make lint was ended: the time for all of it is up\n" in said
    assert said.endswith(".ci/run: no time is left for make test-rest\n")
    assert run.returncode == 1
    assert len((tmp_path / "pids").read_text().split()) == 3
    assert those_that_run(tmp_path) == []


def test_continuous_integration_names_what_of_the_full_run_had_no_time(
    integration: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    leaves = LEAVES_RESULTS.format(folder=tmp_path)
    run = integration([leaves], [leaves, sleeper(tmp_path)], "true")
    said, _ = run.communicate(timeout=TOTAL_S + PATIENCE_S)
    assert "the time for the whole run is up; not done: others" in said
    assert "others     left: there was no time for it\n" in said
    assert said.endswith("1 passed, 0 failed\n")
    assert run.returncode == 0
    assert those_that_run(tmp_path) == []


def test_what_a_failed_preparation_leaves_undone_is_no_matter_of_time(
    runner: ModuleType, tmp_path: Path
) -> None:
    steps = [
        runner.Step("build", ["false"]),
        runner.Step("tests", ["sleep", "1000"], ("build",), suite="tests", tier=runner.REST),
        runner.Step("others", ["sleep", "1000"], suite="others", tier=runner.REST),
    ]
    runner.Run(steps, time.monotonic() + 1, as_time_allows=True).run()
    assert [path.name for path in tmp_path.glob("*.left")] == ["others.left"]


def test_continuous_integration_that_is_ended_leaves_no_process(
    integration: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    run = integration([sleeper(tmp_path)], [], "true")
    wait_for(lambda: run.poll() is not None or (tmp_path / "pids").exists())
    run.terminate()
    said, _ = run.communicate(timeout=PATIENCE_S)
    assert "interrupted; not done: tests" in said
    assert run.returncode == 1
    assert those_that_run(tmp_path) == []
