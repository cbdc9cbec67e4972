#!/usr/bin/env python3
"""Does it cost a program time to be measured?

The same program runs under a trial of the lab and under a bare fork, exec and wait4 (bare_run.c),
in pairs one right after the other, which of the two first being drawn. Each pair gives a ratio of
wall times; the median of the ratios is shown with its interval, and so is that of processor times,
which a busy machine disturbs less. The lab promises less than 0.5 % of a trial of one second.

Run it on a quiet machine, with heapfit installed:

    .venv/bin/python benchmarks/trial_overhead.py --pairs 200

With --metrics the optional metrics named are taken as well. Those that have a run of their own add
nothing to the run that is timed, only to the study's length.

Exits 0 when the interval lies below the limit, 1 when it lies above, 3 when it holds the limit:
then more pairs or a quieter machine are needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from heapfit.records import InstalledAllocator, Study, TrialStatus, Workload, WorkloadRun
from heapfit.statistics.median import Interval, median_interval
from heapfit.study import plan
from heapfit.trial import find_metrics, run_trial
from heapfit.trial.cores import split_cores
from heapfit.trial.launcher import find_launcher

HERE = Path(__file__).resolve().parent
LIMIT = 0.005
UNDECIDED = 3

# Enough for a median whose interval is narrow; each pair takes two runs of the program.
DEFAULT_PAIRS = 100
DEFAULT_SECONDS = 1.0

# How many rounds the work is timed with, to find how many make up the time wanted.
CALIBRATION_ROUNDS = 2000


@dataclass(frozen=True)
class Cost:
    """What a run took, in seconds: `around` is what it took beyond the program's own time."""

    wall: float
    processor: float
    around: float


class Benchmark:
    """Both ways to run the program, on the same core."""

    def __init__(self, folder: Path, seconds: float, metrics: Sequence[str]) -> None:
        self._folder = folder
        self._split = split_cores(1)
        self._bare = compiled(HERE / "bare_run.c", folder)
        self._work = compiled(HERE / "steady_work.c", folder)
        calibration = min(self._run_bare(CALIBRATION_ROUNDS).processor for _ in range(3))
        self.rounds = max(1, round(CALIBRATION_ROUNDS * seconds / calibration))
        self._study = self._plan(metrics)
        find_launcher()  # a trial is not to be timed with compiling it

    def _plan(self, metrics: Sequence[str]) -> Study:
        command = [str(self._work), str(self.rounds)]
        workload = Workload(
            name="steady-work",
            title="Steady work",
            question="What does it cost to be measured?",
            run=WorkloadRun(command=command),
        )
        system = InstalledAllocator(name="glibc", title="glibc", version="", library=None)
        study = plan(workload, [system], baseline="glibc", cores=[1], replicates=1)
        known = {metric.name for metric in study.metrics}
        added = [metric for metric in find_metrics(metrics) if metric.name not in known]
        return study.model_copy(update={"metrics": [*study.metrics, *added]})

    def run_bare(self) -> Cost:
        """Run the program with nothing around it."""
        return self._run_bare(self.rounds)

    def _run_bare(self, rounds: int) -> Cost:
        command = [str(self._bare), str(self._split.program[0]), str(self._work), str(rounds)]
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, check=True)
        elapsed = time.perf_counter() - start
        wall_ns, user_us, system_us = map(int, done.stdout.split())
        return Cost(wall_ns / 1e9, (user_us + system_us) / 1e6, elapsed - wall_ns / 1e9)

    def run_trial(self) -> Cost:
        """Run the program as a trial of the lab."""
        planned = self._study.plan[-1]
        start = time.perf_counter()
        trial = run_trial(self._study, planned, self._folder, None)
        elapsed = time.perf_counter() - start
        if trial.status is not TrialStatus.OK:
            sys.exit(f"the trial failed: {trial.reason}")
        wall = trial.metrics["wall_s"]
        processor = trial.metrics["user_s"] + trial.metrics["system_s"]
        return Cost(wall, processor, elapsed - wall)


def compiled(source: Path, folder: Path) -> Path:
    """Return the program made from `source` in `folder`."""
    program = folder / source.stem
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-std=gnu17", "-O2"]
    subprocess.run([*compiler, *flags, str(source), "-o", str(program)], check=True)
    return program


def measure(benchmark: Benchmark, pairs: int, seed: int) -> list[tuple[Cost, Cost]]:
    """Return (bare, trial) of each pair, after one that does not count."""
    draw = random.Random(seed)
    costs = []
    for pair in range(pairs + 1):
        if draw.random() < 0.5:
            bare, trial = benchmark.run_bare(), benchmark.run_trial()
        else:
            trial, bare = benchmark.run_trial(), benchmark.run_bare()
        costs.append((bare, trial))
        if sys.stderr.isatty():
            print(f"\rpair {pair} of {pairs}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return costs[1:]


def overhead(ratios: Sequence[float]) -> Interval:
    """Return the median of `ratios` as what exceeds 1, with its interval."""
    return median_interval([ratio - 1 for ratio in ratios])


def in_words(interval: Interval) -> str:
    low, high = interval.low, interval.high
    return f"{interval.median:+.3%} ({interval.coverage:.0%} interval {low:+.3%} to {high:+.3%})"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=DEFAULT_PAIRS)
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="of each run")
    parser.add_argument("--metrics", default="", help="optional metrics to take, by comma")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the pairs")
    parser.add_argument("--json", action="store_true", help="print every run and the results")
    arguments = parser.parse_args()
    if arguments.pairs < 1 or arguments.seconds <= 0:
        parser.error("--pairs and --seconds must be positive")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    wanted = [name for name in arguments.metrics.split(",") if name]
    with tempfile.TemporaryDirectory(prefix="heapfit-overhead-") as folder:
        benchmark = Benchmark(Path(folder), arguments.seconds, wanted)
        costs = measure(benchmark, arguments.pairs, arguments.seed)
    wall = overhead([trial.wall / bare.wall for bare, trial in costs])
    processor = overhead([trial.processor / bare.processor for bare, trial in costs])
    around = median_interval([trial.around for _, trial in costs])
    bare_wall = median_interval([bare.wall for bare, _ in costs])
    if arguments.json:
        named = {"wall": wall, "processor": processor, "around_s": around, "bare_s": bare_wall}
        runs = [{"bare": asdict(bare), "trial": asdict(trial)} for bare, trial in costs]
        print(json.dumps({**{k: asdict(v) for k, v in named.items()}, "runs": runs}, indent=2))
    else:
        print(f"{len(costs)} pairs of a program that runs {bare_wall.median:.3f} s by itself")
        print(f"wall time under a trial       {in_words(wall)}")
        print(f"processor time under a trial  {in_words(processor)}")
        print(f"before and after the program  {around.median * 1000:.1f} ms, in nobody's figures")
    if wall.high < LIMIT:
        return 0
    return 1 if wall.low > LIMIT else UNDECIDED


if __name__ == "__main__":
    sys.exit(main())
