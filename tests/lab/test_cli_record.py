"""Recording from the command line: the program is left as it is, and what it did is in a file."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import typer
from conftest import Heapfit, assert_one_line, heapfit_command
from engine_helpers import compiled, wait_for
from heapfit import paths
from heapfit.cli.record import end_as
from heapfit.errors import UsageError
from heapfit.live.client import Refused
from heapfit.record import RecordOptions, examine

pytestmark = pytest.mark.usefixtures("library")

PROGRAM = Path(__file__).with_name("record_program.c")
attaching = importlib.import_module("heapfit.record.attach")
WAIT_S = 600


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("record") / "allocate"
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", PROGRAM, "-o", made], check=True)
    return made


def recorded(run_heapfit: Heapfit, folder: Path, *words: str | Path) -> list[dict[str, object]]:
    """Record to a file in `folder` and return what is said of each file that was written."""
    result = run_heapfit("record", "--json", "-o", folder / "trace.hft", *words)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["exit_code"] == 0
    return list(answer["files"])


def test_what_a_program_does_is_written_down(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    (file,) = recorded(run_heapfit, tmp_path, "--", program, "1000")
    assert file["path"] == str(tmp_path / "trace.hft")
    assert file["whole"] is True
    events = file["events"]
    assert isinstance(events, int)
    assert 2000 <= events < 2200  # the program's, and the few of its start and its end
    assert file["bytes"] == (tmp_path / "trace.hft").stat().st_size


@pytest.mark.parametrize("environment", [{"PYTHONMALLOC": "malloc"}, {}])
def test_whether_python_asks_malloc_for_each_object_is_written_down(
    run_heapfit: Heapfit, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Of 20,000 lists few are blocks unless malloc gives each, and the profile says so."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    assert python
    trace, made = tmp_path / "trace.hft", "kept = [[i] for i in range(20000)]"
    run_heapfit("record", "-o", trace, "--", python, "-c", made, environment=environment)
    shown = run_heapfit("profile", "--json", trace, folder=tmp_path)
    [recording] = json.loads(shown.stdout)["profile"]["recordings"]
    assert recording["environment"] == environment
    assert (recording["allocations"]["objects"] > 20_000) == bool(environment)
    hidden = any("arenas of its own" in each for each in recording["problems"])
    assert hidden != bool(environment)


def test_the_recorder_notes_no_frees_of_its_own(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    """Of each program two frees were recorded that dlsym made when the recorder asked it."""
    run_heapfit("record", "-o", tmp_path / "t.hft", "--", program, "10")
    shown = run_heapfit("profile", "--json", tmp_path / "t.hft", folder=tmp_path)
    assert json.loads(shown.stdout)["profile"]["totals"]["unmatched_frees"] == 0


def test_a_program_that_a_signal_ends_is_seen_to_be_ended_by_it(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    words = ("record", "-o", tmp_path / "t.hft", "--", program, "20000", "kill=15")
    result = run_heapfit(*words)
    assert result.returncode == -signal.SIGTERM
    assert "t.hft has no end" not in result.stderr
    assert examine(tmp_path / "t.hft").whole


def test_children_have_files_of_their_own_when_they_are_wanted(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    script = f"{shlex.quote(str(program))} 300; {shlex.quote(str(program))} 700; true"
    (alone,) = recorded(run_heapfit, tmp_path, "--", "sh", "-c", script)
    assert alone["path"] == str(tmp_path / "trace.hft")
    (tmp_path / "trace.hft").unlink()
    files = recorded(run_heapfit, tmp_path, "--attach-children", "--", "sh", "-c", script)
    assert files[0]["path"] == str(tmp_path / "trace.hft")
    assert all(re.fullmatch(r".*/trace\.hft\.[0-9]+", str(each["path"])) for each in files[1:])
    counts = [each["events"] for each in files[1:]]
    assert any(600 <= int(str(count)) < 800 for count in counts)
    assert any(1400 <= int(str(count)) < 1600 for count in counts)


def test_a_program_runs_under_the_allocator_that_is_named(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    recorded(run_heapfit, tmp_path, "--allocator", "heapfit", "--", program, "100")
    result = run_heapfit("trace", "info", "--json", tmp_path / "trace.hft")
    assert result.returncode == 0, result.stderr
    assert "libheapfit.so" in result.stdout


def test_of_a_workloads_processes_the_one_that_allocated_most_is_kept(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    command = json.dumps(["sh", "-c", f"{program} 10; {program} 1000"])
    text = f'name = "two"\ntitle = "Two"\nquestion = "?"\n[run]\ncommand = {command}\n'
    (tmp_path / "two.toml").write_text(text)
    words = ["record", tmp_path / "two.toml", "-o", tmp_path / "two.hft", "--json"]
    [file] = json.loads(run_heapfit(*words).stdout)["files"]
    assert file["path"] == str(tmp_path / "two.hft")
    assert 2000 <= file["events"] < 2200
    # It was replaced without a word.
    assert_one_line(run_heapfit(*words), 2, ["is there already", "-o"])
    (tmp_path / "two.hft").unlink()
    all_of_it = json.loads(run_heapfit(*words, "--attach-children").stdout)["files"]
    assert len(all_of_it) >= 2
    assert all_of_it[0]["events"] == file["events"]
    assert_one_line(run_heapfit(*words, "--later"), 2, ["--later", "a workload"])


@pytest.mark.full
def test_recording_may_stop_before_the_program_does(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    (file,) = recorded(run_heapfit, tmp_path, "--for", "1s", "--", program, "1000", "sleep=2500")
    assert file["whole"] is True
    assert int(str(file["events"])) < 2000  # the frees come after the sleep


@contextmanager
def running(
    environment: dict[str, str], folder: Path, *words: str | Path
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`heapfit record` in its course, and the number of the program that it has started."""
    command = heapfit_command("record", *words)
    with subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        started = []
        try:
            wait_for(lambda: len(_children(process.pid)) > 1)  # Another waits for signals.
            started = _children(process.pid)[1:]
            yield process, started[0]
        finally:
            for each in started:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            process.kill()


