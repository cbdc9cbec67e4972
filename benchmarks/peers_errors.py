#!/usr/bin/env python3
"""How often does the interval for the ratio to the best peer miss the truth?

Simulates studies of several workloads whose truth is known: six allocators that are equal, of which
the first may scatter five times as much, or of which one peer is a fifth ahead. Counts the first
one's intervals that lie wholly above the truth, which says that a goal was missed, and below it.

    .venv/bin/python benchmarks/peers_errors.py --studies 1000

Prints a line for each design. Exits 0 where at least 94 % of the intervals hold and at most 5.5 %
lie above, else 1.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lab"))

from heapfit.statistics.peers import Costs, interval_to_best  # noqa: E402
from verdict_errors import LEAST_COVERAGE, MOST_FALSE, SPREAD  # noqa: E402

ALLOCATORS = 6
DESIGNS = ((8, 3), (24, 5), (8, 10), (24, 10))  # workloads and blocks
AHEAD = 0.2  # as a difference of logarithms
# By name: how far the first peer is ahead, and how much the subject scatters.
KINDS = {
    "all equal": (0.0, 1.0),
    "the subject scatters five times as much": (0.0, 5.0),
    "a peer ahead, the subject scatters five times as much": (AHEAD, 5.0),
}


def count(kind: str, workloads: int, blocks: int, studies: int, seed: int) -> tuple[float, float]:
    """Return the shares of intervals that lie above the truth and below it."""
    ahead, scatter = KINDS[kind]
    generator = np.random.default_rng([seed, list(KINDS).index(kind), workloads, blocks])
    means, spreads = np.zeros(ALLOCATORS), np.full(ALLOCATORS, SPREAD)
    means[1], spreads[0] = -ahead, scatter * SPREAD
    peers = np.arange(ALLOCATORS) > 0
    above = below = 0
    for _ in range(studies):
        own = generator.normal(0, 1, (workloads, ALLOCATORS, blocks)) * spreads[:, None]
        shared = generator.normal(0, SPREAD, (workloads, 1, blocks))
        figures = np.exp(means[:, None] + own + shared)
        low, high = interval_to_best([Costs("", each) for each in figures], peers)
        above += bool(low[0] > ahead)
        below += bool(high[0] < ahead)
    return above / studies, below / studies


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=1000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kept = True
    for kind in KINDS:
        for workloads, blocks in DESIGNS:
            above, below = count(kind, workloads, blocks, arguments.studies, arguments.seed)
            kept &= above <= MOST_FALSE and above + below <= 1 - LEAST_COVERAGE
            print(
                f"{kind}, {workloads} workloads, {blocks} blocks: {100 * above:.1f} % above the "
                f"truth, {100 * below:.1f} % below",
                flush=True,
            )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
