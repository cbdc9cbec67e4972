"""What the workers of the telephone directory use: CPU time and memory, restarts or not.

Of a worker that has left, the ledger knows (directory/lib/ledger.rb); a living one is asked by way
of the kernel. CPU time that a worker spent on its start is kept apart from that spent on requests.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

KIB = 1024
POLL_S = 0.02
# A worker that ends while it is looked at has noted its departure within this time.
SETTLE_S = 10.0

_libc = ctypes.CDLL(None, use_errno=True)


class Gone(Exception):
    """The process has ended, or is about to."""


@dataclass(frozen=True)
class Figures:
    """What a worker has used since it began."""

    cpu_s: float
    rss_bytes: int
    pss_bytes: int


@dataclass
class Worker:
    """A worker by its ledger."""

    start_cpu_s: float
    is_serving: bool = False
    departure: Figures | None = None


@dataclass(frozen=True)
class Used:
    """What all workers used together. Memory is the mean over those that answered requests, each
    when it left or at the end of the load."""

    serving_cpu_s: float
    start_cpu_s: float
    rss_bytes: float
    pss_bytes: float
    restarts: int


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, finer than the ticks of /proc/PID/stat."""
    clock = ctypes.c_int()
    if _libc.clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        raise Gone
    try:
        return time.clock_gettime(clock.value)
    except OSError as error:
        raise Gone from error


def figures_of(pid: int) -> Figures:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError) as error:
        raise Gone from error
    sizes = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB$", rollup, re.MULTILINE))
    if len(sizes) != 2:
        raise Gone
    return Figures(cpu_seconds(pid), int(sizes["Rss"]) * KIB, int(sizes["Pss"]) * KIB)


class Workers:
    """The workers of one trial, `count` of them at a time."""

    def __init__(self, ledger: Path, count: int) -> None:
        self._ledger = ledger
        self._count = count
        self._at_begin: dict[int, float] = {}

    def wait_until_started(self, deadline: float) -> None:
        while len(self._read()) < self._count:
            if time.monotonic() > deadline:
                sys.exit("workers.py: the workers did not start in time")
            time.sleep(POLL_S)

    def begin(self) -> None:
        """Note what the workers have used before the load."""
        self._at_begin = {pid: cpu_seconds(pid) for pid in self._read()}

    def end(self) -> Used:
        """Return what the workers have used since `begin`."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            workers = self._read()
            try:
                return self._sum(workers)
            except Gone:
                # Its departure will be in the ledger.
                if time.monotonic() > deadline:
                    sys.exit("workers.py: a worker ended without a note in the ledger")
                time.sleep(POLL_S)

    def _sum(self, workers: dict[int, Worker]) -> Used:
        served = {pid: worker for pid, worker in workers.items() if worker.is_serving}
        final = {pid: worker.departure or figures_of(pid) for pid, worker in served.items()}
        begun = {pid: self._at_begin.get(pid, worker.start_cpu_s) for pid, worker in served.items()}
        return Used(
            serving_cpu_s=sum(final[pid].cpu_s - begun[pid] for pid in served),
            start_cpu_s=fmean(worker.start_cpu_s for worker in workers.values()),
            rss_bytes=fmean(figures.rss_bytes for figures in final.values()),
            pss_bytes=fmean(figures.pss_bytes for figures in final.values()),
            restarts=sum(worker.departure is not None for worker in workers.values()),
        )

    def _read(self) -> dict[int, Worker]:
        workers: dict[int, Worker] = {}
        text = self._ledger.read_text() if self._ledger.exists() else ""
        for line in text.splitlines():
            event, word, *figures = line.split()
            pid = int(word)
            match event:
                case "started":
                    workers[pid] = Worker(float(figures[0]))
                case "serving":
                    workers[pid].is_serving = True
                case "left":
                    cpu_s, _, rss, pss = figures
                    memory = int(rss) * KIB, int(pss) * KIB
                    workers[pid].departure = Figures(float(cpu_s), *memory)
        return workers
