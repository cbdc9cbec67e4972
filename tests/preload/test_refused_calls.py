"""Whatever the kernel refuses, a program works on, or is told that there is no memory.

strace refuses one system call after the other, and all from one on, in every thread. What is
refused may be the dynamic loader's, which gives up in a way of its own, whatever is preloaded.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import process_groups
import pytest
from comparison import PROGRAMS_FOLDER
from heapfit import paths

TIMEOUT_S = 60
OPTIONS = "control:on,zeroed_reserve:1m,stats_at_exit:1,huge_pages:always"
LOADER_GAVE_UP = 127
LOADERS_WORDS = ("error while loading shared libraries", "cannot allocate TLS data structures")
# With this it lists what it has loaded, and starts nothing.
LOADER_ALONE = ("-E", "LD_TRACE_LOADED_OBJECTS=1")

# Without these there may be no memory; without any other there is.
MEMORY = {"mmap": "ENOMEM", "mprotect": "ENOMEM"}
# Where the loader and the C library have no use for a program without it, the library has.
OTHERS = {
    "munmap": "ENOMEM",
    "mremap": "ENOMEM",
    "madvise": "ENOMEM",
    "mincore": "ENOSYS",
    "sysinfo": "EPERM",
    "prlimit64": "EPERM",
    "openat": "EMFILE",
    "read": "EIO",
    "newfstatat": "EACCES",
    "fcntl": "EMFILE",
    "getrandom": "ENOSYS",
    "sched_getaffinity": "EPERM",
    "sched_setscheduler": "EPERM",
    "setpriority": "EPERM",
    "prctl": "EPERM",
    "rt_sigprocmask": "EINVAL",
    "tgkill": "EPERM",
    "clone": "EAGAIN",
    "clone3": "EAGAIN",
    "close_range": "EMFILE",
    "dup2": "EBADF",
    "close": "EIO",
    "socket": "EMFILE",
    "bind": "EADDRINUSE",
    "listen": "EPERM",
    "accept4": "EMFILE",
    "poll": "ENOMEM",
    "recvfrom": "ECONNRESET",
    "sendto": "EPIPE",
    "getsockopt": "EPERM",
}
CALLS = {**MEMORY, **OTHERS}
# As many in turn; programs make more of some, but then the same again and again.
IN_TURN = 40

_CALL = re.compile(r"^(\d+) +([a-z_0-9]+)\(")


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("refused") / "refused"
    source = PROGRAMS_FOLDER / "refused.c"
    subprocess.run(["/usr/bin/gcc", "-O1", "-pthread", source, "-o", program], check=True)
    return program


@pytest.fixture(params=["default", "pools", "record"])
def preloaded(request: pytest.FixtureRequest) -> Path:
    return paths.library(request.param)


def under_strace(subject: Path, library: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = {
        "LD_PRELOAD": str(library),
        "HEAPFIT_OPTIONS": OPTIONS,
        "HEAPFIT_RECORD": str(subject.with_name(f"{os.getpid()}.hft")),
    }
    command = ["strace", "-f", "-qqq", "-e", "signal=none", *words]
    for name, value in variables.items():
        command += ["-E", f"{name}={value}"]
    return process_groups.run([*command, str(subject)], timeout_s=TIMEOUT_S)


def counts(subject: Path, library: Path, log: Path, *words: str) -> Counter[str]:
    """How often a thread makes each call, of those that make the most of it."""
    under_strace(subject, library, "-o", str(log), *words)
    by_thread: Counter[tuple[str, str]] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        if found := _CALL.match(line):
            by_thread[found[1], found[2]] += 1
    most: Counter[str] = Counter()
    for (_, call), count in by_thread.items():
        most[call] = max(most[call], count)
    return most


def check_refused(subject: Path, library: Path, call: str, when: str, loads: bool) -> None:
    """`loads`: whether the first call that is refused is one that the loader makes to load."""
    inject = f"inject={call}:error={CALLS[call]}:when={when}"
    words = ["-o", "/dev/null", "-e", f"trace={call}", "-e", inject]
    result = under_strace(subject, library, *words)
    told = f"{inject}: exit code {result.returncode}\n{result.stdout}\n{result.stderr[-2000:]}"
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
@pytest.mark.parametrize("which", ["", "+"])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_may_be_refused(
    call: str, which: str, subject: Path, preloaded: Path, tmp_path: Path
) -> None:
    made = counts(subject, preloaded, tmp_path / "log")[call]
    to_load = counts(subject, preloaded, tmp_path / "loader", *LOADER_ALONE)[call]
    for number in range(1, min(made, IN_TURN) + 1):
        check_refused(subject, preloaded, call, f"{number}{which}", number <= to_load)
