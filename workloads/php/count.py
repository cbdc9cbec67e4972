"""Counts what PHP asks its memory manager for while an application answers: calls for a request.

The paper's Table 3 has these figures. heapfit's extension counts every malloc, free and realloc of
a request, and what its heap takes at most. After a warm-up, which fills caches, each answer of the
load is a line of its file; printed are the means. Two further figures are those of the paper's
Figure 9: what PHP uses at most in a request, and what its heap takes for that.

Usage: count.py --application FOLDER --data FOLDER --scratch FOLDER --port PORT
                [--mode defrag-dodging|region] [--requests N] [--warmup N] [--edits PERCENT]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGTERM
from statistics import fmean

import drive
import native
import php
import processes
from application import Application
from layout import Layout
from stack import Stack, end_on

# A line of the extension's file: these figures, then the request's path.
COLUMNS = (
    "mallocs",
    "frees",
    "reallocs",
    "malloc_bytes",
    "realloc_bytes",
    "peak_used_bytes",
    "peak_heap_bytes",
)
# As few as keep the worker busy: the counts do not depend on it.
CONNECTIONS = 2
WORKERS = 1
# How long after the last answer its line may come, on a busy machine.
COUNTED_WITHIN_S = 10.0
COUNTED_POLL_S = 0.01


def counting(application: Application, counts: Path) -> Application:
    """The application with an extension that writes its counts to the file `counts`."""
    ini = {**application.ini, "heapfit.count": "1", "heapfit.count_file": str(counts)}
    return replace(application, ini=ini)


def read_counts(lines: list[str]) -> dict[str, list[float]]:
    """The figures of each request, by column."""
    rows = [list(map(float, line.split("\t")[: len(COLUMNS)])) for line in lines]
    return {name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}


def report(counts: dict[str, list[float]]) -> list[str]:
    """A metric a line: means for a request, and the mean size of what malloc is asked for."""
    means = {name: fmean(values) for name, values in counts.items()}
    return [
        f"mallocs_per_request {means['mallocs']:.2f}",
        f"frees_per_request {means['frees']:.2f}",
        f"reallocs_per_request {means['reallocs']:.2f}",
        f"mean_malloc_bytes {means['malloc_bytes'] / means['mallocs']:.3f}",
        f"peak_used_bytes {means['peak_used_bytes']:.0f}",
        f"peak_heap_bytes {means['peak_heap_bytes']:.0f}",
    ]


def count(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Serve the application, drive it, and return the figures of each request of the load."""
    layout = Layout(
        here=arguments.application.resolve(),
        data=arguments.data.resolve(),
        scratch=arguments.scratch.resolve(),
    )
    counts = layout.scratch / "counts.tsv"
    application = counting(Application.load(layout.here), counts)
    manager = php.MemoryManager(mode=arguments.mode, extension=native.extension(layout.data))
    plan = layout.scratch / "plan"
    drive.write_plan(drive.make_plan(application.all_pages(layout.data), arguments.edits), plan)
    with Stack(application, layout, arguments.port, manager, WORKERS).running():
        drive.run_load(plan, arguments.port, arguments.warmup, CONNECTIONS)
        before = len(counted_lines(counts, arguments.warmup))
        drive.run_load(plan, arguments.port, arguments.requests, CONNECTIONS)
        lines = counted_lines(counts, before + arguments.requests)[before:]
    return read_counts(lines)


def counted_lines(counts: Path, expected: int) -> list[str]:
    """The lines of the file, once there are so many: a request is counted after its answer."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    lines: list[str] = []
    while time.monotonic() < deadline:
        lines = counts.read_text().splitlines() if counts.exists() else []
        if len(lines) >= expected:
            return lines
        time.sleep(COUNTED_POLL_S)
    sys.exit(f"count.py: {len(lines)} of {expected} requests were counted")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Count what an application's requests allocate.")
    parser.add_argument("--application", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--scratch", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--mode", choices=php.EXTENSION_MODES, default=php.EXTENSION_MODES[0])
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--edits", type=int, default=0, metavar="PERCENT")
    return parser.parse_args()


def main() -> None:
    end_on(SIGTERM, SIGINT)
    try:
        counts = count(parse())
    except processes.Failed as failure:
        sys.exit(f"count.py: {failure}")
    print("\n".join(report(counts)))
    print("answers right")


if __name__ == "__main__":
    main()
