#!/usr/bin/env python3
"""What does heapfit bring to programs that run on musl, as Alpine's do?

Compiles the programs of tests/musl/musl_programs.py for musl and runs each in pairs, on musl's own
malloc and with heapfit preloaded, one right after the other, which of the two first being drawn.
A pair gives a ratio of times and one of peak resident sizes; their medians are shown with
their intervals. Both runs of a pair must print the same.

    cmake --preset musl && cmake --build --preset musl --target heapfit
    .venv/bin/python benchmarks/musl.py --pairs 20 --json docs/results/musl.json

Needs musl-tools, cargo (for the sources of SQLite and Lua) and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from heapfit.statistics.median import Interval, median_interval
from heapfit.trial.launcher import Running, find_launcher

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "tests" / "musl"))

from musl_programs import BY_NAME, Program, compile_into  # noqa: E402

LIBRARY = ROOT / "build" / "musl" / "libheapfit.so"
DEFAULT_PAIRS = 20
TIMEOUT_S = 300.0
MIB = 1 << 20


@dataclass(frozen=True)
class Run:
    """What one run took, and what it printed."""

    wall_s: float
    peak_bytes: int
    printed: bytes


@dataclass(frozen=True)
class Pair:
    """A run on musl's own malloc, and the one beside it with heapfit."""

    musl: Run
    heapfit: Run


@dataclass(frozen=True)
class Answer:
    """What the pairs of a program come to; ratios are heapfit's figure over musl's."""

    program: str
    musl_s: Interval
    musl_bytes: Interval
    time: Interval
    peak: Interval
    pairs: list[dict[str, list[float]]]


class Bench:
    """Runs programs in a folder, on some processors."""

    def __init__(self, folder: Path, library: Path, cpus: Sequence[int]) -> None:
        self._folder = folder
        self._library = library
        self._cpus = cpus
        self._launcher = find_launcher()

    def pair(self, program: Program, arguments: Sequence[str], draw: random.Random) -> Pair:
        """Run a program twice; the benchmark ends when the two do not print the same."""
        sides = [{}, {"LD_PRELOAD": str(self._library)}]
        order = draw.sample([0, 1], 2)
        runs = {side: self._run(program, arguments, sides[side]) for side in order}
        if runs[0].printed != runs[1].printed:
            sys.exit(f"{program.name} does not print the same with heapfit")
        return Pair(runs[0], runs[1])

    def _run(self, program: Program, arguments: Sequence[str], changes: dict[str, str]) -> Run:
        printed, told = self._folder / "stdout", self._folder / "stderr"
        with Running(
            self._launcher,
            [str(self._folder / program.name), *arguments],
            cpus=self._cpus,
            directory=self._folder,
            environment={"LC_ALL": "C.UTF-8"},
            changes=changes,
            stdin=None,
            stdout=printed,
            stderr=told,
        ) as running:
            ended = running.wait(TIMEOUT_S)
        if ended is None or ended.exit_code != 0:
            sys.exit(f"{program.name} failed with {changes or 'nothing'} set: {told.read_text()}")
        return Run(ended.wall_s, ended.max_rss_bytes, printed.read_bytes())


def answer(program: str, pairs: Sequence[Pair]) -> Answer:
    """Sum the pairs of a program up."""
    return Answer(
        program=program,
        musl_s=median_interval([pair.musl.wall_s for pair in pairs]),
        musl_bytes=median_interval([pair.musl.peak_bytes for pair in pairs]),
        time=median_interval([pair.heapfit.wall_s / pair.musl.wall_s for pair in pairs]),
        peak=median_interval([pair.heapfit.peak_bytes / pair.musl.peak_bytes for pair in pairs]),
        pairs=[
            {
                "wall_s": [pair.musl.wall_s, pair.heapfit.wall_s],
                "peak_bytes": [pair.musl.peak_bytes, pair.heapfit.peak_bytes],
            }
            for pair in pairs
        ],
    )


def show(found: Answer) -> None:
    """Print a line of the table, as Markdown has it."""

    def ratio(interval: Interval) -> str:
        return f"{interval.median:.3f} ({interval.low:.3f} to {interval.high:.3f})"

    print(
        f"| {found.program} | {found.musl_s.median:.2f} | {found.musl_bytes.median / MIB:.1f} "
        f"| {ratio(found.time)} | {ratio(found.peak)} |",
        flush=True,
    )


def written(answers: Sequence[Answer], pairs: int, cpus: Sequence[int]) -> dict[str, Any]:
    """Everything that was measured, and where."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"kernel": platform.release(), "processor": processor(), "cpus": list(cpus)},
        "pairs": pairs,
        "programs": [asdict(each) for each in answers],
    }


def processor() -> str:
    """Return what the kernel calls the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=DEFAULT_PAIRS)
    parser.add_argument("--heapfit", type=Path, default=LIBRARY, help="its library for musl")
    parser.add_argument("--only", default="", help="programs, separated by commas")
    parser.add_argument("--cpus", default="0,1", help="processors to run on")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the pairs")
    parser.add_argument("--small", action="store_true", help="as little work as in the tests")
    parser.add_argument("--json", type=Path, help="where every figure goes")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs must be positive")
    if not arguments.heapfit.is_file():
        parser.error(f"{arguments.heapfit} is missing: cmake --build --preset musl")
    unknown = set(filter(None, arguments.only.split(","))) - set(BY_NAME)
    if unknown:
        parser.error(f"no such programs: {', '.join(sorted(unknown))}")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    draw = random.Random(arguments.seed)
    cpus = [int(cpu) for cpu in arguments.cpus.split(",")]
    names = arguments.only.split(",") if arguments.only else list(BY_NAME)
    programs = [BY_NAME[name] for name in names]
    pairs: dict[str, list[Pair]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="heapfit-musl-") as name:
        folder = Path(name)
        for program in programs:
            compile_into(folder, program)
        bench = Bench(folder, arguments.heapfit.resolve(), cpus)
        for number in range(arguments.pairs + 1):  # each program in turn; the first round warms up
            for program in programs:
                words = program.of_test if arguments.small else program.arguments
                pair = bench.pair(program, words, draw)
                if number > 0:
                    pairs[program.name].append(pair)
    answers = [answer(name, pairs[name]) for name in names]
    print("| program | musl, s | musl, MiB at most | time | peak |")
    print("|---|---:|---:|---:|---:|")
    for each in answers:
        show(each)
    if arguments.json is not None:
        found = written(answers, arguments.pairs, cpus)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
