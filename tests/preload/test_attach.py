"""A process that was not prepared is recorded, and goes on as if nothing had been."""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from heapfit import paths
from heapfit.errors import HeapfitError
from heapfit.host.proc import find
from heapfit.record import Recorder, RecordOptions, attach, examine, follow
from heapfit.record.attach import find_attacher
from subjects import compiled
from trace_file import read_trace

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
# As in programs/attached.c.
PATTERN_SIZE = 12345

WAYS = ("pattern", "churn 4", "churn 0", "forks", "loads", "sleeps", "signals")

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86-64 can be attached to"),
]


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("attached.c", tmp_path_factory.mktemp("attach"), "-g")


PTRACE_SEIZE = 0x4206


@pytest.fixture(scope="module", autouse=True)
def nothing_forbids_it() -> None:
    """Skip where even a child of ours may not be traced, or has a seccomp filter of ours."""
    is_filtered = "Seccomp:\t0" not in Path("/proc/self/status").read_text()
    with subprocess.Popen(["sleep", "60"]) as child:
        may_trace = ctypes.CDLL(None).ptrace(PTRACE_SEIZE, child.pid, None, None) == 0
        child.kill()
    if is_filtered or not may_trace:
        pytest.skip("here nothing may be attached to")


def attacher(
    pid: int, file: Path, options: str = "sites:8", library: Path | None = None
) -> subprocess.CompletedProcess[str]:
    recorder = library or paths.library("record")
    command = [find_attacher(), str(pid), recorder, options, file]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


@dataclass
class Program:
    """A program that runs, and says at its end whether all was right."""

    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        output, _ = self.process.communicate("", timeout=PATIENCE_S)
        assert (self.process.returncode, output.strip()) == (0, "right")


@contextmanager
def running(command: Sequence[object], **more: object) -> Iterator[Program]:
    words = [str(each) for each in command]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, **more) as process:  # type: ignore[call-overload]
        try:
            assert process.stdout.readline().strip() == "ready"
            yield Program(process)
        finally:
            process.kill()


def stop(pid: int) -> None:
    """End the recording, and wait until nothing of the recorder runs in the process."""
    Recorder(pid).stop()
    _wait(lambda: not any(name.startswith("heapfit-") for name in _thread_names(pid)))


def _thread_names(pid: int) -> list[str]:
    found = []
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with suppress(OSError):
            found.append(file.read_text().strip())
    return found


