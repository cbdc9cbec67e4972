"""The recorder leaves a program alone, and its file can be read, whatever the program does."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from heapfit import paths
from heapfit.symbols import build_id
from heapfit.trace.native import FREE, INNERMOST, MALLOC, REALLOC
from heapfit.trace.sites import parse_mappings
from subjects import compiled
from trace_file import Trace, read_trace

pytestmark = pytest.mark.full

# As in programs/record_subject.c.
SIZE, BLOCKS, CODE = 1000003, 100, 7

IS_ROOT = os.geteuid() == 0
PATIENCE_S = 500
FORKS = 8


@pytest.fixture(scope="session")
def recorder() -> Path:
    named = os.environ.get("HEAPFIT_RECORD_LIBRARY")
    return Path(named).absolute() if named else paths.library("record")


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("record_subject.c", tmp_path_factory.mktemp("record"))


@dataclass(frozen=True)
class Recording:
    """Runs the subject, with and without the recorder."""

    recorder: Path
    subject: Path
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "trace.hft"

    def environment(self, options: str) -> dict[str, str]:
        mine = {"LD_PRELOAD": str(self.recorder), "HEAPFIT_RECORD": str(self.file)}
        return os.environ | mine | {"HEAPFIT_RECORD_OPTIONS": options}

    def run(
        self, *way: object, options: str = "", prepare: Callable[[], None] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs it, and expects it to be as without the recorder, but for messages on stderr."""
        words = [self.subject, *map(str, way)]
        plain = _run(words, dict(os.environ), prepare)
        recorded = _run(words, self.environment(options), prepare)
        assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
        return recorded

    @contextmanager
    def running(self, *way: object, options: str = "") -> Iterator[subprocess.Popen[str]]:
        words = [str(self.subject), *map(str, way)]
        process = subprocess.Popen(
            words,
            env=self.environment(options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def built(self, name: str, source: str, *words: object) -> Path:
        """A program or library of the folder, from C."""
        program = self.folder / name
        command = ["gcc", "-O1", "-fno-builtin", "-o", program, "-x", "c", "-", *words]
        subprocess.run(command, input=source, text=True, check=True)
        return program

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("trace*"))

    def trace(self, suffix: str = "") -> Trace:
        return read_trace(Path(f"{self.file}{suffix}"))

    def whole(self, suffix: str = "") -> Trace:
        trace = self.trace(suffix)
        assert not trace.is_damaged()
        assert trace.end
        assert trace.end["events"] == len(trace.events)
        assert trace.end["lost"] == 0
        return trace


def _run(
    words: list[Any], environment: dict[str, str], prepare: Callable[[], None] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        preexec_fn=prepare,
    )


@pytest.fixture
def recording(recorder: Path, subject: Path, tmp_path: Path) -> Recording:
    return Recording(recorder, subject, tmp_path)


def batches(trace: Trace) -> dict[int, int]:
    """How often the subject's own sizes were allocated, by batch."""
    return dict(Counter(size - SIZE for size in trace.sizes() if SIZE <= size < SIZE + 100000))


def freed_after_birth(trace: Trace) -> bool:
    """Whether each of the subject's blocks is freed once, by its thread, after it was allocated."""
    live: set[int] = set()
    for event in trace.events:
        if SIZE <= event.size < SIZE + 100000:
            assert event.address not in live
            live.add(event.address)
        elif event.kind == FREE:
            live.discard(event.address)
    return not live


def await_true(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "nothing happened for long"
        time.sleep(0.01)


def ask(process: subprocess.Popen[str] | int, request: str) -> dict[str, Any]:
    number = process if isinstance(process, int) else process.pid
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_S)
        connection.connect(f"\0heapfit-record/{number}")
        connection.sendall(f"{request}\n".encode())
        with connection.makefile() as answers:
            answer: dict[str, Any] = json.loads(answers.readline())
    return answer


# ---- the whole of it -----------------------------------------------------------------------------


@pytest.mark.gate
def test_a_recording_holds_what_the_program_did(recording: Recording) -> None:
    result = recording.run("return")
    assert result.stderr == ""
    trace = recording.whole()
    assert recording.files() == ["trace.hft"]
    assert batches(trace) == {1: BLOCKS}
    assert freed_after_birth(trace)
    assert trace.end["reason"] == "exit"
    assert recording.file.stat().st_mode & 0o777 == 0o600


def test_the_first_block_describes_the_process(recording: Recording) -> None:
    recording.run("return")
    info = recording.whole().info
    assert info["program"] == str(recording.subject)
    assert info["arguments"] == [str(recording.subject), "return"]
    assert Path(info["allocator"]).name.startswith("libc.so")
    assert info["parent"] == os.getpid()
    began_s = info["process_began"] / os.sysconf("SC_CLK_TCK")
    assert 0 <= time.clock_gettime(time.CLOCK_BOOTTIME) - began_s < 600
    assert info["page_size"] == resource.getpagesize()
    assert (info["format"], info["sample"], info["sites"], info["file_number"]) == (2, 0, 0, 1)
    assert info["began_late"] is False
    assert abs(info["started_unix_ns"] - time.time_ns()) < 600 * 10**9
    assert info["ticks_per_second_guess"] > 0


def test_modules_have_the_build_ids_of_what_was_mapped(recording: Recording) -> None:
    recording.run("return")
    noted = {each.path: each.build_id for each in parse_mappings(recording.whole().modules)}
    files = [Path(path) for path in noted if Path(path).is_file()]
    assert {str(file): build_id(file) for file in files}.items() <= noted.items()
    assert noted[str(recording.subject)]


@pytest.mark.gate
def test_a_realloc_is_one_event_with_its_site(recording: Recording) -> None:
    recording.run("reallocs", options="sites:2")
    trace = recording.whole()
    (event,) = (event for event in trace.events if event.size == SIZE + 51)
    (birth,) = (event for event in trace.events if event.size == SIZE + 50)
    assert (event.kind, event.old) == (REALLOC, birth.address)
    assert event.usable >= event.size
    assert trace.sites[event.site] != trace.sites[birth.site] != (0, 0)
    (failed,) = (event for event in trace.events if event.kind == REALLOC and not event.address)
    assert failed.old == event.address
    assert [free.address for free in trace.events if free.kind == FREE].count(event.address) == 1


def test_sites_have_a_limit_which_the_file_tells(recording: Recording) -> None:
    recording.run("winding", 25000, options="sites:64")
    trace = recording.whole()
    assert trace.problems.sites_limit == INNERMOST
    assert len(trace.sites) <= 1 << 20
    ours = [trace.sites[event.site] for event in trace.events if event.size == SIZE]
    assert len(ours) == 25000
    assert ours[0][0] != 0, "it has callers"
    assert ours[-1] == (0, ours[0][1]), "the same call, without them"


@pytest.mark.gate
def test_each_form_of_allocating_and_freeing_is_noted_once(
    recording: Recording, tmp_path: Path
) -> None:
    """Also where a new-handler throws; and what fails is noted where that is returned."""
    flags = ["-std=c++17", "-fno-builtin", "-w", "-O0"]
    program = compiled("record_forms.cpp", tmp_path, *flags)
    result = _run([program], recording.environment(""))
    assert (result.returncode, result.stderr) == (0, "")
    trace = recording.whole()
    for line in result.stdout.splitlines():
        born, freed, alignment, size = map(int, line.split()[:4])
        address = int(line.split()[4], 16)
        at, birth = next((i, event) for i, event in enumerate(trace.events) if event.size == size)
        assert (birth.kind, birth.address) == (born, address), line
        assert address % (alignment or 1) == 0
        end = next(event for event in trace.events[at + 1 :] if event.address == address)
        assert end.kind == freed, line
    sizes = Counter(trace.sizes())
    assert sizes[1_000_001] == sizes[1_000_024] == 1
    failed = [event for event in trace.events if event.size == 1 << 63]
    # Of 24 forms, eight operators throw.
    assert (len(failed), {event.address for event in failed}) == (16, {0})


def test_the_documented_example_of_a_file_is_read_as_it_is_explained(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/trace-format.md").read_text()
    _, _, block = page.partition("```hex\n")
    lines = block.partition("```")[0].splitlines()
    file = tmp_path / "example.hft"
    file.write_bytes(bytes.fromhex("".join(line.partition("#")[0] for line in lines)))
    trace = read_trace(file)
    assert not trace.is_damaged()
    assert trace.info == {"pid": 7, "ticks_per_second_guess": 1000000000}
    assert trace.end == {"reason": "exit"}
    assert [(each.kind, each.address, each.size) for each in trace.events] == [
        (MALLOC, 0x55D0C2A412A0, 24),
        (MALLOC, 0x55D0C2A412C0, 20),
        (FREE, 0x55D0C2A412A0, 0),
    ]


@pytest.mark.gate
def test_of_a_sample_some_calls_are_noted(recording: Recording) -> None:
    recording.run("churn", 200_000, options="sample:10000")
    trace = recording.whole()
    assert trace.info["sample"] == 10000
    assert 10 < len(trace.events) < 100_000


WAITS = """#include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    int main(int count, char **words)
    {
        (void)words;
        setenv("PYTHONMALLOC", "debug", 1);
        if (count > 1 && mlockall(MCL_CURRENT) != 0) return 77;
        puts("ready");
        fflush(stdout);
        getchar();
        return 0;
    }"""


@contextmanager
def waiting(recording: Recording, options: str, *way: str) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    words = [str(recording.built("waits", WAITS)), *way]
    environment = recording.environment(options) | {"PYTHONMALLOC": "malloc"}
    with subprocess.Popen(words, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() == "":
            pytest.skip("memory cannot be locked here")
        yield process


def test_a_sample_begins_again_in_locked_memory(recording: Recording) -> None:
    with waiting(recording, "sample:1m,sites:0", "locked") as process:
        for request in ("stop", "start"):
            assert ask(process, request)["ok"]


def test_the_environment_is_what_the_interpreter_found(recording: Recording) -> None:
    with waiting(recording, "start:later") as process:
        assert ask(process, "start")["ok"]
    assert recording.whole().info["environment"] == {"PYTHONMALLOC": "malloc"}


def test_a_dense_sample_makes_a_program_hardly_larger(recording: Recording) -> None:
    words = [sys.executable, "-c", "kept = [bytearray(3000) for _ in range(20_000)]"]
    peaks = {}
    for sample in ("512k", "1k"):
        with subprocess.Popen(words, env=recording.environment(f"sample:{sample}")) as program:
            _, status, used = os.wait4(program.pid, 0)
            program.returncode = os.waitstatus_to_exitcode(status)
        assert program.returncode == 0
        peaks[sample] = used.ru_maxrss
    assert peaks["1k"] < 1.3 * peaks["512k"]


# ---- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["_exit", "_Exit", "quick_exit"])
@pytest.mark.gate
def test_a_program_that_ends_without_destructors_leaves_a_whole_file(
    recording: Recording, way: str
) -> None:
    recording.run("exits", way)
    trace = recording.whole()
    assert batches(trace) == {1: BLOCKS}
    assert trace.end["reason"] == way


@pytest.mark.gate
def test_a_recording_tells_what_was_allocated_before_it(recording: Recording) -> None:
    """LibreOffice's libraries allocate 18,080 blocks in their constructors."""
    library = """#include <stdlib.h>
        __attribute__((constructor)) static void start(void)
        { for (int i = 0; i < 5000; i++) *(void *volatile *)malloc(1000) = 0; }
        int used(void) { return 0; }"""
    shared = recording.built("libbefore.so", library, "-shared", "-fPIC")
    user = "int used(void); int main(void) { return used(); }"
    program = recording.built("main", user, "-x", "none", shared)
    result = _run([program], recording.environment(""))
    assert result.returncode == 0
    assert 5_000_000 < recording.whole().info["live_before"] < 6_000_000


@pytest.mark.gate
def test_a_process_is_of_one_thread_where_the_kernel_asks_for_that(recording: Recording) -> None:
    """`unshare -U` failed, and so did Chromium, whose zygote makes a user namespace."""
    recording.run("unshare")
    first, second = recording.whole(), recording.whole(".2")
    assert (batches(first), first.end["reason"]) == ({1: BLOCKS}, "unshare")
    assert (batches(second), second.end["reason"]) == ({2: BLOCKS}, "exit")


@pytest.mark.gate
def test_calls_that_need_no_single_thread_do_not_cut_the_recording(recording: Recording) -> None:
    """A setns of an open descriptor from several threads had two recorders write one file."""
    recording.run("enter")
    assert batches(recording.whole()) == {1: BLOCKS, 2: BLOCKS}
    assert recording.files() == ["trace.hft"]


@pytest.mark.gate
def test_what_a_malloc_passes_on_is_recorded(recording: Recording) -> None:
    source = """#define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stddef.h>
        void *malloc(size_t size)
        { return ((void *(*)(size_t))dlsym(RTLD_NEXT, "malloc"))(size); }"""
    wrapper = recording.built("wrapper.so", source, "-shared", "-fPIC")
    environment = recording.environment("")
    environment["LD_PRELOAD"] = f"{wrapper}:{environment['LD_PRELOAD']}"
    result = _run([recording.subject, "return"], environment)
    assert (result.returncode, result.stderr) == (CODE, "")
    assert batches(recording.whole()) == {1: BLOCKS}


@pytest.mark.gate
@pytest.mark.parametrize("size", [46_352, 23_168, 5_152])
def test_a_sample_of_equal_blocks_misses_none(recording: Recording, size: int) -> None:
    """At distances of Fibonacci numbers they fell on few lines of the table: 2 in 3 were lost."""
    script = f"kept = [bytearray({size}) for _ in range(4000)]"
    words = [sys.executable, "-c", script]
    assert _run(words, recording.environment("sample:16")).returncode == 0
    found = Counter(size for size in recording.whole().sizes() if size > 5_000)
    assert found[size + 1] == 4000


@pytest.mark.gate
def test_a_program_whose_malloc_is_its_own_gets_no_thread(recording: Recording) -> None:
    source = """#define _GNU_SOURCE
        #include <sched.h>
        #include <stddef.h>
        char room[1 << 20];
        size_t used;
        void *malloc(size_t size) { used += (size + 15) & ~15UL; return room + used - size; }
        void free(void *block) { (void)block; }
        void *realloc(void *block, size_t size) { (void)block; return malloc(size); }
        void *calloc(size_t count, size_t size) { return malloc(count * size); }
        int main(void) { return unshare(CLONE_VM); }"""
    result = _run([recording.built("own", source)], recording.environment(""))
    assert result.returncode == 0
    assert "nothing can be recorded: another malloc" in result.stderr
    assert recording.whole().end["reason"] == "not served"


@pytest.mark.gate
def test_exit_in_another_thread(recording: Recording) -> None:
    recording.run("exit_in_thread")
    assert batches(recording.whole()) == {1: BLOCKS}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_the_program_ends_the_file_too(
    recording: Recording, number: signal.Signals
) -> None:
    """As services end, and by Ctrl-C: the file was cut short."""
    assert recording.run("ended", number.value).returncode == -number
    trace = recording.whole()
    assert batches(trace) == {1: BLOCKS}
    assert trace.end["reason"] == number.name


def test_a_program_is_told_of_defaults_and_of_what_it_has_set(recording: Recording) -> None:
    # Not so under nohup, or in the background of a shell without job control.
    ended_by = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, signal.SIG_DFL) for number in ended_by}
    recording.run("defaults")
    for number, handler in before.items():
        signal.signal(number, handler)
    assert batches(recording.whole()) == {1: BLOCKS}


def test_a_child_that_a_signal_ends_leaves_its_parents_file_alone(recording: Recording) -> None:
    recording.run("child_ended")
    assert batches(recording.whole()) == {1: 2 * BLOCKS}


def test_a_killed_program_leaves_all_that_it_did_until_shortly_before(recording: Recording) -> None:
    with recording.running("wait") as process:
        await_true(lambda: recording.file.exists() and recording.file.stat().st_size >= 16)
        await_true(lambda: batches(recording.trace()) == {1: BLOCKS})
        process.send_signal(signal.SIGKILL)
        process.wait()
    trace = recording.trace()
    assert batches(trace) == {1: BLOCKS}
    assert not trace.end


@pytest.mark.gate
def test_the_main_thread_may_leave_before_others(recording: Recording) -> None:
    recording.run("main_leaves")
    trace = recording.whole()
    assert batches(trace) == {1: BLOCKS, 2: 3 * BLOCKS}
    assert trace.end["reason"] == "exit"


def test_threads_that_outlive_main_unrecorded_leave_what_they_have_buffered(
    recording: Recording,
) -> None:
    recording.run("main_leaves", options="start:later")


def test_ten_thousand_short_threads_take_few_rings(recording: Recording) -> None:
    """Between two looks of the recorder's thread, which need not be often."""
    recording.run("many_threads", 10000, options="flush_ms:60000")
    found = batches(recording.whole())
    assert found == {1: BLOCKS} | dict.fromkeys(range(1000, 11000), 1)


# ---- other programs and forks --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["execv", "execlp", "fexecve"])
@pytest.mark.gate
def test_a_program_that_takes_the_place_gets_a_file_of_its_own(
    recording: Recording, way: str
) -> None:
    recording.run("exec", way)
    assert recording.files() == ["trace.hft", "trace.hft.2"]
    first, second = recording.whole(), recording.whole(".2")
    assert first.end["reason"] == "exec"
    for name in ("pid", "process_began"):
        assert first.info[name] == second.info[name] > 0
    assert (batches(first), batches(second)) == ({1: BLOCKS}, {1: BLOCKS})
    assert (first.info["file_number"], second.info["file_number"]) == (1, 2)
    assert not first.info["began_late"] | second.info["began_late"]


@pytest.mark.gate
def test_a_recording_goes_on_when_an_exec_fails(recording: Recording) -> None:
    recording.run("exec_fails")
    trace = recording.whole()
    assert batches(trace) == {1: BLOCKS, 2: BLOCKS, 3: BLOCKS}
    assert trace.end["reason"] == "exit"


def test_what_is_done_during_an_exec_that_fails_is_recorded(recording: Recording) -> None:
    recording.run("work_while_exec_fails")
    assert batches(recording.whole()) == {1: BLOCKS, 2: BLOCKS, 3: BLOCKS}


@pytest.mark.parametrize("children", ["off", "on"])
@pytest.mark.gate
def test_programs_started_by_vfork_and_posix_spawn(recording: Recording, children: str) -> None:
    recording.run("vfork", options=f"children:{children}")
    assert batches(recording.whole()) == {1: BLOCKS, 2: BLOCKS}
    others = [name.removeprefix("trace.hft") for name in recording.files() if name != "trace.hft"]
    assert len(others) == (2 if children == "on" else 0)
    assert all(batches(recording.whole(other)) == {1: BLOCKS} for other in others)


def test_forks_in_the_midst_of_it(recording: Recording) -> None:
    recording.run("fork", FORKS, options="children:on,flush_ms:1")
    assert batches(recording.whole()) == {1: BLOCKS}
    others = [name.removeprefix("trace.hft") for name in recording.files() if name != "trace.hft"]
    assert len(others) == FORKS
    traces = [recording.whole(other) for other in others]
    expected = [{100 + i: BLOCKS} for i in range(len(others))]
    assert sorted((batches(trace) for trace in traces), key=min) == expected


@pytest.mark.parametrize(
    ("what", "options"), [("malloc", "children:on"), ("realloc", "start:later")]
)
@pytest.mark.gate
def test_a_handler_that_has_interrupted_malloc_may_fork(
    recording: Recording, options: str, what: str
) -> None:
    """The C library takes no lock of its malloc for that, unless there is another thread: ours."""
    forks = 30 if options == "children:on" else 300
    recording.run("forks_in_handlers", what, forks, options=options)


def test_a_daemon_keeps_nothing_of_its_callers_open(recording: Recording) -> None:
    go = recording.folder / "go"
    words = [recording.subject, "daemon", go]
    # Returns when nobody has the pipes open any more.
    result = _run(words, recording.environment("children:on"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "worked 1\n", "")
    main = recording.whole()
    assert main.end["reason"] == "daemon"
    assert batches(main) == {1: BLOCKS}
    await_true(lambda: len(recording.files()) == 2)
    other = recording.files()[1].removeprefix("trace.hft")
    await_true(lambda: 2 in batches(recording.trace(other)))
    go.touch()
    await_true(lambda: bool(recording.trace(other).end))
    assert batches(recording.whole(other)) == {2: BLOCKS, 3: BLOCKS}


# ---- the world around ----------------------------------------------------------------------------


def test_a_limit_on_the_size_of_files_ends_the_recording_alone(recording: Recording) -> None:
    limit = 200_000
    result = recording.run(
        "churn", 500_000, prepare=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    assert result.stderr.count("\n") == 1
    assert "the recording ended early: the limit on the size of files" in result.stderr
    assert recording.file.stat().st_size <= limit
    trace = recording.trace()
    assert not trace.is_damaged()
    assert "limit on the size of files" in trace.end["reason"]
    assert len(trace.events) > 1_000  # how densely they are packed depends on the pace


@pytest.mark.parametrize("where", ["nowhere/trace.hft", "fifo"])
@pytest.mark.gate
def test_a_file_that_cannot_be_made_is_said_once(
    recording: Recording, tmp_path: Path, where: str
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    environment = recording.environment("") | {"HEAPFIT_RECORD": f"{tmp_path}/{where}"}
    result = _run([recording.subject, "return"], environment)
    assert (result.returncode, result.stdout) == (CODE, "worked 1\n")
    assert result.stderr.startswith("heapfit: no recording: ")
    assert result.stderr.count("\n") == 1
    assert (tmp_path / "fifo").is_fifo()


def test_a_program_may_have_no_stderr(recording: Recording) -> None:
    """Its number is free then, and must not become that of a file which the recorder needs."""
    recording.run("main_leaves", prepare=lambda: os.close(2))
    assert batches(recording.whole()) == {1: BLOCKS, 2: 3 * BLOCKS}


def test_a_program_may_close_all_descriptors(recording: Recording) -> None:
    result = recording.run("close_all")
    assert "all closed" in result.stdout
    assert batches(recording.whole()) == {1: BLOCKS, 2: BLOCKS}


def test_the_recorders_thread_takes_no_signal(recording: Recording) -> None:
    assert "handled 100, elsewhere 0" in recording.run("signals").stdout
    assert batches(recording.whole()) == {1: 100 * BLOCKS}


@pytest.mark.skipif(not IS_ROOT, reason="only root may give a program other rights")
def test_a_program_with_other_rights_is_not_recorded(recording: Recording, tmp_path: Path) -> None:
    link = [f"-Wl,-rpath,{recording.recorder.parent}", recording.recorder]
    program = compiled("record_subject.c", tmp_path, *link, to="privileged")
    environment = recording.environment("")
    del environment["LD_PRELOAD"]
    assert _run([program, "secure"], environment).stdout == "secure 0\nworked 1\n"
    assert recording.files() == ["trace.hft"]
    recording.file.unlink()
    shutil.chown(program, "nobody")
    program.chmod(0o4755)
    result = _run([program, "secure"], environment)
    if "secure 0" in result.stdout:
        pytest.skip("here such programs get no other rights")
    assert (result.returncode, result.stderr) == (CODE, "")
    assert recording.files() == []


@pytest.mark.gate
def test_the_environment_stays_the_programs(recording: Recording) -> None:
    assert recording.run("environment").stderr == ""


@pytest.mark.parametrize(
    ("options", "complaint"),
    [("sights:3", "there is no option 'sights'"), ("sites:65", "'sites' takes 0 to 64, not '65'")],
)
def test_a_wrong_option_is_reported_once(
    recording: Recording, options: str, complaint: str
) -> None:
    result = recording.run("return", options=options)
    assert result.stderr.count("\n") == 1
    assert complaint in result.stderr
    assert batches(recording.whole()) == {1: BLOCKS}


WALL = 0x40000000  # waits for threads too


SEIZE, INTERRUPT = 0x4206, 0x4207  # of ptrace


def trace_thread(request: int, tid: int) -> None:
    trace = ctypes.CDLL(None, use_errno=True).ptrace
    if trace(ctypes.c_long(request), ctypes.c_long(tid), None, None) != 0:
        pytest.skip(f"here nothing may be traced: {os.strerror(ctypes.get_errno())}")


def awaited(go: Path) -> Path:
    """It is there when the program waits for `go`, before which its recording has begun."""
    return go.with_name(f"{go.name}.awaited")


def stop_the_recorders_thread(process: subprocess.Popen[str]) -> int:
    """As a debugger does."""
    (thread,) = (
        int(task.name)
        for task in Path(f"/proc/{process.pid}/task").iterdir()
        if (task / "comm").read_text() == "heapfit-record\n"
    )
    trace_thread(SEIZE, thread)
    trace_thread(INTERRUPT, thread)
    os.waitpid(thread, WALL)
    return thread


def test_a_program_does_not_wait_for_ever_for_a_recorder_that_is_stuck(
    recording: Recording,
) -> None:
    go = recording.folder / "go"
    with recording.running("churn_after", go, 50_000) as process:
        await_true(lambda: awaited(go).exists())
        thread = stop_the_recorders_thread(process)
        go.touch()
        await_true(lambda: os.waitpid(thread, WALL | os.WNOHANG) != (0, 0))
        await_true(lambda: process.poll() is not None)
        assert process.returncode == CODE
        assert process.stdout is not None
        assert process.stdout.read() == "worked 1\n"
        assert process.stderr is not None
        assert "the recording ended early: the file took nothing" in process.stderr.read()
    assert not recording.trace().end


def test_a_recording_over_another_allocator(recording: Recording) -> None:
    allocator = paths.library("default")
    both = {"LD_PRELOAD": f"{recording.recorder}:{allocator}"}
    for way in [["exits", "_exit"], ["fork", "5"], ["main_leaves"]]:
        words = [recording.subject, *way]
        plain = _run(words, dict(os.environ))
        recorded = _run(words, recording.environment("children:on") | both)
        assert recorded.stderr == ""
        assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
        trace = recording.whole()
        assert batches(trace)[1] == BLOCKS
        assert Path(trace.info["allocator"]).name == allocator.name


# ---- from outside --------------------------------------------------------------------------------


def test_recordings_one_after_the_other(recording: Recording) -> None:
    go = recording.folder / "go"
    with recording.running("wait", go, options="start:later,sites:2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "worked 1\n"
        assert not ask(process, "status")["recording"]
        assert recording.files() == []
        for suffix in ["", ".2", ".3"]:
            answer = ask(process, "start")
            assert (answer["ok"], answer["recording"]) == (True, True)
            assert answer["file"] == f"{recording.file}{suffix}"
            assert ask(process, "start")["file"] == answer["file"]
            answer = ask(process, "stop")
            assert (answer["ok"], answer["recording"]) == (True, False)
            trace = recording.whole(suffix)
            assert trace.end["reason"] == "stop"
        assert ask(process, "stop")["ok"]
        ask(process, "start")
        go.touch()
        assert process.wait(PATIENCE_S) == CODE
    assert batches(recording.whole(".4")) == {2: BLOCKS}
    assert len(recording.whole(".4").sites) > 1


def test_a_recording_may_end_by_itself(recording: Recording) -> None:
    with recording.running("wait", options="seconds:1") as process:
        await_true(lambda: recording.file.exists() and recording.file.stat().st_size >= 16)
        await_true(lambda: bool(recording.trace().end))
        assert not ask(process, "status")["recording"]
    trace = recording.whole()
    assert batches(trace) == {1: BLOCKS}
    assert trace.end["reason"] == "the time is over"
