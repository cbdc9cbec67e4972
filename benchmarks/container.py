#!/usr/bin/env python3
"""Does a program survive in a container when its free memory alone would exceed the limit?

Runs benchmarks/container_load.c, whose threads go through phases of different sizes, in a memory
control group under each allocator, one allocator after the other in each of the runs, and counts
which the kernel killed. Without a limit the load needs 1.1 to 1.4 times the default limit under
heapfit, most of which is free and waits to be used again; what is live at a time is some 0.6 of it.

    .venv/bin/python benchmarks/container.py --runs 100

    .venv/bin/python benchmarks/container.py --pairs 20

says instead what the limit costs: pairs of runs under heapfit, one in the group and one without any
limit, right after each other, and the ratio of their times. For this the machine must be quiet.

Needs a hierarchy of control groups that it may make a group in (root, in version 1 or 2). Exits 0
when no run under heapfit was killed, else 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import monotonic

from heapfit import catalogue, paths
from heapfit.statistics.median import median_interval

LOAD = Path(__file__).resolve().parent / "container_load.c"
PEERS = ("glibc", "jemalloc", "mimalloc", "mimalloc2", "tcmalloc")
MIB = 1 << 20
HIERARCHIES = (
    (Path("/sys/fs/cgroup"), "memory.max"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
)


@contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """Make a group of so many bytes, without swap; SystemExit when none can be made."""
    for root, name in HIERARCHIES:
        folder = root / f"heapfit-benchmark-{os.getpid()}"
        with suppress(OSError):
            folder.mkdir()
            try:
                if (folder / name).exists():
                    (folder / name).write_text(str(limit))
                    with suppress(OSError):
                        (folder / "memory.swap.max").write_text("0")
                    yield folder
                    return
            finally:
                folder.rmdir()
    sys.exit("container: no control group with a limit of memory can be made here")


def run(command: list[str], group: Path | None, preload: str) -> int | None:
    """Return the peak of the resident set in MiB; None when the kernel killed the program."""
    enter = 'echo $$ >"$0"/cgroup.procs && ' if group else ""
    words = ["sh", "-c", f'{enter}exec "$@"', str(group), "env", f"LD_PRELOAD={preload}", *command]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if done.returncode == -signal.SIGKILL:
        return None
    if done.returncode != 0:
        sys.exit(f"container: the load failed: exit code {done.returncode}")
    return int(done.stdout)


def libraries() -> dict[str, str]:
    """Return what to preload for heapfit and for those of the others that are installed."""
    found = {"heapfit": str(paths.library())}
    known = catalogue.load_allocators()
    for name in PEERS:
        installed = catalogue.find_installed(known[name])
        if installed is None:
            print(f"{name} is not installed: heapfit allocators install {name}", file=sys.stderr)
        else:
            found[name] = "" if installed.library is None else str(installed.library)
    return found


def price(command: list[str], group: Path, pairs: int) -> int:
    """Print the ratio of times with the limit to times without; return the exit code."""
    ratios = []
    for number in range(pairs + 1):  # the first pair warms up
        taken: dict[Path | None, float] = {}
        for where in (group, None) if number % 2 else (None, group):
            start_s = monotonic()
            if run(command, where, str(paths.library())) is None:
                print("killed")
                return 1
            taken[where] = monotonic() - start_s
        ratios.append(taken[group] / taken[None])
    found = median_interval(ratios[1:])
    print(f"time with the limit over time without, median of {pairs} pairs and its 95 % interval: "
          f"{found.median:.3f} ({found.low:.3f} to {found.high:.3f})")  # fmt: skip
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--limit", type=int, default=512, help="of the group, in MiB")
    parser.add_argument("--live", type=int, default=265, help="MiB that each phase allocates")
    parser.add_argument("--pairs", type=int, help="say what the limit costs, by so many pairs")
    arguments = parser.parse_args()
    found = libraries() if arguments.pairs is None else {}
    peaks: dict[str, list[int | None]] = {name: [] for name in found}
    with tempfile.TemporaryDirectory(prefix="heapfit-container-") as folder:
        load = f"{folder}/container_load"
        subprocess.run(["gcc", "-O1", "-pthread", LOAD, "-o", load], check=True)
        with control_group(arguments.limit * MIB) as group:
            if arguments.pairs is not None:
                return price([load, str(arguments.live)], group, arguments.pairs)
            for _ in range(arguments.runs):
                for name, library in found.items():
                    peaks[name].append(run([load, str(arguments.live)], group, library))
    print(f"{'allocator':12} {'runs':>5} {'killed':>7} {'median peak of the others':>26}")
    for name, each in peaks.items():
        survived = [peak for peak in each if peak is not None]
        peak = f"{median(survived):.0f} MiB" if survived else "-"
        print(f"{name:12} {len(each):5} {each.count(None):7} {peak:>26}")
    return 1 if None in peaks["heapfit"] else 0


if __name__ == "__main__":
    sys.exit(main())
