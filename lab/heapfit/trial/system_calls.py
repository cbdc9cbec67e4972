"""Metric sources: how often the program's tree made the system calls that concern memory.

There are two, the better first:

- `perf` counts the kernel's tracepoints syscalls:sys_enter_*. This is exact, and about as fast as
  the program alone, but needs root (or a tracefs that may be read).
- strace with a seccomp filter stops the program at these calls and no others. It needs no rights,
  but each of the calls takes some microseconds longer, and threads meet at other times, which
  changes the number of futex calls.

Either way the program is run once more for them: even a tracepoint makes every system call of the
whole machine take the kernel's slow path, which would be in the times.
"""

import functools
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from heapfit.records import Metric
from heapfit.trial import perf
from heapfit.trial.launcher import Ended
from heapfit.trial.source import Source, SourceFailed, cost
from heapfit.trial.tree import ProcessTree

CALLS = ("mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex")

_PROBE_TIMEOUT_S = 10.0


def metric_name(call: str) -> str:
    """Return the name of the metric that counts `call`."""
    return f"{call}_calls"


def _metrics(means: str) -> tuple[Metric, ...]:
    source = f"{means} over the process tree, in a run of its own"
    return tuple(cost(metric_name(call), f"Calls of {call}", "count", source) for call in CALLS)


class TracedCalls(perf.PerfSource):
    """Counts by tracepoint."""

    metrics = _metrics("kernel tracepoint")
    own_run = True

    @classmethod
    def events(cls) -> Mapping[str, perf.Event]:
        return {metric_name(call): perf.tracepoint(f"syscalls:sys_enter_{call}") for call in CALLS}


class StracedCalls(Source):
    """Counts by strace."""

    metrics = _metrics("strace")
    own_run = True
    slowdown = 20.0

    def __init__(self) -> None:
        self._summary: Path | None = None

    @classmethod
    def unavailable(cls) -> str | None:
        if shutil.which("strace") is None:
            return "strace is not installed (apt: strace)"
        return _strace_refusal()

    def wrap(self, command: list[str], folder: Path) -> list[str]:
        self._summary = folder / "strace.txt"
        return [*_strace(self._summary), *command]

    def to_signal(self, program: int) -> int:
        # strace keeps SIGTERM to itself; the program is its only child.
        children = [child for _, child in ProcessTree(program).processes()]
        return children[0] if children else program

    def figures(self, ended: Ended) -> dict[str, float]:
        assert self._summary is not None, "wrap() comes first"
        counted = read_summary(self._summary.read_text(errors="replace"))
        return {metric_name(call): float(counted.get(call, 0)) for call in CALLS}


def _strace(output: Path) -> list[str]:
    wanted = f"trace={','.join(CALLS)}"
    return ["strace", "-f", "--seccomp-bpf", "-qq", "-c", "-e", wanted, "-o", str(output)]


@functools.cache
def _strace_refusal() -> str | None:
    """Try it: containers often forbid to trace, and old versions lack the filter."""
    try:
        done = subprocess.run(
            [*_strace(Path("/dev/null")), "true"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"strace does not work here: {error}"
    if done.returncode == 0:
        return None
    return f"strace does not work here: {done.stderr.strip().rpartition(chr(10))[2]}"


def read_summary(text: str) -> dict[str, int]:
    """Return the number of calls by name from the table that `strace -c` writes.

    >>> read_summary("% time  seconds  usecs/call  calls  errors syscall\\n"
    ...              "------ -------- ----------- ------ ------- -------\\n"
    ...              " 75.00    0.003           2     38       1 mmap\\n"
    ...              " 25.00    0.001           1      6         brk\\n")
    {'mmap': 38, 'brk': 6}
    """
    lines = [line.split() for line in text.splitlines()]
    rows = [words for words in lines if len(words) >= 5 and words[3].isdecimal()]
    if not text.strip():
        raise SourceFailed("strace wrote no result; was it killed?")
    return {words[-1]: int(words[3]) for words in rows if words[-1] != "total"}
