#!/usr/bin/env python3
"""How often does `heapfit check` fail for a program that has not changed?

Simulates programs whose four figures scatter independently: normally, uniformly, exponentially, or
between two values of which the higher is more or less frequent. Each is saved with some number of
runs and checked with another, as `heapfit check` does it.

    .venv/bin/python benchmarks/check_errors.py --checks 20000

Prints a line for each pair of numbers of runs, with the worst kind of scatter. Exits 0 where at
most one check in a hundred fails, 1 where more do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

from heapfit.gate.against import compare
from heapfit.gate.heap import FIGURES, Heap

MOST_FALSE = 0.01
RUNS = (1, 2, 3, 4, 5, 10)

Draw = Callable[[tuple[int, ...]], NDArray[np.float64]]


def kinds(generator: np.random.Generator) -> dict[str, Draw]:
    """The ways in which a figure scatters, by name."""
    found: dict[str, Draw] = {
        "normal": lambda shape: generator.normal(1e6, 1e4, shape),
        "uniform": lambda shape: generator.uniform(1e6, 2e6, shape),
        "exponential": lambda shape: generator.exponential(1e6, shape),
    }
    for high in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9):
        found[f"two values, {high:.0%} high"] = partial(_two_values, generator, high)
    return found


def _two_values(
    generator: np.random.Generator, high: float, shape: tuple[int, ...]
) -> NDArray[np.float64]:
    return (1000.0 + (generator.random(shape) < high)).astype(np.float64)


def false_alarms(draw: Draw, saved: int, now: int, checks: int) -> float:
    """The share of checks that fail though nothing has changed."""
    drawn = draw((checks, len(FIGURES), saved + now)).astype(int)
    before, after = np.sort(drawn[..., :saved]), np.sort(drawn[..., saved:])
    # Few have any run above all saved ones, as each that fails must.
    suspects = np.flatnonzero((after[..., 0] > before[..., -1]).any(axis=1))
    failed = sum(
        any(
            each.outcome == "failed"
            for each in compare(_heap(before[index]), _heap(after[index]), {})
        )
        for index in suspects
    )
    return failed / checks


def _heap(figures: NDArray[np.int64]) -> Heap:
    named = dict(zip(FIGURES, figures.tolist(), strict=True))
    return Heap(heapfit="", command=[], exit_code=0, machine="", figures=named, sites=[])


def main() -> int:
    """Print the worst of each pair of numbers of runs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checks", type=int, default=20000, help="of each kind of scatter")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    worst = 0.0
    for saved in RUNS:
        for now in RUNS:
            found = {
                name: false_alarms(draw, saved, now, given.checks)
                for name, draw in kinds(np.random.default_rng(given.seed)).items()
            }
            name = max(found, key=found.__getitem__)
            print(f"{saved:2} saved, {now:2} now: {found[name]:7.2%} ({name})")
            worst = max(worst, found[name])
    return int(worst > MOST_FALSE)


if __name__ == "__main__":
    sys.exit(main())
