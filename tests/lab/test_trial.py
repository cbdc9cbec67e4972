"""One trial of a real program: its figures, its output, its failures, and what it leaves behind."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_helpers import (
    PYTHON,
    Looks,
    allowed_cores,
    compiled,
    jemalloc,
    read_pids,
    run_once,
    start_the_clock_late,
    system_allocator,
    wait_until_gone,
    workload,
)
from heapfit.records import TrialStatus, WorkloadCheck, WorkloadMetric
from heapfit.trial import observe
from heapfit.trial.outcome import Rejected
from heapfit.trial.preload import PreloadWatch
from heapfit.trial.resources import Memory, _proportional
from heapfit.trial.tree import ProcessTree

MIB = 1 << 20

# A grandchild in a session of its own, deaf to everything but SIGKILL. All write their ids.
STUBBORN_FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def note():
    with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note(); time.sleep(600)
    note(); time.sleep(600)
note(); time.sleep(600)
"""


@pytest.mark.full
def test_peak_memory_is_not_inherited_from_the_lab(tmp_path: Path) -> None:
    ballast = b"x" * (64 * MIB)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > len(ballast)
    trial = run_once(workload("/bin/true"), tmp_path)
    assert 0 < trial.metrics["peak_rss_bytes"] < 4 * MIB


@pytest.mark.full
def test_memory_that_forked_workers_share_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(Memory, tmp_path / "looks", monkeypatch)
    server = f"""
import sys
ready, looks = sys.argv[1:]
data = bytearray(b"x") * {100 * MIB}
for worker in range(4):
    if os.fork() == 0:
        own = bytearray(b"x") * {MIB}
        with open(ready, "a") as file: file.write(".")
        wait_to_be_seen(looks)
        os._exit(0)
while os.path.getsize(ready) < 4: time.sleep(0.005)
wait_to_be_seen(looks)
for worker in range(4): os.wait()
"""
    (tmp_path / "ready").touch()
    words = [Looks.PATIENCE + server, str(tmp_path / "ready"), str(looks.file)]
    trial = run_once(workload(*PYTHON, *words), tmp_path / "w")
    assert 100 * MIB < trial.metrics["peak_rss_bytes"] < 140 * MIB


_ALONE = [(1, os.getpid())]
_TWO = [*_ALONE, (os.getpid(), 1 << 30)]


@pytest.mark.parametrize(
    ("before", "after", "is_size"),
    [(_ALONE, _ALONE, True), (_ALONE, _TWO, False), (_TWO, _ALONE, False)],
)
def test_sizes_that_are_read_while_a_process_begins_or_ends_are_no_size_of_the_tree(
    before: list[tuple[int, int]],
    after: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_size: bool,
) -> None:
    """What the first had alone and then shares with the second would count in both."""
    left = iter([before, after])
    monkeypatch.setattr(ProcessTree, "processes", lambda _: next(left))
    assert bool(_proportional(ProcessTree(1), {})) == is_size


