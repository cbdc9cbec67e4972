#!/usr/bin/env python3
"""Which attacks on the heap does an allocator stop?

Runs benchmarks/attacks.c, one process for each attack: every row below with small, medium and large
objects, and every way in which the mistake may come about. An attack is stopped when the process is
ended for it, or when it comes to nothing: what the attacker reads is not the secret, what is
allocated next is not where he guessed. It goes through when the process ends as if nothing were.

    .venv/bin/python benchmarks/attacks.py
    .venv/bin/python benchmarks/attacks.py --allocators glibc,heapfit-hardened --misses

What several runs of the same attack come to may differ, where the defence is chance. Exits 0 when
heapfit-hardened, if it is among them, stops at least --least of a hundred, 1 when it does not.
With --json all outcomes are written, as docs/results/attacks.json has them; the table in
docs/security.md is made from these by: .venv/bin/python scripts/update-docs attacks
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from heapfit.catalogue import environment_under, resolve_treatment
from heapfit.errors import HeapfitError

HERE = Path(__file__).resolve().parent

ALL_WAYS = ("direct", "memcpy", "realloc", "thread")
# Where an object cannot come from realloc.
NEW_WAYS = ("direct", "memcpy", "thread")
# Where nothing is written or freed.
LOOKS = ("direct", "realloc")

# Each row of the threat model in docs/security.md, with the attacks that stand for it and the ways
# in which each can come about.
ROWS: dict[str, dict[str, tuple[str, ...]]] = {
    "overflow": dict.fromkeys(
        ["overflow-byte", "overflow-zero", "overflow-words", "overflow-endless"], ALL_WAYS
    ),
    "overflow of what was asked for": dict.fromkeys(["asked-byte", "asked-words"], ALL_WAYS),
    "underflow": dict.fromkeys(["underflow-byte", "underflow-word", "underflow-words"], ALL_WAYS),
    "out of a span": dict.fromkeys(["span-overflow", "span-underflow"], ALL_WAYS),
    "write at a distance": dict.fromkeys(["write-ahead", "write-behind"], ALL_WAYS),
    "write after free": dict.fromkeys(
        ["write-after-free", "write-after-free-inside", "link"], ALL_WAYS
    ),
    "use after free": dict.fromkeys(["use-after-free", "realloc-after-free"], ALL_WAYS),
    "stale data": dict.fromkeys(["stale-pointer", "stale-object"], ALL_WAYS),
    "guessed layout": {"layout": LOOKS},
    "double free": dict.fromkeys(["double-free", "double-free-later"], ALL_WAYS),
    "free of what is no object": {
        "free-inside": ALL_WAYS,
        "free-unaligned": ALL_WAYS,
        "free-stack": NEW_WAYS,
    },
    "free with a wrong size": {"free-size": ALL_WAYS},
    "free with a wrong alignment": {"free-alignment": ALL_WAYS},
    "another family's free": {
        "delete-array": NEW_WAYS,
        "delete-malloc": ALL_WAYS,
        "free-new": NEW_WAYS,
    },
    "object of no bytes": {"empty": ALL_WAYS},
}
# Attacks of which the size of objects is no part.
OF_ONE_SIZE = {"empty", "free-stack"}
SIZES = {"small": 40, "medium": 6000, "large": 300_000}
# Options with which an allocator meets the attacks: they are for who expects some.
SETTINGS = {"heapfit-hardened": ["check_family=1"]}
ALLOCATORS = (
    "glibc,heapfit,heapfit-hardened,hardened-malloc,hardened-malloc-light,"
    "scudo,mimalloc-secure,mimalloc"
)
HARMLESS = 11
SPOILT = 10
WRONG_USE = 2
LIMIT_S = 60


@dataclass(frozen=True)
class Outcome:
    """What one attack came to: in how many runs it ended the process, or nothing came of it."""

    allocator: str
    row: str
    attack: str
    size: str
    way: str
    runs: int
    ended: int
    harmless: int

    @property
    def stopped(self) -> int:
        return self.ended + self.harmless


def build(folder: Path) -> Path:
    """Compile the attacks; return the program."""
    program = folder / "attacks"
    source = str(HERE / "attacks.c")
    command = ["cc", "-O1", "-fno-builtin", "-w", "-o", str(program), source, "-pthread"]
    # C++'s operators, for allocators that have none of their own.
    command += ["-Wl,--no-as-needed", "-lstdc++"]
    subprocess.run(command, check=True)
    return program


def run_attack(
    program: Path, environment: dict[str, str], words: list[str], runs: int
) -> list[int]:
    """Return how each of the runs ended: an exit code, or the negative number of a signal."""
    return [
        subprocess.run(
            [program, *words, str(seed)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT_S,
        ).returncode
        for seed in range(runs)
    ]


def count(codes: list[int]) -> tuple[int, int]:
    """Return how many runs were ended, and in how many nothing came of it.

    Raises ValueError for a run that was none: the program was called wrongly, or ended before time.
    """
    if WRONG_USE in codes or 0 in codes:
        raise ValueError(f"the program did not make the attack: it ended with {codes}")
    harmless = codes.count(HARMLESS)
    # Some allocators end the process by an exit code of their own.
    return len(codes) - harmless - codes.count(SPOILT), harmless


def all_cases() -> Iterator[tuple[str, str, str, str]]:
    """Yield the row, the attack, the size and the way of each."""
    for row, attacks in ROWS.items():
        for attack, ways in attacks.items():
            sizes = ["small"] if attack in OF_ONE_SIZE else list(SIZES)
            for size, way in product(sizes, ways):
                yield row, attack, size, way


def measure(program: Path, allocator: str, runs: int) -> list[Outcome]:
    """Run all attacks under one allocator."""
    environment = environment_under(resolve_treatment(allocator, SETTINGS.get(allocator, [])))
    cases = list(all_cases())

    def one(case: tuple[str, str, str, str]) -> Outcome:
        row, attack, size, way = case
        codes = run_attack(program, environment, [attack, str(SIZES[size]), way], runs)
        ended, harmless = count(codes)
        return Outcome(allocator, row, attack, size, way, runs, ended, harmless)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, cases))


def share(outcomes: list[Outcome]) -> float:
    """Return how many of a hundred were stopped."""
    return 100 * sum(each.stopped for each in outcomes) / sum(each.runs for each in outcomes)


def print_table(outcomes: list[Outcome]) -> None:
    """Print the share that each allocator stops, by row."""
    allocators = list(dict.fromkeys(each.allocator for each in outcomes))
    cells: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for each in outcomes:
        cells[each.row, each.allocator].append(each)
        cells["all", each.allocator].append(each)
    print("| stopped, % | " + " | ".join(allocators) + " |")
    print("|---|" + "---:|" * len(allocators))
    for row in (*ROWS, "all"):
        shares = (f"{share(cells[row, allocator]):.0f}" for allocator in allocators)
        print(f"| {row} | " + " | ".join(shares) + " |")


def print_misses(outcomes: list[Outcome]) -> None:
    """Print which attacks went through, and how often."""
    for each in outcomes:
        if each.stopped < each.runs:
            went = each.runs - each.stopped
            print(
                f"{each.allocator}: {each.attack}, {each.size}, {each.way}: {went} of {each.runs}"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="Which attacks on the heap are stopped?")
    parser.add_argument("--allocators", default=ALLOCATORS)
    parser.add_argument("--runs", type=int, default=5, help="of each attack")
    parser.add_argument("--least", type=float, default=95.0, help="of a hundred")
    parser.add_argument("--misses", action="store_true", help="name the attacks that went through")
    parser.add_argument("--json", type=Path, help="write all outcomes there")
    arguments = parser.parse_args()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        for allocator in arguments.allocators.split(","):
            try:
                outcomes += measure(program, allocator, arguments.runs)
            except HeapfitError as error:
                print(f"{allocator}: {error}", file=sys.stderr)
    print_table(outcomes)
    if arguments.misses:
        print_misses(outcomes)
    if arguments.json:
        lines = ",\n".join(json.dumps(asdict(each)) for each in outcomes)
        arguments.json.write_text(f"[\n{lines}\n]\n")
    hardened = [each for each in outcomes if each.allocator == "heapfit-hardened"]
    return 0 if not hardened or share(hardened) >= arguments.least else 1


if __name__ == "__main__":
    sys.exit(main())
