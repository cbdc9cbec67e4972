"""Divides PHP's CPU time for a request: memory operations, the kernel, everything else.

The paper's Figure 6 does the same with OProfile. Here `perf` samples php-fpm's workers by the CPU's
clock while the load runs, which works in virtual machines too. A sample is a memory operation when
it is in Zend's memory manager, in heapfit's extension, in the C library's malloc or in a preloaded
allocator. Debian's binaries have no local symbols, but a C file's functions lie together, between
exported ones that are known. Prints a table in Markdown.

Usage: cpu_share.py --application FOLDER --data FOLDER [--modes A,B] [--requests N]
                    [--huge-pages 0|1]
Needs perf (Debian: linux-perf) and the right to use it (root, or kernel.perf_event_paranoid at 1).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import by_mode
import drive
import php
from application import Application
from stack import PRELOAD, Stack
from visit import free_port
from workers import Workers

MEMORY, KERNEL, REST = "memory operations", "kernel", "everything else"
PARTS = (MEMORY, KERNEL, REST)
# A prime number: in step with nothing that the program does.
SAMPLES_PER_S = 997
CONNECTIONS = 2
_STOP_TIMEOUT_S = 60
_EXTENSION = "heapfit.so"
# In each binary the exported functions between which its memory manager lies: the first of the C
# file, and the last.
_MANAGERS = {
    "php-fpm": ("__zend_malloc", "zend_mm_startup_ex"),
    "libc.so": ("__default_morecore", "malloc_info"),
}


@dataclass(frozen=True)
class Mapping:
    """An executable part of a file in a process."""

    start: int
    end: int
    offset: int
    path: str


@dataclass(frozen=True)
class Map:
    """Tells what an address of a worker belongs to."""

    mappings: list[Mapping]
    preloaded: frozenset[str]

    @classmethod
    def of(cls, process: int, preloaded: frozenset[str]) -> Map:
        found = []
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            words = line.split(maxsplit=5)
            if "x" in words[1] and len(words) == 6:
                start, end = (int(word, 16) for word in words[0].split("-"))
                found.append(Mapping(start, end, int(words[2], 16), words[5]))
        return cls(sorted(found, key=lambda each: each.start), preloaded)

    def part(self, address: int) -> str:
        """Which of `PARTS` a sample at this address counts for."""
        if address >> 63:
            return KERNEL
        at = bisect_right([each.start for each in self.mappings], address) - 1
        if at < 0 or address >= self.mappings[at].end:
            return REST
        mapping = self.mappings[at]
        name = Path(mapping.path).name
        if name == _EXTENSION or mapping.path in self.preloaded:
            return MEMORY
        for prefix in _MANAGERS:
            if name.startswith(prefix):
                first, end = manager_of(mapping.path, prefix)
                return MEMORY if first <= address - mapping.start + mapping.offset < end else REST
        return REST


_ranges: dict[str, tuple[int, int]] = {}


def manager_of(path: str, prefix: str) -> tuple[int, int]:
    """Where in a binary its memory manager begins and ends, in bytes from the file's start."""
    if path not in _ranges:
        first, last = _MANAGERS[prefix]
        lines = subprocess.run(
            ["nm", "--dynamic", "--defined-only", "--numeric-sort", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        symbols = [(int(words[0], 16), words[2].split("@")[0]) for words in map(str.split, lines)]
        places = {name: address for address, name in symbols}
        if first not in places or last not in places:
            sys.exit(f"cpu_share.py: {path} exports no {first} or no {last}")
        end = min(address for address, _ in symbols if address > places[last])
        _ranges[path] = places[first], end
    return _ranges[path]


@contextmanager
def sampled(workers: Workers, output: Path) -> Iterator[None]:
    """Have perf sample the workers as long as this lasts."""
    command = ["perf", "record", "--quiet", "--event", "cpu-clock", "--freq", str(SAMPLES_PER_S)]
    command += ["--output", str(output), "--pid", ",".join(map(str, workers.processes))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as perf:
        try:
            yield
        finally:
            perf.send_signal(signal.SIGINT)
            _, said = perf.communicate(timeout=_STOP_TIMEOUT_S)
    if not output.exists():
        sys.exit(f"cpu_share.py: perf failed: {said.strip()}")


def addresses(output: Path) -> Iterator[int]:
    words = ["perf", "script", "--fields", "ip", "--input", str(output)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for line in done.stdout.split():
        yield int(line, 16)


def measure(arguments: argparse.Namespace, mode: str, scratch: Path) -> tuple[float, Counter[str]]:
    """The CPU time of PHP for a request under `mode`, and the samples of each part."""
    layout = by_mode.layout_of(arguments, scratch)
    application = Application.load(layout.here)
    manager = php.MemoryManager(
        mode=mode,
        huge_pages=arguments.huge_pages == "1" and mode != php.MALLOC,
        extension=by_mode.extension_for(mode, layout),
    )
    plan, port = by_mode.write_plan(application, layout, arguments.edits), free_port()
    preloaded = frozenset(map(os.path.realpath, os.environ.get(PRELOAD, "").split(":")))
    with Stack(application, layout, port, manager).running():
        drive.run_load(plan, port, arguments.warmup, CONNECTIONS)
        workers = Workers.of(scratch)
        used_s = workers.cpu_s()
        with sampled(workers, scratch / "perf.data"):
            drive.run_load(plan, port, arguments.requests, CONNECTIONS)
        used_s = workers.cpu_s() - used_s
        places = Map.of(workers.processes[0], preloaded)
    parts = Counter(map(places.part, addresses(scratch / "perf.data")))
    return used_s / arguments.requests, parts


def row(mode: str, used_s: float, parts: Counter[str]) -> str:
    total = sum(parts.values())
    cells = [f"{1e3 * used_s:.2f}", *(f"{100 * parts[part] / total:.1f} %" for part in PARTS)]
    cells.append(f"{1e3 * used_s * parts[MEMORY] / total:.3f}")
    return f"| {mode} | {' | '.join(cells)} |"


def parse() -> argparse.Namespace:
    parser = by_mode.parser("Divide PHP's CPU time for a request.", php.MODES, requests=300)
    parser.add_argument("--huge-pages", choices=("0", "1"), default="0")
    parser.add_argument("--warmup", type=int, default=40)
    return by_mode.parse(parser)


def main() -> None:
    arguments = parse()
    if shutil.which("perf") is None:
        sys.exit("cpu_share.py: perf is not installed (Debian: linux-perf)")
    print(f"| mode | CPU ms a request | {' | '.join(PARTS)} | memory operations, ms |")
    print(f"|---|{'---:|' * (len(PARTS) + 2)}")
    by_mode.print_rows(
        arguments.modes, lambda mode, scratch: row(mode, *measure(arguments, mode, scratch))
    )


if __name__ == "__main__":
    main()