def _wait(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def record_for(pid: int, file: Path, seconds: float, options: str = "sites:8") -> float:
    """Record the process for some time; return for how many milliseconds it stood still."""
    done = attacher(pid, file, options)
    while "at no moment at which it can be attached to" in done.stderr:
        done = attacher(pid, file, options)
    assert (done.returncode, done.stderr) == (0, "")
    time.sleep(seconds)
    stop(pid)
    assert examine(file).whole
    still: float = json.loads(done.stdout)["still_ms"]
    return still


# ------------------------------------------------------------------------------- what is recorded


def test_all_calls_between_two_moments_are_in_the_recording(subject: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.hft"
    with running([subject, "pattern"]) as program:
        assert program.ask("1000") == "done"
        done = attacher(program.pid, file)
        assert done.returncode == 0, done.stderr
        assert program.ask("4321") == "done"
        stop(program.pid)
        assert program.ask("1000") == "done"
        program.end()
    trace = read_trace(file)
    sizes = Counter(event.size for event in trace.events if event.size)
    assert sizes[PATTERN_SIZE] == 4321
    assert trace.info["began_late"] is True
    assert (trace.end["reason"], trace.end["lost"]) == ("stop", 0)


def test_a_second_recording_has_its_own_sample(subject: Path, tmp_path: Path) -> None:
    """By the first one's, the next object would be noted a GiB later, and few have room."""
    with running([subject, "pattern"]) as program:
        for sample, held in (("1g", "h100"), ("16", "h3000")):
            done = attacher(program.pid, tmp_path / sample, f"sample:{sample},sites:0")
            assert done.returncode == 0, done.stderr
            assert program.ask(held) == "done"
            stop(program.pid)
        program.end()
    trace = read_trace(tmp_path / "16")
    sizes = Counter(event.size for event in trace.events if event.size)
    assert (sizes[PATTERN_SIZE], trace.end["lost"]) == (3000, 0)


def test_the_command_records_for_a_time_and_says_how_long_the_process_stood_still(
    subject: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace.hft"
    with running([subject, "churn", "2"]) as program:
        command = [
            sys.executable,
            "-m",
            "heapfit",
            "record",
            "--pid",
            str(program.pid),
            "--for",
            "1s",
        ]
        done = subprocess.run(
            [*command, "--sample", "64k", "--json", "-o", str(file)],
            env=os.environ | {"PYTHONPATH": str(ROOT / "lab")},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told["files"][0]["whole"]
        assert told["files"][0]["events"] > 0
        assert 0 < told["attached"]["still_ms"] < 5000
        assert not any(name.startswith("heapfit-") for name in _thread_names(program.pid))
        program.end()


def test_ctrl_c_ends_the_recording_and_not_the_program(subject: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.hft"
    with running([subject, "churn", "2"]) as program:
        command = [sys.executable, "-m", "heapfit", "record", "--pid", str(program.pid), "-o", file]
        with subprocess.Popen(
            [str(each) for each in command],
            env=os.environ | {"PYTHONPATH": str(ROOT / "lab")},
            stderr=subprocess.PIPE,
            text=True,
        ) as recording:
            assert recording.stderr is not None
            assert "until Ctrl-C" in recording.stderr.readline()
            recording.send_signal(signal.SIGINT)
            assert recording.wait(PATIENCE_S) == 0
        assert examine(file).whole
        program.end()


def test_the_end_of_the_program_ends_the_recording(subject: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.hft"
    with running([subject, "churn", "2"]) as program:
        attached = attach(program.pid, file, RecordOptions())
        program.end()
        follow(attached, lambda: False, 0)
    assert examine(file).whole


def test_a_program_whose_main_thread_has_left_ends_as_ever(subject: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace.hft"
    with running([subject, "leaves"]) as program:
        _wait(lambda: "State:\tZ" in Path(f"/proc/{program.pid}/status").read_text())
        done = attacher(program.pid, file)
        if done.returncode != 0:
            assert "has ended" in done.stderr
        program.end()


# -------------------------------------------------------------------- how the process is afterwards


@pytest.mark.parametrize("way", WAYS)
def test_a_program_goes_on_as_before(subject: Path, tmp_path: Path, way: str) -> None:
    with running([subject, *way.split()]) as program:
        for number in range(3):
            record_for(program.pid, tmp_path / f"{number}.hft", 0.1)
        program.end()


def test_a_program_that_is_just_beginning_or_ending_is_not_disturbed(tmp_path: Path) -> None:
    command = ["/usr/bin/python3", "-c", "print(sum(range(1000)))"]
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL)
    lasts = time.monotonic() - began
    for _ in range(20):
        file = tmp_path / "trace.hft"
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            time.sleep(random.uniform(0, lasts))
            attacher(program.pid, file)
            output, _ = program.communicate(timeout=PATIENCE_S)
        assert (program.returncode, output) == (0, "499500\n")
        file.unlink(missing_ok=True)


def test_nothing_but_the_idle_library_is_left(subject: Path, tmp_path: Path) -> None:
    with running([subject, "pattern"]) as program:
        assert program.ask("10") == "done"
        before, threads = _mappings(program.pid), len(_thread_names(program.pid))
        record_for(program.pid, tmp_path / "trace.hft", 0.1)
        after = _mappings(program.pid)
        assert not {line for line in after - before if not _LOADED.search(line)}
        assert before <= after
        assert len(_thread_names(program.pid)) == threads
        assert _blocked(program.pid) == "0000000000000000"
        program.end()


@contextmanager
def _in_namespaces(*command: object) -> Iterator[tuple[Program, int]]:
    """Run `unshare` with these arguments, which forks; yield it, and the number of its child."""
    if subprocess.run(["unshare", "--pid", "--mount", "--fork", "true"]).returncode != 0:
        pytest.skip("namespaces cannot be made here: unshare")
    with running(["unshare", *command]) as program:
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
        child = int(children.read_text())
        try:
            yield program, child
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("way", ["churn 2", "pattern"])
def test_a_process_with_numbers_of_its_own_goes_on_and_has_its_code_as_before(
    subject: Path, tmp_path: Path, way: str
) -> None:
    with _in_namespaces("--pid", "--mount-proc", "--fork", subject, *way.split()) as (program, pid):
        code = _code(pid)
        for number in range(5):
            record_for(pid, tmp_path / f"{number}.hft", 0.1)
        after = _code(pid)
        assert {line: after[line] for line in code} == code
        program.end()


# The library, and what it needs, which is empty since glibc 2.34.
_LOADED = re.compile(r"/lib(heapfit-record|pthread|dl)\.so")


def _mappings(pid: int) -> set[str]:
    """Return what files are mapped where, and with which permissions."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line for line in lines if line.rpartition(" ")[2].startswith("/")}


def _code(pid: int) -> dict[str, bytes]:
    """Return what is in the process's pages of code, by their mapping."""
    found = {}
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in sorted(_mappings(pid)):
            start, end = (int(each, 16) for each in line.split()[0].split("-"))
            if " r-xp " in line:
                memory.seek(start)
                found[line] = memory.read(end - start)
    return found


def _blocked(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return re.findall(r"^SigBlk:\s*(\w+)", status, re.MULTILINE)[0]


def _kill_in_the_midst(program: Program, folder: Path, times: int) -> None:
    """Attach, and kill who does it after a moment: at first before anything, later afterwards."""
    command = [find_attacher(), str(program.pid), paths.library("record"), ""]
    for number in range(times):
        file = folder / f"{number}.hft"
        with subprocess.Popen(
            [*command, file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as attacher:
            time.sleep(random.uniform(0.0005, 0.012))
            attacher.kill()
        assert find(program.pid) is not None
        with suppress(HeapfitError):
            Recorder(program.pid).stop()
        file.unlink(missing_ok=True)


# Not one that sleeps in epoll_wait: an attacher that is killed while it has stopped it has
# interrupted that call, as SIGSTOP and SIGCONT do (docs/reference.md).
@pytest.mark.parametrize("way", ["churn 4", "signals"])
def test_a_killed_attacher_leaves_the_program_running(
    subject: Path, tmp_path: Path, way: str
) -> None:
    with running([subject, *way.split()]) as program:
        _kill_in_the_midst(program, tmp_path, 20)
        program.end()


# ---------------------------------------------------------------------------------------- refusals


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "static.c"
    source.write_text("#include <unistd.h>\nint main(void) { pause(); return 0; }\n")
    with _sleeping([compiled(source, tmp_path, "-static")]) as pid:
        assert "has no glibc loaded: a static program" in attacher(pid, tmp_path / "none").stderr


def test_a_stopped_process_is_refused_and_stays_so(subject: Path, tmp_path: Path) -> None:
    with running([subject, "churn", "1"]) as program:
        os.kill(program.pid, signal.SIGSTOP)
        _wait(lambda: " T " in Path(f"/proc/{program.pid}/stat").read_text())
        assert "is stopped" in attacher(program.pid, tmp_path / "none").stderr
        assert " T " in Path(f"/proc/{program.pid}/stat").read_text()
        os.kill(program.pid, signal.SIGCONT)
        program.end()


def test_a_process_with_a_seccomp_filter_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "filtered.c"
    source.write_text(
        "#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stdio.h>\n"
        "#include <sys/prctl.h>\n#include <unistd.h>\n"
        "int main(void)\n{\n"
        "    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);\n"
        "    struct sock_fprog filter = {1, &all};\n"
        "    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);\n"
        "    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) return 1;\n"
        "    pause();\n    return 0;\n}\n"
    )
    with _sleeping([compiled(source, tmp_path)]) as pid:
        _wait(lambda: "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text())
        assert "has a seccomp filter" in attacher(pid, tmp_path / "none").stderr


def test_a_folder_that_the_process_does_not_see_is_refused(subject: Path, tmp_path: Path) -> None:
    folder, link = tmp_path / "its", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', folder]
    if subprocess.run([*command, "true"]).returncode != 0:
        pytest.skip("nothing can be mounted here: unshare")
    with running([*command, subject, "pattern"]) as program:
        for each in (folder, link):
            done = attacher(program.pid, each / "trace.hft")
            assert f"has another folder at {folder}, or none: " in done.stderr
        record_for(program.pid, tmp_path / "trace.hft", 0.1)
        program.end()


def test_another_users_process_is_refused() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as folder, _sleeping(["sleep", "60"]) as pid:
        attacher = Path(folder) / "heapfit-attach"
        shutil.copy(find_attacher(), attacher)
        Path(folder).chmod(0o755)
        recorder = paths.library("record")
        done = subprocess.run(
            [attacher, str(pid), recorder, "", Path(folder) / "none"],
            capture_output=True,
            text=True,
            user=65534,
            group=65534,
        )
        assert f"may not trace process {pid}" in done.stderr


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("as", "more of memory: Cannot allocate memory"),
        ("nproc", "start another thread: Resource temporarily unavailable"),
    ],
)
def test_a_process_at_its_limits_is_refused_and_stays_as_it_was(
    subject: Path, limit: str, reason: str
) -> None:
    # Root's threads are not limited; and pytest's own folders are closed to others.
    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{limit.upper()}"))
    before = "unlimited" if soft == resource.RLIM_INFINITY else soft
    user = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        with running([shutil.copy(subject, folder), "signals"], **user) as program:
            pid = program.pid
            time.sleep(0.3)  # until it is in the midst
            size, code = _size(pid), _code(pid)
            change = ["prlimit", f"--pid={pid}"]
            subprocess.run([*change, f"--{limit}=1:"], check=True, **user)
            for _ in range(2):
                assert reason in attacher(pid, Path(folder) / "none").stderr
                assert (_size(pid), _code(pid)) == (size, code)
            subprocess.run([*change, f"--{limit}={before}:"], check=True, **user)
            record_for(pid, Path(folder) / "trace.hft", 0.1)
            program.end()


def _size(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return re.findall(r"^VmSize:\s*(\d+ kB)", status, re.MULTILINE)[0]


def test_a_process_that_is_being_recorded_is_refused(subject: Path, tmp_path: Path) -> None:
    with running([subject, "churn", "1"]) as program:
        assert attacher(program.pid, tmp_path / "first.hft").returncode == 0
        with pytest.raises(HeapfitError, match=r"is being recorded already, to .*first\.hft"):
            attach(program.pid, tmp_path / "second.hft", RecordOptions())
        assert "a recording of it is being made" in attacher(program.pid, tmp_path / "2.hft").stderr
        stop(program.pid)
        program.end()


def test_a_process_that_has_the_recorder_is_asked_to_record(subject: Path, tmp_path: Path) -> None:
    file = tmp_path / "its.hft"
    prepared = {
        "LD_PRELOAD": str(paths.library("record")),
        "HEAPFIT_RECORD": str(file),
        "HEAPFIT_RECORD_OPTIONS": "start:later",
    }
    with running([subject, "churn", "1"], env=os.environ | prepared) as program:
        attached = attach(program.pid, tmp_path / "ours.hft", RecordOptions())
        assert (attached.file, attached.still_ms) == (file, None)
        time.sleep(0.1)
        follow(attached, lambda: True, 0)
        program.end()
    assert examine(file).events > 0


@contextmanager
def _sleeping(command: Sequence[object]) -> Iterator[int]:
    with subprocess.Popen([str(each) for each in command]) as process:
        try:
            time.sleep(0.2)
            yield process.pid
        finally:
            process.kill()


# ---------------------------------------------------------------------- a process that stands still


@contextmanager
def _standing_still(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stop a program that is being recorded; whoever asks it waits only briefly."""
    module = sys.modules[attach.__module__]
    monkeypatch.setattr(module, "Recorder", partial(Recorder, timeout_s=0.3))
    os.kill(program.pid, signal.SIGSTOP)
    _wait(lambda: " T " in Path(f"/proc/{program.pid}/stat").read_text())
    try:
        yield
    finally:
        os.kill(program.pid, signal.SIGCONT)


def test_a_process_that_does_not_answer_is_recorded_until_it_answers_again(
    subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace.hft"
    said: list[str] = []
    looks = 0

    def told() -> bool:
        nonlocal looks
        looks += 1
        if looks == 4:
            os.kill(program.pid, signal.SIGCONT)
        return looks == 6

    with running([subject, "churn", "1"]) as program:
        attached = attach(program.pid, file, RecordOptions())
        with _standing_still(program, monkeypatch):
            follow(attached, told, 0, said.append)
        program.end()
    [line] = said
    assert line.endswith(
        f"is stopped; have it go on: kill -CONT {program.pid}; it is still being recorded"
    )
    assert examine(file).whole


def test_a_process_that_cannot_be_told_to_stop_is_said_to_be_recorded_still(
    subject: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "trace.hft"
    with running([subject, "churn", "1"]) as program:
        attached = attach(program.pid, file, RecordOptions())
        with (
            _standing_still(program, monkeypatch),
            pytest.raises(HeapfitError, match=f"goes on; .* heapfit ctl {program.pid} record stop"),
        ):
            follow(attached, lambda: True, 0)
        assert not examine(file).whole
        stop(program.pid)
        assert examine(file).whole
        program.end()
