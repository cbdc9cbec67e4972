#!/usr/bin/env python3
"""What do contexts gain over malloc, and what do they cost over a region?

Runs the programs workloads/micro/context-*.c in pairs, one right after the other, which of the two
first being drawn. Each pair gives a ratio of times; the median of the ratios is shown with its
interval. Where the calls to the allocator are the question, the time that the same loop takes
without any allocator (the least so far, measured beside each pair) is subtracted from both.

    .venv/bin/python benchmarks/contexts.py --pairs 30

`--heapfit` and `--peer` name other libraries than the installed heapfit and the catalogue's
mimalloc (`heapfit allocators install mimalloc`). `--instructions` counts with Valgrind instead of
timing: one run of each is enough then, and a busy machine does not matter.

Exits 0 when every interval lies below its goal, 1 when one lies above, 3 when one holds its goal:
then more pairs or a quieter machine are needed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from heapfit import catalogue, paths
from heapfit.statistics.median import Interval, median_interval

MICRO = Path(__file__).resolve().parent.parent / "workloads" / "micro"
UNDECIDED = 3
DEFAULT_PAIRS = 30

# Valgrind is some fifty times slower, and counts do not scatter.
INSTRUCTIONS_SCALE = 2

# Modes of the programs, see transaction.h.
MALLOC, CONTEXT, REGION, NO_ALLOCATOR = "0", "1", "2", "3"


@dataclass(frozen=True)
class Side:
    """A run to compare: a library to preload, and the arguments of the program."""

    library: Path
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A figure: `ours` over `theirs`, of one program, which should stay below `goal`."""

    name: str
    program: str
    ours: Side
    theirs: Side
    goal: float
    nothing: Side | None = None  # what both spend outside the allocator, to be subtracted


@dataclass(frozen=True)
class Answer:
    """The ratio of each pair, and what they come to."""

    question: str
    goal: float
    ratios: list[float]
    interval: Interval

    @property
    def verdict(self) -> int:
        """As an exit code: below the goal, above, or undecided."""
        if self.interval.high <= self.goal:
            return 0
        return 1 if self.interval.low > self.goal else UNDECIDED


def questions(heapfit: Path, peer: Path) -> list[Question]:
    """The figures, in the order in which they are shown."""

    def side(library: Path, mode: str, *more: str) -> Side:
        return Side(library, ("--mode", mode, *more))

    nothing = side(heapfit, NO_ALLOCATOR)
    context = side(heapfit, CONTEXT)
    unused = ("--freed", "0")
    return [
        Question(
            "malloc and free: context / heapfit's thread heap",
            "context-pairs",
            context,
            side(heapfit, MALLOC),
            0.9,
            nothing,
        ),
        Question(
            "malloc and free: context / peer",
            "context-pairs",
            context,
            side(peer, MALLOC),
            0.9,
            nothing,
        ),
        Question(
            "request without reuse: context / region",
            "context-request",
            side(heapfit, CONTEXT, *unused),
            side(heapfit, REGION, *unused),
            1.15,
        ),
        Question(
            "request: context / heapfit's thread heap",
            "context-request",
            context,
            side(heapfit, MALLOC),
            1.0,
        ),
        Question("request: context / peer", "context-request", context, side(peer, MALLOC), 1.0),
        Question(
            "a million objects: free_all / freeing each",
            "context-end",
            side(heapfit, CONTEXT, "--each", "0"),
            side(heapfit, CONTEXT, "--each", "1"),
            1 / 500,
        ),
    ]


def compiled(name: str, folder: Path) -> Path:
    """Return the program made from workloads/micro/NAME.c, in `folder`."""
    program = folder / name
    if not program.exists():
        compiler = os.environ.get("CC", "cc").split()
        flags = ["-std=c17", "-O2", "-pthread"]
        source = str(MICRO / f"{name}.c")
        subprocess.run([*compiler, *flags, "-o", str(program), source], check=True)
    return program


