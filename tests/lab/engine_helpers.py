"""Small workloads and studies over real programs, for the tests of the measuring engine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from heapfit.records import InstalledAllocator, PlannedTrial, Study, Trial, Workload, WorkloadRun
from heapfit.study import plan
from heapfit.trial import run_trial
from heapfit.trial.resources import Memory
from heapfit.trial.source import Source

PYTHON = (sys.executable, "-I", "-S", "-c")


def system_allocator(
    name: str = "glibc", library: Path | None = None, **environment: str
) -> InstalledAllocator:
    """The system's own malloc under any name, set apart by its environment."""
    return InstalledAllocator(
        name=name, title=name, version="1", library=library, environment=environment
    )


def jemalloc() -> InstalledAllocator:
    return system_allocator("jemalloc", next(Path("/usr/lib").glob("*/libjemalloc.so.2")))


def compiled(program: Path, code: str, *flags: str) -> Path:
    """Make a program of C, and return its path."""
    command = ["cc", "-O1", *flags, "-xc", "-", "-o", program]
    subprocess.run(command, input=code, text=True, check=True)
    return program


def workload(*command: str, stdin: str | None = None, **fields: Any) -> Workload:
    run = WorkloadRun(command=list(command), stdin=stdin, environment=fields.pop("environment", {}))
    return Workload(name="test", title="A test", question="Does it work?", run=run, **fields)


def study_of(
    work: Workload, allocators: Sequence[InstalledAllocator] | None = None, **fields: Any
) -> Study:
    chosen = list(allocators or [system_allocator()])
    given = {"baseline": chosen[0].name, "cores": [1], "replicates": 1, **fields}
    return plan(work, chosen, **given)


def run_once(
    work: Workload,
    workspace: Path,
    *,
    allocator: InstalledAllocator | None = None,
    reference: Trial | None = None,
    data: Path | None = None,
    cores: int = 1,
    warmup: bool = False,
    **fields: Any,
) -> Trial:
    """Run one trial under `allocator`, in a study whose baseline is the system's malloc."""
    chosen = [system_allocator(), *([allocator] if allocator else [])]
    study = study_of(work, chosen, cores=[cores], **fields)
    planned = PlannedTrial(
        index=0, block=0, replicate=1, allocator=chosen[-1].name, cores=cores, warmup=warmup
    )
    return run_trial(study, planned, workspace, reference, data)


def is_running(pid: int) -> bool:
    """Whether the process still runs; a zombie that nobody has reaped yet does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def wait_until_gone(pids: Sequence[int], timeout_s: float = 60.0) -> list[int]:
    """Return those of `pids` that still run after `timeout_s`; do not wait longer than needed."""
    deadline = time.monotonic() + timeout_s
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def read_pids(path: Path, count: int) -> list[int]:
    """Return the process ids in `path`, one a line, once there are `count` of them."""
    wait_for(lambda: path.exists() and len(path.read_text().split()) >= count)
    return [int(word) for word in path.read_text().split()]


def start_the_clock_late(notes: Path, monkeypatch: pytest.MonkeyPatch, each: int = 1) -> None:
    """Have the time of each trial begin when its processes have noted `each` more ids in `notes`.

    How soon a program comes to what a test is about is the machine's affair; a trial's time-out
    that has begun before may end a program that has done nothing yet.
    """
    begin, noted = Memory.begin, 0

    def begin_late(memory: Memory, root: int) -> None:
        nonlocal noted
        noted += each
        begin(memory, root)
        read_pids(notes, noted)

    monkeypatch.setattr(Memory, "begin", begin_late)


def allowed_cores() -> int:
    return len(os.sched_getaffinity(0))


class Looks:
    """The looks that a sampled metric source takes, for a program that waits to be seen.

    How soon the lab comes to look is the machine's affair; therefore a program stays in the state
    that a test is about until it has been looked at, with `PATIENCE`.
    """

    # Python for a program under test: at the end of two looks one has begun after the call.
    PATIENCE = """
import os, time
def wait_to_be_seen(looks, count=2):
    before = os.path.getsize(looks)
    while os.path.getsize(looks) < before + count:
        time.sleep(0.005)
"""

    def __init__(self, source: type[Source], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = file
        file.touch()
        sample = source.sample

        def counted(looking: Source, now_s: float) -> None:
            sample(looking, now_s)
            with file.open("a") as looks:
                looks.write(".")

        monkeypatch.setattr(source, "sample", counted)
