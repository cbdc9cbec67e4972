"""Programs at their limit of memory: a control group's, and the kernel's own of a process.

What was freed must be there for other sizes and other threads before the limit is met: a control
group that is over its limit loses a process, and nobody is told that memory was kept.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from checking import check_same_with_and_without
from comparison import Program
from subjects import compiled
from test_programs import PROGRAMS

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parent.parent.parent
MIB = 1 << 20
# `phases` holds 40 MiB. The smallest objects take a third more than is asked for, and a pointer to
# each; the program itself comes on top, with its libraries and threads.
LIMIT_MIB = 96
# Version 2 of control groups, and version 1.
HIERARCHIES = [
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
]


class Group:
    """A control group of this test's own. What it limits may use the disk no more than memory."""

    def __init__(self, folder: Path, limit: str) -> None:
        self._folder, self._limit = folder, limit

    def command(self, mebibytes: int, command: list[str]) -> list[str]:
        """Return a command that is run within the limit."""
        self.set_limit(mebibytes)
        for swap in ["memory.swap.max", "memory.memsw.limit_in_bytes"]:
            with suppress(OSError):
                value = 0 if swap == "memory.swap.max" else mebibytes * MIB
                (self._folder / swap).write_text(str(value))
        script = 'echo $$ >"$0"/cgroup.procs && exec "$@"'
        return ["sh", "-c", script, str(self._folder), *command]

    def set_limit(self, mebibytes: int) -> None:
        """Set the limit anew. Version 1 refuses one below what cannot be taken away."""
        (self._folder / self._limit).write_text(str(mebibytes * MIB))


@pytest.fixture
def group() -> Iterator[Group]:
    why = "no hierarchy has a limit of memory"
    for root, limit in HIERARCHIES:
        folder = root / f"heapfit-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            why = str(error.strerror)
            continue
        try:
            if (folder / limit).exists():
                yield Group(folder, limit)
                return
        finally:
            folder.rmdir()
    pytest.skip(f"no memory control group can be made here: {why}")


@pytest.mark.parametrize("settings", ["", "huge_pages:always"])
def test_what_was_freed_is_there_for_other_sizes_in_a_control_group(
    settings: str, phases: Program, group: Group, library: Path, tmp_path: Path
) -> None:
    limited = replace(
        phases,
        command=group.command(LIMIT_MIB, phases.command),
        environment={"HEAPFIT_OPTIONS": settings},
    )
    check_same_with_and_without(limited, library, tmp_path)


@pytest.mark.parametrize("kind", ["data", "as"])
def test_what_was_freed_is_there_for_other_sizes_under_a_processs_limit(
    kind: str, phases: Program, library: Path, tmp_path: Path
) -> None:
    # What has been made accessible counts as data, in use or not; and of address space
    # the library takes half.
    mebibytes = {"data": 2 * LIMIT_MIB, "as": 8 * LIMIT_MIB}[kind]
    words = ["prlimit", f"--{kind}={mebibytes * MIB}", *phases.command]
    limited = replace(phases, command=words, packages=[*phases.packages, "util-linux"])
    check_same_with_and_without(limited, library, tmp_path)


# What each needs without the library, and a quarter to a half more.
@pytest.mark.parametrize(("name", "mebibytes"), [("perl", 26), ("python3-documents", 56)])
def test_a_real_program_stays_within_its_control_group(
    name: str, mebibytes: int, group: Group, library: Path, tmp_path: Path
) -> None:
    program = next(program for program in PROGRAMS if program.name == name)
    limited = replace(program, command=group.command(mebibytes, program.command))
    check_same_with_and_without(limited, library, tmp_path)


LOCKS = """
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(void)
{
    char *object = malloc(100000);
    memset(object, 1, 100000);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return printf("%s\\n", strerror(errno)), 1;
    for (int i = 0; i < 100; i++)
        if (!malloc(10000)) return printf("malloc: %s\\n", strerror(errno)), 1;
    return puts("locked"), 0;
}
"""
# What systemd, and the kernel since 5.16, grant to everybody.
LOCKED_LIMIT = 8 * MIB
NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a program as another user")
def test_an_ordinary_user_may_lock_a_small_programs_memory(library: Path, tmp_path: Path) -> None:
    """The kernel compares the limit with all address space, also what was only reserved."""
    (tmp_path / "locks.c").write_text(LOCKS)
    program = compiled(tmp_path / "locks.c", tmp_path)
    for folder in [tmp_path, *tmp_path.parents]:
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o111)

    def as_nobody() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (LOCKED_LIMIT, LOCKED_LIMIT))
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    readable = Path(shutil.copy(library, tmp_path))  # by another user
    preloads = ["", str(readable)] if library.name == "libheapfit.so" else [""]
    for preload in preloads:
        done = subprocess.run(
            [program],
            env={"LD_PRELOAD": preload},
            preexec_fn=as_nobody,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr, done.returncode) == ("locked\n", "", 0), preload


def environment_with(library: Path, settings: str) -> dict[str, str]:
    return {**os.environ, "LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": settings}


# Without a limit its free memory waits: then it needs more, how much depends on how threads take
# turns (benchmarks/container.py runs it a hundred times, and other allocators beside it).
@pytest.mark.full
@pytest.mark.unhardened("needs more for the same objects, by canaries and its quarantine")
def test_free_memory_that_waits_does_not_count_in_a_container(
    group: Group, library: Path, tmp_path: Path
) -> None:
    load = [str(compiled(ROOT / "benchmarks/container_load.c", tmp_path)), "320"]
    waits, limit = "decay_ms:10000", 512  # longer than a phase takes, on any machine
    free = environment_with(library, f"{waits},memory_limit:none")
    alone = subprocess.run(load, env=free, check=True, capture_output=True, text=True)
    assert int(alone.stdout) > limit
    command = group.command(limit, load)
    within = subprocess.run(command, env=environment_with(library, waits), stdout=subprocess.PIPE)
    assert within.returncode == 0, "it was killed"
    assert int(within.stdout) < limit
