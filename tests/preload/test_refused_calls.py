"""Whatever the kernel refuses, a program works on, or is told that there is no memory.

strace refuses one system call after the other, and all from one on, in every thread. What is
refused may be the dynamic loader's, which gives up in a way of its own, whatever is preloaded.
That none is forgotten is told from the functions that the libraries take from the C library, and
from the numbers of calls in their sources.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import process_groups
import pytest
from heapfit import paths
from subjects import compiled

pytestmark = pytest.mark.full

TIMEOUT_S = 60
OPTIONS = "control:on,zeroed_reserve:1m,stats_at_exit:1,huge_pages:always"
LOADER_GAVE_UP = 127
LOADERS_WORDS = ("error while loading shared libraries", "cannot allocate TLS data structures")
# With this it lists what it has loaded, and starts nothing.
LOADER_ALONE = ("-E", "LD_TRACE_LOADED_OBJECTS=1")

# Without these there may be no memory; without any other there is.
MEMORY = {"mmap": "ENOMEM", "mprotect": "ENOMEM"}
# Where the loader and the C library have no use for a program without it, the library has.
BY_ERROR = {
    "ENOMEM": "munmap mremap madvise poll",
    "ENOSYS": "mincore getrandom",
    "EPERM": (
        "sysinfo prlimit64 sched_getaffinity sched_setscheduler setpriority prctl tgkill "
        "process_vm_readv membarrier sched_getscheduler sched_setaffinity listen getsockopt"
    ),
    "EMFILE": "openat fcntl close_range memfd_create pipe2 socket accept4",
    "EIO": "read close pread64 ftruncate getdents64",
    "EACCES": "newfstatat unlinkat readlink",
    "EINVAL": "rt_sigprocmask rt_sigaction",
    "EAGAIN": "clone clone3",
    "EBADF": "dup2",
    "ENOSPC": "write",
    "ESPIPE": "lseek",
    "ENOENT": "getcwd",
    "ESRCH": "getpriority",
    "ECONNREFUSED": "connect",
    "EINTR": "ppoll",
    "EADDRINUSE": "bind",
    "ECONNRESET": "recvfrom",
    "EPIPE": "sendto",
}
OTHERS = {call: error for error, calls in BY_ERROR.items() for call in calls.split()}
CALLS = {**MEMORY, **OTHERS}
# What is made only once another call has been refused.
ONLY_AFTER = {
    "pipe2": "process_vm_readv",
    "setpriority": "sched_setscheduler",
    "ftruncate": "write",
    "unlinkat": "write",
}
# As many in turn; programs make more of some, but then the same again and again. From so many on;
# and those alone where a library differs from another one in little.
IN_TURN = 40
FROM_ON = (1, 2, 4, 8, 16, 32)

_CALL = re.compile(r"^(\d+) +([a-z_0-9]+)\(")


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("refused.c", tmp_path_factory.mktemp("refused"))


@dataclass(frozen=True)
class Preloaded:
    """A library, and options beside those that all have."""

    variant: str
    options: str = ""

    @property
    def alone(self) -> Iterable[int]:
        """The calls that are refused alone."""
        return FROM_ON if self.options or self.variant == "hardened" else range(1, IN_TURN + 1)


ALL_PRELOADED = [
    *(Preloaded(variant) for variant in ("default", "pools", "record", "hardened")),
    Preloaded("default", ",guard_sample:32k"),
]


def named(preloaded: Preloaded) -> str:
    return preloaded.variant + preloaded.options.partition(":")[0].replace(",", "-")


def under_strace(
    subject: Path, preloaded: Preloaded, *words: str
) -> subprocess.CompletedProcess[str]:
    recorded = subject.with_name("trace.hft")
    recorded.unlink(missing_ok=True)
    variables = {
        "LD_PRELOAD": str(paths.library(preloaded.variant)),
        "HEAPFIT_OPTIONS": OPTIONS + preloaded.options,
        "HEAPFIT_RECORD": recorded.name,
    }
    command = ["strace", "-f", "-qqq", "-e", "signal=none", *words]
    for name, value in variables.items():
        command += ["-E", f"{name}={value}"]
    return process_groups.run([*command, str(subject)], timeout_s=TIMEOUT_S, cwd=subject.parent)


def refusals(call: str, when: str) -> list[str]:
    """What strace refuses so that `call` is made, and that it is refused, if `when` says so."""
    first = ONLY_AFTER.get(call)
    each = [f"inject={first}:error={CALLS[first]}"] if first else []
    each += [f"inject={call}:error={CALLS[call]}:when={when}"] if when else []
    return [word for inject in each for word in ("-e", inject)]


def counts(subject: Path, preloaded: Preloaded, log: Path, *words: str) -> Counter[str]:
    """How often a thread makes each call, of those that make the most of it."""
    under_strace(subject, preloaded, "-o", str(log), *words)
    by_thread: Counter[tuple[str, str]] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        if found := _CALL.match(line):
            by_thread[found[1], found[2]] += 1
    most: Counter[str] = Counter()
    for (_, call), count in by_thread.items():
        most[call] = max(most[call], count)
    return most


def check_refused(subject: Path, preloaded: Preloaded, call: str, when: str, loads: bool) -> None:
    """`loads`: whether the first call that is refused is one that the loader makes to load."""
    words = refusals(call, when)
    traced = ",".join(dict.fromkeys((call, ONLY_AFTER.get(call, call))))
    result = under_strace(subject, preloaded, "-o", "/dev/null", "-e", f"trace={traced}", *words)
    told = f"{words}: exit code {result.returncode}\n{result.stdout}\n{result.stderr[-2000:]}"
    if result.returncode == LOADER_GAVE_UP:
        assert any(words in result.stderr for words in LOADERS_WORDS), told
        return
    if loads and result.returncode == -signal.SIGSEGV and result.stdout + result.stderr == "":
        return  # it does not look whether it has got memory for its own lists
    assert result.returncode == 0, told
    assert re.search(r"^refused \d+ wrong 0$", result.stdout, re.MULTILINE), told
    if call not in MEMORY:
        assert "refused 0 " in result.stdout, told


# One alone, and all from one on.
@pytest.mark.full
@pytest.mark.parametrize("preloaded", ALL_PRELOADED, ids=named)
@pytest.mark.parametrize("which", ["", "+"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_may_be_refused(
    call: str, which: str, subject: Path, preloaded: Preloaded, tmp_path: Path
) -> None:
    made = counts(subject, preloaded, tmp_path / "log", *refusals(call, ""))[call]
    to_load = counts(subject, preloaded, tmp_path / "loader", *LOADER_ALONE)[call]
    for number in FROM_ON if which else preloaded.alone:
        if number <= made:
            check_refused(subject, preloaded, call, f"{number}{which}", number <= to_load)
