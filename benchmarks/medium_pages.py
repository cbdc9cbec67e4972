#!/usr/bin/env python3
"""What do pages of 64 KiB bring to a program that builds up its heap and ends?

Runs benchmarks/build_up.c under each allocator in pairs, one run with such pages enabled
(hugepages-64kB: madvise) and one without, right after each other, and prints the ratio of their
times. Beside it stands the time without: what there is to win.

    .venv/bin/python benchmarks/medium_pages.py --pairs 20

Needs Linux 6.8, root, and a quiet machine. The setting is put back at the end.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic

from container import libraries
from heapfit.statistics.median import median_interval

PROGRAM = Path(__file__).resolve().parent / "build_up.c"
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
WITH, WITHOUT = "madvise", "never"


@contextmanager
def setting_kept() -> Iterator[None]:
    """Put back what the setting was, however this ends; SystemExit where it cannot be changed."""
    try:
        before = ENABLED.read_text().partition("[")[2].partition("]")[0]
        ENABLED.write_text(before)
    except OSError as error:
        sys.exit(f"medium_pages: {ENABLED} cannot be set: {error.strerror}")
    try:
        yield
    finally:
        ENABLED.write_text(before)


def seconds(command: list[str], preload: str, setting: str) -> float:
    ENABLED.write_text(setting)
    environment = {**os.environ, "LD_PRELOAD": preload} if preload else None
    start_s = monotonic()
    subprocess.run(command, env=environment, check=True)
    return monotonic() - start_s


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--size", type=int, default=2048, help="of the heap, in MiB")
    arguments = parser.parse_args()
    found = libraries()
    taken: dict[str, dict[str, list[float]]] = {name: {WITH: [], WITHOUT: []} for name in found}
    with tempfile.TemporaryDirectory(prefix="heapfit-medium-") as folder, setting_kept():
        program = f"{folder}/build_up"
        subprocess.run(["gcc", "-O2", PROGRAM, "-o", program], check=True)
        for number in range(arguments.pairs + 1):
            for name, library in found.items():
                for setting in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
                    took_s = seconds([program, str(arguments.size)], library, setting)
                    if number > 0:  # the first pair warms up
                        taken[name][setting].append(took_s)
    print(f"{'allocator':12} {'without':>9} {'with, over without':>24}")
    for name, of in taken.items():
        ratios = [one / other for one, other in zip(of[WITH], of[WITHOUT], strict=True)]
        ratio = median_interval(ratios)
        print(f"{name:12} {median(of[WITHOUT]):7.2f} s "
              f"{ratio.median:8.2f} ({ratio.low:.2f} to {ratio.high:.2f})")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