def _children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def test_sigterm_reaches_the_program_and_its_recording_is_whole(
    clean_environment: dict[str, str], program: Path, tmp_path: Path
) -> None:
    words = ("-o", "t.hft", "--", program, "100", "serve")
    with running(clean_environment, tmp_path, *words) as (process, _):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 7, said  # what the program says to SIGTERM
    assert examine(tmp_path / "t.hft").whole


def test_the_recorder_of_a_running_program_is_started_and_stopped(
    run_heapfit: Heapfit, clean_environment: dict[str, str], program: Path, tmp_path: Path
) -> None:
    def ctl(pid: int, word: str) -> dict[str, object]:
        result = run_heapfit("ctl", str(pid), "record", word, "--json")
        assert result.returncode == 0, result.stderr
        return dict(json.loads(result.stdout))

    words = ("--later", "-o", "t.hft", "--", program, "100", "serve")
    with running(clean_environment, tmp_path, *words) as (process, pid):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert ctl(pid, "status")["recording"] is False
        assert not list(tmp_path.glob("t.hft*"))
        of_launcher = run_heapfit("ctl", str(process.pid), "record", "status").stderr
        assert f"does: heapfit ctl {pid} record status" in of_launcher
        first = ctl(pid, "start")
        assert first["recording"] is True
        assert first["file"] == str(tmp_path / "t.hft")
        os.kill(pid, signal.SIGUSR1)  # it allocates
        assert process.stdout.readline() == "served\n"
        stopped = ctl(pid, "stop")
        assert stopped["recording"] is False
        assert examine(tmp_path / "t.hft").whole
        assert examine(tmp_path / "t.hft").events >= 200
        assert ctl(pid, "start")["file"] == str(tmp_path / "t.hft.2")
        said = run_heapfit("ctl", str(pid), "record", "status")
        assert said.stdout.startswith("recording to ")
        process.terminate()
        _, said_at_end = process.communicate(timeout=WAIT_S)
    assert "wrote 2 files" in said_at_end
    assert examine(tmp_path / "t.hft.2").whole


@pytest.mark.full
def test_a_recording_ends_by_itself_after_the_time_that_its_start_names(
    clean_environment: dict[str, str], program: Path, tmp_path: Path
) -> None:
    words = ("--later", "-o", "t.hft", "--", program, "100", "serve")
    with running(clean_environment, tmp_path, *words) as (process, pid):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        recorder = attaching.Recorder(pid)
        assert recorder.start(1).recording
        assert recorder.start(3600).recording  # changes nothing
        wait_for(lambda: not recorder.status().recording)
        assert examine(tmp_path / "t.hft").ended == "the time is over"
        for wrong in ("start x", "start ", "start 1 ", "starts", "start 123456789"):
            with pytest.raises(Refused, match="no such request"):
                recorder._ask(wrong, attaching.RecorderState)
        assert recorder.start().recording
        assert recorder.stop().file == str(tmp_path / "t.hft.2")
        attached = attaching.attach(pid, tmp_path / "unused.hft", RecordOptions(seconds=1))
        attaching.follow(attached, lambda: False, 1)  # for --for, whoever does not wait
        assert examine(attached.file).ended == "the time is over"
        process.terminate()
        process.communicate(timeout=WAIT_S)