def run(command: Sequence[str], library: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with a library preloaded; the benchmark ends when it fails."""
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} under {library}: {done.stderr.strip()}")
    return done


def seconds(program: Path, side: Side, scale: int) -> float:
    """Return the time that the program says it took."""
    done = run([str(program), *side.arguments, "--scale", str(scale)], side.library)
    return float(found_in(done.stderr, r"(?m)^seconds: ([0-9.]+)$"))


def instructions(program: Path, side: Side, scale: int) -> float:
    """Return the instructions that the program's work takes: what twice the work takes more."""

    def count(share: int) -> int:
        tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        arguments = [*side.arguments, "--scale", str(share)]
        done = run([*tool, str(program), *arguments], side.library)
        return int(found_in(done.stderr, r"Collected : (\d+)"))

    return count(2 * scale) - count(scale)


def found_in(text: str, pattern: str) -> str:
    """Return the group of a pattern that a program's output must have."""
    found = re.search(pattern, text)
    if found is None:
        sys.exit(f"no {pattern!r} in what the program wrote: {text.strip()}")
    return found[1]


def ask(
    question: Question, pairs: int, cost: Callable[[Side], float], draw: random.Random
) -> Answer:
    """Measure a figure; a first pair does not count."""
    ratios = []
    nothing = math.inf if question.nothing else 0.0
    for _ in range(pairs + 1):
        sides = [question.ours, question.theirs]
        draw.shuffle(sides)
        costs = {side: cost(side) for side in sides}
        if question.nothing:
            nothing = min(nothing, cost(question.nothing))
        # A clock's step stands for what is too short for it.
        theirs = max(costs[question.theirs] - nothing, 1e-9)
        ratios.append((costs[question.ours] - nothing) / theirs)
    ratios = ratios[1:]
    return Answer(question.name, question.goal, ratios, median_interval(ratios))


def show(answer: Answer) -> None:
    """Print a figure."""
    words = {0: "reached", 1: "missed", UNDECIDED: "undecided"}[answer.verdict]
    interval = answer.interval
    print(
        f"{answer.question:<50} {interval.median:8.3g}"
        f"  ({interval.low:.3g} to {interval.high:.3g};"
        f" range {min(answer.ratios):.3g} to {max(answer.ratios):.3g})"
        f"  goal {answer.goal:.3f}: {words}",
        flush=True,
    )


def catalogued(name: str) -> Path:
    """Return the library of one of the catalogue's allocators, which must be installed."""
    entry = catalogue.load_allocators()[name]
    installed = catalogue.find_installed(entry)
    if installed is None or installed.library is None:
        sys.exit(f"{name} is not installed: heapfit allocators install {name}")
    return Path(installed.library)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=DEFAULT_PAIRS)
    parser.add_argument("--scale", type=int, default=100, help="percentage of the work")
    parser.add_argument("--heapfit", type=Path, help="its shared library")
    parser.add_argument("--peer", type=Path, help="another allocator's (mimalloc's)")
    parser.add_argument("--only", default="", help="the figures whose names hold this")
    parser.add_argument("--seed", type=int, default=1, help="of the order within the pairs")
    parser.add_argument("--instructions", action="store_true", help="count, do not time")
    parser.add_argument("--json", action="store_true", help="print every ratio")
    arguments = parser.parse_args()
    if arguments.pairs < 1 or arguments.scale < 1:
        parser.error("--pairs and --scale must be positive")
    return arguments


def main() -> int:
    arguments = parse_arguments()
    heapfit = arguments.heapfit or paths.library()
    peer = arguments.peer or catalogued("mimalloc")
    draw = random.Random(arguments.seed)
    answers = []
    with tempfile.TemporaryDirectory(prefix="heapfit-contexts-") as folder:
        for question in questions(heapfit.resolve(), peer.resolve()):
            counted = arguments.instructions and question.program != "context-end"
            if arguments.only not in question.name or counted != arguments.instructions:
                continue
            program = compiled(question.program, Path(folder))

            def cost(side: Side, program: Path = program) -> float:
                if arguments.instructions:
                    return instructions(program, side, INSTRUCTIONS_SCALE)
                return seconds(program, side, arguments.scale)

            answers.append(ask(question, arguments.pairs, cost, draw))
            if not arguments.json:
                show(answers[-1])
    if arguments.json:
        print(json.dumps([asdict(answer) for answer in answers], indent=2))
    verdicts = {answer.verdict for answer in answers}
    return 1 if 1 in verdicts else UNDECIDED if UNDECIDED in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