def test_what_an_ended_process_had_is_no_size_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there until it is waited for, and the pages that it shared are another's."""
    with subprocess.Popen(["true"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        there = [*_ALONE, (os.getpid(), ended.pid)]
        monkeypatch.setattr(ProcessTree, "processes", lambda _: there)
        assert _proportional(ProcessTree(1), {ended.pid: MIB}) == 0
        assert _proportional(ProcessTree(1), {ended.pid: 0})


def test_runs_on_the_first_allowed_cores(tmp_path: Path) -> None:
    show = "import os; print(*sorted(os.sched_getaffinity(0)))"
    for cores in range(1, allowed_cores() + 1):
        allowed = " ".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
        work = workload(*PYTHON, show, check=WorkloadCheck(must_match=f"^{allowed}$"))
        trial = run_once(work, tmp_path, cores=cores)
        assert trial.status is TrialStatus.OK, trial.reason


def test_allocator_reaches_the_program_and_not_its_neighbours(tmp_path: Path) -> None:
    library = jemalloc().library
    show = (
        "import os; print(os.environ.get('LD_PRELOAD'));"
        " print('jemalloc' in open('/proc/self/maps').read())"
    )
    check = WorkloadCheck(must_match=rf"^{library}\nTrue$")
    trial = run_once(workload(*PYTHON, show, check=check), tmp_path, allocator=jemalloc())
    assert trial.status is TrialStatus.OK, trial.reason
    assert "jemalloc" not in Path("/proc/self/maps").read_text()


def test_placeholders_are_expanded_and_other_braces_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    here = tmp_path / "here"
    data.mkdir()
    here.mkdir()
    script = 'echo "$1"; echo "$2"; ls -d "$3"; ls "$3"; echo "$4"; echo "$5"; echo "$6"; pwd'
    arguments = ["{data}/x", "{here}/y", "{scratch}", "{cores}", "{port}", '{"json": {a}}']
    expected = rf'{data}/x\n{here}/y\n/.*/scratch\n1\n[0-9]+\n\{{"json": \{{a\}}\}}\n{here}\n'
    work = workload(
        "sh", "-c", script, "sh", *arguments, here=here, check=WorkloadCheck(must_match=expected)
    )
    trial = run_once(work, tmp_path, data=data)
    assert trial.status is TrialStatus.OK, trial.reason


def test_standard_input_is_the_file_or_nothing(tmp_path: Path) -> None:
    text = tmp_path / "input.txt"
    text.write_text("from a file\n")
    fed = workload("cat", stdin="{here}/input.txt", here=tmp_path)
    assert run_once(fed, tmp_path / "w").output_sha256 == _digest_of(text.read_bytes())
    assert run_once(workload("cat"), tmp_path / "w").output_sha256 == _digest_of(b"")


def test_own_metrics_are_read_from_the_output(tmp_path: Path) -> None:
    def metric(name: str, combine: str) -> WorkloadMetric:
        return WorkloadMetric.model_validate(
            {
                "name": name,
                "label": name,
                "unit": "1/s",
                "better": "higher",
                "pattern": r"^rate: ([\d.]+)",
                "combine": combine,
            }
        )

    names = {"sum": 10.0, "mean": 5.0, "geometric-mean": 4.0, "last": 8.0}
    work = workload(
        "printf", "rate: 2.0\nrate: 8\n", metrics=[metric(f"m-{each}", each) for each in names]
    )
    trial = run_once(work, tmp_path)
    own = {name: trial.metrics[f"m-{name}"] for name in names}
    assert own == pytest.approx(names)


@pytest.mark.parametrize("printed", ["nothing of the kind", "rate: fast"])
def test_a_metric_that_is_not_printed_fails_the_trial(tmp_path: Path, printed: str) -> None:
    metric = WorkloadMetric(
        name="rate", label="Rate", unit="1/s", better="higher", pattern=r"rate: (\w+)"
    )
    trial = run_once(workload("echo", printed, metrics=[metric]), tmp_path)
    assert trial.status is TrialStatus.MISMATCH
    assert "rate" in trial.reason
    assert trial.metrics == {}


@pytest.mark.parametrize(
    ("script", "check"),
    [
        ("echo ${F:-plain}", WorkloadCheck()),
        ("echo ${F:-plain} > {scratch}/out", WorkloadCheck(files=["out"])),
    ],
)
def test_other_output_or_files_than_the_reference_are_a_mismatch(
    tmp_path: Path, script: str, check: WorkloadCheck
) -> None:
    work = workload("sh", "-c", script, check=check)
    reference = run_once(work, tmp_path)
    same = run_once(work, tmp_path, reference=reference, allocator=system_allocator("a"))
    other = run_once(work, tmp_path, reference=reference, allocator=system_allocator("b", F="odd"))
    assert reference.status is same.status is TrialStatus.OK
    assert other.status is TrialStatus.MISMATCH
    assert other.reason == "gives different output than under glibc"
    assert other.metrics == {}


def test_a_program_that_timeout_ended_is_told_what_to_do(tmp_path: Path) -> None:
    trial = run_once(workload("timeout", "0.1", "sleep", "9"), tmp_path)
    assert trial.reason.startswith(
        "exit code 124, 0 expected, since timeout ended the program; let"
    )


def test_a_failing_program_is_reported_with_its_last_words(tmp_path: Path) -> None:
    trial = run_once(workload("sh", "-c", "echo broken >&2; exit 3"), tmp_path)
    assert trial.status is TrialStatus.FAILED
    assert trial.reason == "exit code 3, 0 expected"
    assert trial.exit_code == 3
    assert trial.stderr_tail == "broken\n"
    assert trial.metrics == {}


def test_the_baselines_warm_up_is_repeated_where_the_program_fails_now_and_then(
    tmp_path: Path,
) -> None:
    """Nothing could be compared for one failed run in four."""
    fails = tmp_path / "fails"
    command = f'echo >> {fails}; test $(wc -l < {fails}) -gt "$0"'
    trial = run_once(workload("sh", "-c", command, "2"), tmp_path, warmup=True)
    assert trial.status is TrialStatus.OK
    fails.unlink()
    trial = run_once(workload("sh", "-c", command, "9"), tmp_path, warmup=True)
    assert trial.status is TrialStatus.FAILED
    fails.unlink()
    assert run_once(workload("sh", "-c", command, "1"), tmp_path).status is TrialStatus.FAILED


def test_a_library_that_does_not_load_fails_the_trial(tmp_path: Path) -> None:
    bogus = tmp_path / "libbogus.so"
    bogus.write_text("not a library")
    trial = run_once(workload("true"), tmp_path, allocator=system_allocator("bogus", bogus))
    assert trial.status is TrialStatus.FAILED
    assert "cannot be preloaded" in trial.reason


COMPLAINT = (
    "ERROR: ld.so: object '{}' from LD_PRELOAD cannot be preloaded (wrong ELF class): ignored.\n"
)


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_helper_that_takes_no_library_does_not_speak_for_the_program(
    tmp_path: Path, *, is_loaded: bool
) -> None:
    library = jemalloc().library
    assert library is not None
    (tmp_path / "err").write_text(COMPLAINT.format(library))
    watch = PreloadWatch([library])
    with subprocess.Popen(
        ["sh", "-c", "echo; read line"],
        env={**os.environ, "LD_PRELOAD": str(library) if is_loaded else ""},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"\n"
        watch.begin(os.getpid())
        watch.sample(1.0)
        program.communicate(b"\n")
    if is_loaded:
        watch.check(tmp_path / "err")
        # What the program itself wants to preload is its own affair.
        unopened = COMPLAINT.replace("wrong ELF class", "cannot open it")
        (tmp_path / "err").write_text(unopened.format("/opt/of-the-program.so"))
        watch.check(tmp_path / "err")
        # Such a one may hold the memory: it only sees other files, as after chroot.
        both = unopened.format("/opt/of-the-program.so") + unopened.format(library)
        (tmp_path / "err").write_text(both)
    with pytest.raises(Rejected, match="cannot be preloaded"):
        watch.check(tmp_path / "err")


@pytest.mark.parametrize("own", [{}, {"LC_CTYPE": "C.UTF-8"}])
def test_the_programs_locale_is_the_users_and_not_pythons(own: dict[str, str]) -> None:
    locale = {name for name in os.environ if name.startswith(("LC_", "LANG"))}
    environment = {name: value for name, value in os.environ.items() if name not in locale} | own
    code = "import heapfit.trial.preload as p; print(p.clean_environment().get('LC_CTYPE'))"
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert shown.stdout.decode().strip() == str(own.get("LC_CTYPE"))


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("child = subprocess.Popen(['true']); os.waitid(os.P_PID, child.pid, ENDED)", 0),
        ("subprocess.Popen(['sleep', '600'])", 1),
    ],
)
def test_only_a_child_that_runs_is_left_in_the_background(
    tmp_path: Path, script: str, left: int
) -> None:
    """One that has ended, and was not waited for, is not."""
    begin = "import os, subprocess; ENDED = os.WEXITED | os.WNOWAIT"
    trial = run_once(workload(*PYTHON, f"{begin}; {script}; os._exit(0)"), tmp_path)
    assert trial.status is TrialStatus.OK, trial.reason
    assert trial.left_running == left


BUSY = """
#include <stdlib.h>
int main(void)
{
    for (int i = 0; i < 3000000; i++) {
        char *volatile block = malloc(16);
        block[0] = 1;
        free(block);
    }
    return 0;
}
"""
OWN_MALLOC = """
#include <stddef.h>
static _Alignas(16) char pool[1 << 20];
static size_t used;
void *malloc(size_t size)
{
    used = used + size > sizeof pool / 2 ? sizeof pool / 4 : used;
    void *block = pool + used;
    used += (size + 15) / 16 * 16;
    return block;
}
void free(void *block) { (void)block; }
"""


@pytest.mark.parametrize("warmup", [True, False])
@pytest.mark.parametrize(
    ("code", "flags", "wrapper", "reason"),
    [
        (BUSY, ["-static"], "{}; true", "its malloc is built in, because it is linked statically"),
        (BUSY, [], "env -i {}; true", "the library was not loaded into it"),
        (OWN_MALLOC + BUSY, ["-rdynamic"], "{}; true", "its malloc is its own"),
        (BUSY, [], "{}; true", ""),
        (BUSY, [], "(kill -STOP $$; kill -CONT $$) & wait $!; {}; exec env true", ""),
    ],
)
def test_a_trial_counts_when_the_allocator_serves_the_process_that_does_the_work(
    tmp_path: Path, code: str, flags: list[str], wrapper: str, reason: str, *, warmup: bool
) -> None:
    program = compiled(tmp_path / "busy", code, "-fno-builtin", *flags)
    trial = run_once(
        workload("sh", "-c", wrapper.format(program)),
        tmp_path / "w",
        allocator=jemalloc(),
        warmup=warmup,
        warmups=int(warmup),
    )
    if not reason:
        assert trial.status is TrialStatus.OK, trial.reason
        return
    assert trial.reason.startswith("ran without the allocator: ")
    assert f"of the processor time went to {program}: {reason}" in trial.reason


def test_a_program_that_cannot_be_traced_is_run_again_without(tmp_path: Path) -> None:
    """As a debugger, or a program that looks for one."""
    refuses = "import sys; sys.exit('TracerPid:\\t0' not in open('/proc/self/status').read())"
    for warmup in (True, False):
        own = {"warmup": warmup, "warmups": int(warmup)}
        trial = run_once(workload(*PYTHON, refuses), tmp_path, allocator=jemalloc(), **own)
        assert trial.status is TrialStatus.OK, trial.reason


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_statically_linked_program_is_not_measured_under_a_false_name(
    tmp_path: Path, seconds: int
) -> None:
    """Nor one that ends before anybody has looked into it."""
    code = f"#include <unistd.h>\nint main(void) {{ sleep({seconds}); return 0; }}\n"
    program = compiled(tmp_path / "static", code, "-static")
    trial = run_once(workload(str(program)), tmp_path / "w", allocator=jemalloc())
    assert trial.status is TrialStatus.FAILED
    assert "statically" in trial.reason


@pytest.mark.full
def test_a_hanging_program_is_ended_with_all_its_descendants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    start_the_clock_late(pids, monkeypatch, each=3)
    trial = run_once(workload(*PYTHON, STUBBORN_FAMILY, str(pids)), tmp_path / "w", timeout_s=1.0)
    assert trial.status is TrialStatus.TIMEOUT
    assert trial.reason == "still ran after 1 s and was ended"
    assert trial.metrics == {}
    assert wait_until_gone(read_pids(pids, 3), timeout_s=0) == []


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_no_program_outlives_the_lab(tmp_path: Path, blow: signal.Signals) -> None:
    pids = tmp_path / "pids"
    script = tmp_path / "lab.py"
    script.write_text(
        "import sys; from pathlib import Path; from engine_helpers import *\n"
        f"run_once(workload(*PYTHON, {STUBBORN_FAMILY!r}, sys.argv[1]), Path(sys.argv[2]))\n"
    )
    path = os.pathsep.join(sys.path)
    lab = subprocess.Popen(
        [sys.executable, str(script), str(pids), str(tmp_path / "w")],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
    )
    family = read_pids(pids, 3)
    lab.send_signal(blow)
    lab.wait(60)
    assert wait_until_gone(family) == []


def _digest_of(stdout: bytes) -> str:
    """The digest of a trial that is judged by standard output alone."""
    return hashlib.sha256(hashlib.sha256(stdout).hexdigest().encode()).hexdigest()


def test_a_sample_that_took_long_once_leaves_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of memory was that of the first moments, where garbage was collected in a sample."""
    clock = {"thread": 0.0}
    monkeypatch.setattr("time.thread_time", lambda: clock["thread"])
    costs = iter([0.00002, 0.00002, 0.02, 0.00002, 0.02, 0.02, 0.02])

    def sample(_: float) -> None:
        clock["thread"] += next(costs)

    source: Any = SimpleNamespace(limited_s=0.0, sample=sample)
    sampling = observe._Sampling(source)
    pauses = []
    for at in range(7):
        sampling.take(float(at))
        pauses.append(round(sampling.due_s - at, 6))
    assert pauses[:6] == [0.005] * 6
    assert pauses[6] == 0.02 / observe.SAMPLING_SHARE  # It is what a sample costs.
    dear: Any = SimpleNamespace(limited_s=0.0, sample=lambda _: clock.update(thread=9.0))
    sampling = observe._Sampling(dear)
    sampling.take(0.0)
    assert sampling.due_s == 0.05