def test_a_folder_that_cannot_be_written_to_is_named_as_the_cause(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    """Before the program runs: afterwards its malloc would be blamed."""
    result = run_heapfit("record", "-o", "/proc/t.hft", "--", "touch", tmp_path / "ran")
    assert_one_line(result, 1, ["cannot write to /proc: ", "-o"])
    assert not (tmp_path / "ran").exists()


def test_a_static_program_is_run_and_noticed(run_heapfit: Heapfit, tmp_path: Path) -> None:
    code = '#include <stdio.h>\nint main(void) { puts("ran"); return 0; }\n'
    compiled(tmp_path / "static", code, "-static")
    result = run_heapfit("record", "--", "./static", folder=tmp_path)
    assert result.returncode == 1
    assert result.stdout == "ran\n"
    note, error = result.stderr.splitlines()
    assert note.endswith("linked statically; nothing can be preloaded into it: link it dynamically")
    assert "static wrote no recording: its malloc is built in, because it is linked stat" in error


@pytest.mark.gate
def test_the_file_is_of_the_program_that_a_launcher_became(
    run_heapfit: Heapfit, program: Path, tmp_path: Path
) -> None:
    words = ["record", "-o", "t.hft", "--", "env", "env", program, "1000"]
    done = run_heapfit(*words, folder=tmp_path)
    assert [each.name for each in sorted(tmp_path.glob("t.hft*"))] == [
        "t.hft",
        "t.hft.1",
        "t.hft.2",
    ]
    assert [examine(tmp_path / f"t.hft{each}").ended for each in ("", ".1", ".2")] == [
        "exit", "exec", "exec",
    ]  # fmt: skip
    assert f"t.hft: {program.name} (process " in done.stderr
    assert "and 2 files with " in done.stderr
    assert done.stderr.rstrip().endswith("next: heapfit profile t.hft")
    files = [tmp_path / f"t.hft{each}" for each in ("", ".1", ".2")]
    shown = run_heapfit("profile", *files, "--allocators", "glibc", folder=tmp_path)
    assert "1 process, 3 recordings" in " ".join(shown.stdout.split())
    assert "1 thread, " in shown.stdout


@pytest.mark.gate
def test_processes_that_did_the_work_and_are_not_recorded_are_told_of(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    work = ["sh", "-c", f"{sys.executable} -c '{busy}'; true"]
    said = "of the processor time went to processes that it started"
    done = run_heapfit("record", "-o", "a.hft", "--", *work, folder=tmp_path)
    assert said in done.stderr
    profile = json.loads(run_heapfit("profile", "--json", "a.hft", folder=tmp_path).stdout)
    assert "runs other programs" in profile["profile"]["recordings"][0]["problems"][0]
    assert "look there first" not in json.dumps(profile)  # of a shell's few KiB
    done = run_heapfit("record", "-o", "b.hft", "--attach-children", "--", *work, folder=tmp_path)
    assert said not in done.stderr


@pytest.mark.parametrize(("name", "there"), [("a.%p.hft", "a.$$.hft"), ("a.hft", "a.hft")])
def test_a_file_stays_that_only_has_the_number_of_another_process(
    clean_environment: dict[str, str], program: Path, tmp_path: Path, name: str, there: str
) -> None:
    """In a container the program has the same number each time."""
    settings = f"LD_PRELOAD={paths.library('record')} HEAPFIT_RECORD={name}"
    script = f"echo old > {there}; echo {there}; exec env {settings} {program} 10"
    done = subprocess.run(
        ["sh", "-c", script], cwd=tmp_path, env=clean_environment, stdout=subprocess.PIPE, text=True
    )
    file = tmp_path / done.stdout.splitlines()[0]
    made = sorted(tmp_path.iterdir())
    if name == there:
        assert made == [file]
    else:
        assert made == [file, Path(f"{file}.2")]
        assert file.read_text() == "old\n"
    assert examine(made[-1]).events >= 20


def test_files_of_another_command_in_the_folder_are_not_taken_for_ones_own(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    result = run_heapfit(
        "record", "--json", "--", "sh", "-c", "touch sh.$(($$ + 1)).hft", folder=tmp_path
    )
    assert len(json.loads(result.stdout)["files"]) == 1
    assert len(list(tmp_path.iterdir())) == 2


_COUNTS = """
import signal, sys
awaited = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
print("ready", flush=True)
seen = 0
while signal.sigwait(awaited) == signal.SIGINT:
    seen += 1
    print("got", flush=True)
sys.exit(10 + seen)
"""


@pytest.mark.parametrize("by", ["terminal", "group", "process"])
def test_an_interrupt_reaches_the_program_once(
    clean_environment: dict[str, str], tmp_path: Path, by: str
) -> None:
    """Whoever sends it, and whether to the group or, as some supervisors do, to us alone."""
    command = heapfit_command(
        "record", "-o", tmp_path / "t.hft", "--", sys.executable, "-c", _COUNTS
    )
    ours, theirs = os.openpty()
    with subprocess.Popen(
        command,
        env=clean_environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if by == "terminal" else None,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if by == "terminal":
            os.write(ours, b"\x03")
        elif by == "group":
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "got\n"
        process.terminate()
        assert process.wait(WAIT_S) == 11
    os.close(ours)
    os.close(theirs)


_TWO_KEYS = """
import importlib, os, select, signal, time
run = importlib.import_module("heapfit.record.run")
os.setpgid(0, 0)
signal.alarm(60)
ready, later = select.select, [signal.SIGQUIT]
def then_another(*arguments):
    found = ready(*arguments)
    while found[0] and later:
        os.killpg(0, later.pop())
        time.sleep(0.05)
    return found
select.select = then_another
def tell(number, _):
    print(number, is_groups(number), flush=True)
with run._group_witness() as is_groups:
    for number in run._OF_THE_TERMINAL:
        signal.signal(number, tell)
    os.killpg(0, signal.SIGINT)
    # The witness hears both, and we one.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    os.killpg(0, signal.SIGINT)
    time.sleep(0.1)
    os.killpg(0, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGINT)
"""


def test_two_keys_at_once_and_two_that_arrive_as_one_are_told_apart() -> None:
    """The handler of the second read what the first waited for, which then waited for ever."""
    done = subprocess.run([sys.executable, "-c", _TWO_KEYS], capture_output=True, text=True)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.splitlines() == ["3 True", "2 True", "2 True", "2 False"]


def test_a_first_process_ends_with_a_shells_number_of_the_signal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel keeps from it what it sends to itself."""
    monkeypatch.setattr("os.kill", lambda *_: None)
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    for status, code in ((-signal.SIGTERM, 143), (3, 3)):
        with pytest.raises(typer.Exit) as ended:
            end_as(status)
        assert ended.value.exit_code == code


def test_a_recorder_that_cannot_name_its_file_takes_no_name_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(attaching, "_asked", lambda _: None)
    monkeypatch.setattr(attaching, "_run_attacher", lambda *_: {"still_ms": 1.0, "took_ms": 1.0})
    (folder := tmp_path / "of%p").mkdir()
    (folder / f"a.{os.getpid()}.hft").touch()
    options = RecordOptions(seconds=1)
    for is_ours, name in ((True, "a.%p.hft"), (False, "b.%p.hft"), (False, "a.%p.hft")):
        monkeypatch.setattr(attaching, "_is_in_our_network", lambda _, found=is_ours: found)
        if is_ours or name.startswith("b"):
            attaching.attach(os.getpid(), folder / name, options)
            continue
        with pytest.raises(UsageError, match="is there already"):
            attaching.attach(os.getpid(), folder / name, options)


@pytest.mark.parametrize(("expected", "code"), [(0, 1), (3, 0)])
def test_a_workload_that_fails_is_said_to_and_its_recording_kept(
    run_heapfit: Heapfit, program: Path, tmp_path: Path, expected: int, code: int
) -> None:
    command = json.dumps(["sh", "-c", f"{program} 1000; echo no licence >&2; exit 3"])
    text = f'name = "ends"\ntitle = "Ends"\nquestion = "?"\n[run]\ncommand = {command}\n'
    (tmp_path / "ends.toml").write_text(f"{text}[check]\nexit_code = {expected}\n")
    result = run_heapfit("record", tmp_path / "ends.toml", folder=tmp_path)
    assert result.returncode == code
    assert ("failed: exit code 3, 0 expected (it says: no licence)" in result.stderr) == bool(code)
    assert examine(tmp_path / "ends.hft").events >= 2000


def test_an_allocator_has_its_options_beside_the_recorder(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    show = ("--", "sh", "-c", "echo $HEAPFIT_OPTIONS")
    words = ("record", "-o", tmp_path / "t.hft", "--allocator", "heapfit:decay_ms=5", *show)
    result = run_heapfit(*words, environment={"HEAPFIT_OPTIONS": "verbose:0"})
    assert result.stdout == "verbose:0,decay_ms:5\n"
