"""What the kernel knows of the server while it serves: time, memory, page faults, system calls.

System calls are counted at the kernel's tracepoints, by perf_event_open(2) on every thread that the
server has: exact, and next to no cost; needs root and a tracefs that is mounted. Else by strace,
which is as exact but slows the server down.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

CALLS = ("madvise", "mmap", "munmap", "mprotect", "brk")

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
# By machine: the number of a system call that the C library has no function for.
PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
# `struct perf_event_attr` in its first published size: type, size, config; all else is 0.
ATTRIBUTE_SIZE = 64
ATTRIBUTE = struct.Struct("=IIQ48x")
TRACEPOINT = 2
ANY_CORE, NO_GROUP, CLOSE_ON_EXEC = -1, -1, 1 << 3
COUNT = struct.Struct("=Q")


class Unavailable(Exception):
    """System calls cannot be counted here."""


@dataclass(frozen=True)
class Used:
    """What a process has used since it began."""

    cpu_s: float
    page_faults: int

    def __sub__(self, before: Used) -> Used:
        return Used(self.cpu_s - before.cpu_s, self.page_faults - before.page_faults)


def used(pid: int) -> Used:
    """What the kernel has on its account for a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    minor, _, major, _, user, system = map(int, fields[7:13])
    return Used((user + system) / TICKS_PER_S, minor + major)


def resident_bytes(pid: int) -> int:
    """What of a process is in memory now."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES


def count_calls(
    pid: int, scratch: Path, run: Callable[[], Result]
) -> tuple[Result, dict[str, int]]:
    """What `run` returns, and how often a process made each of CALLS meanwhile.

    Raises Unavailable, without having run, where neither means works.
    """
    try:
        return _count_by_tracepoints(pid, run)
    except Unavailable as no_tracepoints:
        try:
            return _count_by_strace(pid, scratch / "strace.txt", run)
        except Unavailable as no_strace:
            raise Unavailable(f"{no_tracepoints}; {no_strace}") from no_strace


def _count_by_tracepoints(pid: int, run: Callable[[], Result]) -> tuple[Result, dict[str, int]]:
    with ExitStack() as opened:
        counters: dict[str, list[int]] = {}
        for call in CALLS:
            event = _tracepoint(f"syscalls/sys_enter_{call}")
            counters[call] = [_open(event, int(task)) for task in os.listdir(f"/proc/{pid}/task")]
            for counter in counters[call]:
                opened.callback(os.close, counter)
        before = {call: _total(counters[call]) for call in CALLS}
        result = run()
        return result, {call: _total(counters[call]) - before[call] for call in CALLS}


def _total(counters: Sequence[int]) -> int:
    return sum(COUNT.unpack(os.read(counter, COUNT.size))[0] for counter in counters)


def _count_by_strace(
    pid: int, output: Path, run: Callable[[], Result]
) -> tuple[Result, dict[str, int]]:
    command = ["strace", "-f", "-c", "-e", f"trace={','.join(CALLS)}", "-o", output, "-p", pid]
    try:
        tracing = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    except OSError as error:
        raise Unavailable(f"strace: {error.strerror}") from error
    with tracing:
        assert tracing.stderr is not None
        said = tracing.stderr.readline()
        if "attached" not in said:
            tracing.kill()
            raise Unavailable(said.strip() or "strace says nothing")
        try:
            result = run()
        finally:
            tracing.send_signal(signal.SIGINT)
    rows = (line.split() for line in output.read_text().splitlines())
    made = {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdecimal()}
    return result, {call: made.get(call, 0) for call in CALLS}


def _tracepoint(name: str) -> int:
    for folder in TRACEFS:
        try:
            return int((folder / "events" / name / "id").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
    raise Unavailable(f"the tracepoint {name} is not to be had (needs root, and tracefs mounted)")


def _open(event: int, task: int) -> int:
    number = PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise Unavailable(f"no counters on {platform.machine()}")
    attribute = ATTRIBUTE.pack(TRACEPOINT, ATTRIBUTE_SIZE, event)
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (task, ANY_CORE, NO_GROUP, CLOSE_ON_EXEC)
    counter = libc.syscall(number, attribute, *map(ctypes.c_long, arguments))
    if counter < 0:
        raise Unavailable(f"perf_event_open: {os.strerror(ctypes.get_errno()).lower()}")
    return int(counter)
