"""The processes below a launcher, read straight from /proc with as few system calls as possible."""

import os
import re
from functools import cache
from pathlib import Path

from heapfit.host.machine import has_huge_page_pool

PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_STATM_SIZE = 128  # seven numbers of at most twenty digits would fit; real lines have about forty
_CHILDREN_SIZE = 64 * 1024
_MOST_KEPT = 256  # open files: of more processes they are opened for each look
_POOLED = re.compile(rb"^HugetlbPages:\s*(\d+) kB$", re.MULTILINE)
_KIB = 1024

# A study asks before each trial.
_has_pool = cache(has_huge_page_pool)


def children_are_listed() -> bool:
    """Whether the kernel lists a task's children (CONFIG_PROC_CHILDREN)."""
    return Path(f"/proc/self/task/{os.getpid()}/children").exists()


class ProcessTree:
    """The descendants of `root`, without `root` itself."""

    def __init__(self, root: int) -> None:
        self._root = root
        self.most_threads = 0  # that one process was seen to have at the same time
        self._statm: dict[int, int] = {}  # process id to an open /proc/PID/statm
        self._pooled = pooled if _has_pool() else lambda _: 0

    def close(self) -> None:
        for fd in self._statm.values():
            os.close(fd)
        self._statm.clear()

    def processes(self) -> list[tuple[int, int]]:
        """Return (parent, process) pairs, parents before their children."""
        found: list[tuple[int, int]] = []
        unvisited = [self._root]
        while unvisited:
            parent = unvisited.pop()
            threads, children = _threads_and_children(parent)
            if parent != self._root:
                self.most_threads = max(self.most_threads, threads)
            for child in children:
                found.append((parent, child))
                unvisited.append(child)
        return found

    def resident(self) -> dict[int, int]:
        """Return the resident bytes of each process, those that it shares with others among them,
        and those that it has of the huge-page pool.

        A child that has exactly its parent's sizes borrows its parent's address space (vfork) or
        has just been forked. It does not count, as it holds nothing yet.
        """
        lines: dict[int, bytes] = {}
        found: dict[int, int] = {}
        for parent, process in self.processes():
            line = self._read_statm(process)
            lines[process] = line
            if line and line != lines.get(parent):
                pages = int(line.split(maxsplit=2)[1])
                found[process] = pages * PAGE_SIZE + self._pooled(process)
        self._forget_all_but(lines)
        return found

    def _read_statm(self, process: int) -> bytes:
        """Return /proc/PID/statm, or nothing once the process is gone."""
        try:
            if process in self._statm:
                return os.pread(self._statm[process], _STATM_SIZE, 0)
            fd = os.open(f"/proc/{process}/statm", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(fd, _STATM_SIZE, 0)
            finally:
                if len(self._statm) < _MOST_KEPT:
                    self._statm[process] = fd
                else:
                    os.close(fd)
        except OSError:  # it ended between two looks, which is the normal end of a process
            return b""

    def _forget_all_but(self, living: dict[int, bytes]) -> None:
        for process in [known for known in self._statm if not living.get(known)]:
            os.close(self._statm.pop(process))


def pooled(process: int) -> int:
    """Return the bytes of a process in pages of the huge-page pool: no resident size has them."""
    try:
        found = _POOLED.search(Path(f"/proc/{process}/status").read_bytes())
    except OSError:
        return 0
    return int(found[1]) * _KIB if found else 0


def _threads_and_children(process: int) -> tuple[int, list[int]]:
    tasks = f"/proc/{process}/task"
    threads: list[str] = []
    found: list[int] = []
    try:
        threads = os.listdir(tasks)
        for task in threads:
            fd = os.open(f"{tasks}/{task}/children", os.O_RDONLY | os.O_CLOEXEC)
            try:
                found += map(int, os.read(fd, _CHILDREN_SIZE).split())
            finally:
                os.close(fd)
    except OSError:  # a thread or the process ended meanwhile
        pass
    return len(threads), found
