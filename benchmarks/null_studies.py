#!/usr/bin/env python3
"""How often does `heapfit compare` say something false where there is nothing to find?

Compares one allocator's library under five names, copies of the same file, on workloads of the
catalogue. Each difference that a report tells is false. Counted are the studies in which

- a conclusion says that an allocator leads, or that some differ;
- the recommendation rests on a difference: another name than the baseline is recommended, the
  baseline is kept against others, or some are better in one respect and worse in another.

Run it on a quiet machine. A study that has not ended when the time is up does not count:

    .venv/bin/python benchmarks/null_studies.py --max-time 60 --json docs/results/null-studies.json

Studies are kept in the folder: the same command counts them and goes on. Prints a table with a row
for each workload. Exits 1 where conclusions on one metric, or recommendations, are false in more
than 5 % of the studies beyond doubt (binomial test), else 0.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

from scipy.stats import binomtest

ROOT = Path(__file__).resolve().parent.parent
NAMES = ("first", "second", "third", "fourth", "fifth")
WORKLOADS = ("sqlite", "python-tree", "lua", "xml-transform", "perl-pods")
STUDIES, RECOMMENDATION = "studies", "recommendation"
PROMISED, DOUBT = 0.05, 0.01
# A conclusion of a difference, as `report/conclusions.py` writes it.
DIFFERENCE = re.compile(
    r"On (?P<metric>[\w ]+), .*(leads|some differ from each other|shown to be better in the blocks)"
)


def copied(library: Path, folder: Path) -> str:
    """Copy the library under each name, and return what --allocators takes."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: folder / f"lib{name}.so" for name in NAMES}
    for path in made.values():
        if not path.exists():  # Another file would be another study.
            shutil.copy(library, path)
    return ",".join(f"{name}={path.resolve()}" for name, path in made.items())


def run(workload: str, allocators: str, seed: int, blocks: int, out: Path, left_s: float) -> bool:
    """Run a study, or what is missing of it; return whether it has ended in the time left."""
    command = [sys.executable, "-m", "heapfit", "compare", workload, "--cores", "1",
               "--allocators", allocators, "--baseline", NAMES[0], "--replicates", f"{blocks}",
               "--seed", f"{seed}", "--out", f"{out}"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'lab'}"}
    try:
        subprocess.run(command, check=True, timeout=left_s, stdout=subprocess.DEVNULL,
                       env=environment)  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return True


def false_of(report: Path) -> Iterator[str]:
    """Yield what is false in a report: the metric of a conclusion, or the recommendation."""
    told = json.loads(report.read_text(encoding="utf-8"))
    for found in {m["metric"] for m in map(DIFFERENCE.match, told["conclusions"]) if m}:
        yield str(found)
    if told["advice"] and told["advice"]["differs"]:
        yield RECOMMENDATION


def table(counts: dict[str, Counter[str]]) -> str:
    """Return how many studies of each workload, and of all, are false in what."""
    counts = {**counts, "all": sum(counts.values(), Counter())}
    kinds = [STUDIES, *sorted({kind for own in counts.values() for kind in own} - {STUDIES})]
    lines = [f"{'':16}{''.join(f'{kind:>24}' for kind in kinds)}"]
    for name, own in counts.items():
        lines.append(f"{name:16}{''.join(f'{own[kind]:>24}' for kind in kinds)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, default=ROOT / "build/release/libheapfit.so")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), metavar="A,B")
    parser.add_argument("--replicates", type=int, default=6, metavar="N")
    parser.add_argument("--max-time", type=float, default=60, metavar="MINUTES", help="In all.")
    parser.add_argument("--out", type=Path, default=Path("heapfit-results/null"), metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Keep the counts there.")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.max_time
    allocators = copied(given.library, given.out / "libraries")
    counts: dict[str, Counter[str]] = {}
    for seed, workload in zip(count(1), cycle(given.workloads.split(",")), strict=False):
        out = given.out / f"{workload}-{seed}"
        if not run(workload, allocators, seed, given.replicates, out, end - time.monotonic()):
            break
        counts.setdefault(workload, Counter()).update([STUDIES, *false_of(out / "report.json")])
    print(table(counts))
    total = sum(counts.values(), Counter())
    if given.json is not None:
        kept = {"library": given.library.name, "names": len(NAMES), "counts": counts}
        given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    shares = [binomtest(total[kind], total[STUDIES], PROMISED, "greater").pvalue
              for kind in total if kind != STUDIES]  # fmt: skip
    return int(any(p < DOUBT for p in shares))


if __name__ == "__main__":
    sys.exit(main())
