#!/usr/bin/env python3
"""How long does `heapfit compare` take from its start to its first trial, when it has run before?

The program that is compared makes a file as soon as it runs; the time from the start of the command
to the change of that file is what a user waits for before anything is measured. The command is run
once before, so that what is compiled and cached is there, and each run has a folder of its own.
The lab promises at most 0.6 seconds on a quiet machine, by the median.

    .venv/bin/python benchmarks/first_trial.py --json docs/results/first-trial.json

Exits 0 when the median is within the limit, 1 when it is beyond.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

LIMIT_S = 0.6


def to_first_trial(folder: Path) -> float:
    """Return the seconds from the start of a `heapfit compare` to that of its first program."""
    mark, out = folder / "mark", folder / "out"
    command = [sys.executable, "-m", "heapfit", "compare", "--aa", "--replicates", "1",
               "--warmups", "0", "--out", str(out),
               "--", "sh", "-c", f"[ -e {mark} ] || : > {mark}"]  # fmt: skip
    start = time.time()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return mark.stat().st_mtime - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Keep the result there.")
    arguments = parser.parse_args()
    times = []
    for _ in range(arguments.runs + 1):
        with tempfile.TemporaryDirectory() as name:
            times.append(to_first_trial(Path(name)))
    warm = times[1:]
    print(f"To the first trial: {median(warm):.2f} s, from {min(warm):.2f} to {max(warm):.2f}; "
          f"limit: {LIMIT_S:g} s.")  # fmt: skip
    if arguments.json is not None:
        found = json.dumps({"to_first_trial_s": warm}, indent=1)
        arguments.json.write_text(found + "\n", encoding="utf-8")
    return 0 if median(warm) <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
