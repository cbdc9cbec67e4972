#!/usr/bin/env python3
"""How long does `heapfit report` take on a study of many trials?

Makes the folder of a study of 10 allocators x 4 cores x 25 levels of a factor, with made figures,
and times the whole command on it, from the start of Python to its end. The lab promises at most
30 seconds and 1 GiB for 100,000 trials on a quiet machine.

    .venv/bin/python benchmarks/report_speed.py --json docs/results/report-speed.json

Prints the wall and the processor time of each run, how large the page is, and the memory taken.
Exits 0 when the fastest run and the memory are within the limits, 1 when one is beyond.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "lab"))

from heapfit.records import Factor  # noqa: E402
from report_data import make_study, make_trials  # noqa: E402

LIMIT_S = 30.0
LIMIT_BYTES = 2**30
ALLOCATORS = ["glibc", "heapfit", "jemalloc", "mimalloc", "tcmalloc", *"abcde"]
LEVELS = [f"{level}" for level in range(1, 26)]


def make_folder(folder: Path, replicates: int) -> int:
    """Write the study and its trials; return how many there are."""
    study = make_study(
        allocators=ALLOCATORS,
        cores=(1, 2, 3, 4),
        replicates=replicates,
        warmups=0,
        factors=[Factor(name="threads", levels=LEVELS)],
    )
    trials = make_trials(study)
    (folder / "study.json").write_text(study.model_dump_json(indent=1))
    with (folder / "trials.jsonl").open("w") as journal:
        journal.writelines(f"{trial.model_dump_json()}\n" for trial in trials)
    return len(trials)


def run(folder: Path) -> tuple[float, float]:
    """Return the wall and the processor time of one `heapfit report`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    command = [sys.executable, "-m", "heapfit", "report", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description="Time `heapfit report` on many trials.")
    parser.add_argument("--replicates", type=int, default=100, help="1,000 trials each")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Keep the result there.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trials = make_folder(folder, arguments.replicates)
        times = []
        for number in range(1, arguments.runs + 1):
            wall, processor = run(folder)
            times.append(wall)
            print(f"run {number}: {trials:,} trials, {wall:.2f} s, processor {processor:.2f} s")
        size = (folder / "report.html").stat().st_size
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    print(f"The page: {size / 2**20:.1f} MiB. Memory: {most / 2**20:.0f} MiB at most. "
          f"Limits: {LIMIT_S:g} s, {LIMIT_BYTES >> 20} MiB.")  # fmt: skip
    if arguments.json is not None:
        found = {"trials": trials, "wall_s": times, "page_bytes": size, "peak_rss_bytes": most}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if min(times) <= LIMIT_S and most <= LIMIT_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
