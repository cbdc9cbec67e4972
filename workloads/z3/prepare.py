"""Writes the questions of `z3`: an SMT-LIB file whose answers are known beforehand.

Five kinds of question, so that several of the solver's parts are at work: the schedule of a
workshop (differences of integers), pigeons and holes (propositions), two orders of writing to an
array (arrays), a bit trick and a product of two primes (bit vectors). Before each question the
file says which answer is right; the workload compares it with the solver's. After each the solver
is reset, so that it builds and drops all its terms and clauses again and again.

Usage: prepare.py DATA_FOLDER
"""

from __future__ import annotations

import random
import sys
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

WORKSHOP_SEEDS = range(1, 13)
JOBS = MACHINES = 10
LONGEST_TASK = 9
HOLES = 8
ARRAY_SEEDS = range(1, 4)
WRITES = 40
TRICK_BITS = 64
PRODUCT_BITS = 28
PRIMES = (10007, 13001)


class Task(NamedTuple):
    """A step of a job: the machine that it needs, and for how long."""

    machine: int
    duration: int


def workshop(seed: int) -> list[list[Task]]:
    """Jobs that need every machine once, each in an order of its own."""
    chance = random.Random(seed)
    jobs = []
    for _ in range(JOBS):
        machines = list(range(MACHINES))
        chance.shuffle(machines)
        jobs.append([Task(machine, chance.randint(1, LONGEST_TASK)) for machine in machines])
    return jobs


def greedy_end(jobs: list[list[Task]]) -> int:
    """When all is done if whichever job can start first is always served: this is possible."""
    job_free, machine_free = [0] * JOBS, [0] * MACHINES
    waiting = [list(job) for job in jobs]
    while any(waiting):
        starts = [
            (max(job_free[number], machine_free[tasks[0].machine]), number)
            for number, tasks in enumerate(waiting)
            if tasks
        ]
        start, number = min(starts)
        task = waiting[number].pop(0)
        job_free[number] = machine_free[task.machine] = start + task.duration
    return max(job_free)


def busiest(jobs: list[list[Task]]) -> int:
    """The hours of work of the busiest machine: nobody can be done before."""
    hours = [0] * MACHINES
    for job in jobs:
        for task in job:
            hours[task.machine] += task.duration
    return max(hours)


def schedule(jobs: list[list[Task]], limit: int) -> list[str]:
    """Can all jobs be done within `limit` hours?"""
    lines = []
    users: list[list[tuple[str, int]]] = [[] for _ in range(MACHINES)]
    for number, job in enumerate(jobs):
        earliest = "0"
        for place, task in enumerate(job):
            start = f"start_{number}_{place}"
            lines += [f"(declare-const {start} Int)", f"(assert (>= {start} {earliest}))"]
            earliest = f"(+ {start} {task.duration})"
            users[task.machine].append((start, task.duration))
        lines.append(f"(assert (<= {earliest} {limit}))")
    for tasks in users:
        for (one, one_hours), (other, other_hours) in combinations(tasks, 2):
            after = f"(>= {one} (+ {other} {other_hours}))"
            before = f"(>= {other} (+ {one} {one_hours}))"
            lines.append(f"(assert (or {after} {before}))")
    return lines


def pigeons(holes: int) -> list[str]:
    """Does one pigeon more than there are holes find a hole of its own?"""
    birds = range(holes + 1)
    lines = [f"(declare-const in_{b}_{h} Bool)" for b in birds for h in range(holes)]
    for bird in birds:
        lines.append(f"(assert (or {' '.join(f'in_{bird}_{h}' for h in range(holes))}))")
    for hole in range(holes):
        for one, other in combinations(birds, 2):
            lines.append(f"(assert (or (not in_{one}_{hole}) (not in_{other}_{hole})))")
    return lines


def writes(seed: int) -> list[str]:
    """Can writes to different places of an array, made in another order, come out differently?"""
    places = list(range(WRITES))
    lines = ["(declare-const start (Array Int Int))"]
    for place in places:
        lines += [f"(declare-const at_{place} Int)", f"(declare-const value_{place} Int)"]
    lines.append(f"(assert (distinct {' '.join(f'at_{place}' for place in places)}))")
    shuffled = random.Random(seed).sample(places, WRITES)
    results = []
    for order in places, shuffled:
        array = "start"
        for place in order:
            array = f"(store {array} at_{place} value_{place})"
        results.append(array)
    return [*lines, f"(assert (distinct {' '.join(results)}))"]


def bit_trick(bits: int) -> list[str]:
    """Can a sum differ from the carries, shifted, plus the bits without their carries?"""
    word = f"(_ BitVec {bits})"
    parts = f"(bvadd (bvxor x y) (bvshl (bvand x y) (_ bv1 {bits})))"
    return [
        f"(declare-const x {word})",
        f"(declare-const y {word})",
        f"(assert (distinct (bvadd x y) {parts}))",
    ]


def factors(bits: int, product: int) -> list[str]:
    """Is `product` the product of two numbers above one that are short enough not to overflow?"""
    lines = []
    for name in "x", "y":
        lines += [
            f"(declare-const {name} (_ BitVec {bits}))",
            f"(assert (bvugt {name} (_ bv1 {bits})))",
            f"(assert (bvult {name} (_ bv{2 ** (bits // 2)} {bits})))",
        ]
    return [*lines, f"(assert (= (bvmul x y) (_ bv{product} {bits})))"]


def question(name: str, answer: str, lines: list[str]) -> str:
    return "\n".join(
        [*lines, f'(echo "{name} should be {answer}")', "(check-sat)", "(reset)", "", ""]
    )


def questions() -> list[str]:
    asked = []
    for seed in WORKSHOP_SEEDS:
        jobs = workshop(seed)
        asked.append(question(f"schedule-{seed}", "sat", schedule(jobs, greedy_end(jobs))))
        asked.append(question(f"hurry-{seed}", "unsat", schedule(jobs, busiest(jobs) - 1)))
    asked.append(question("pigeons", "unsat", pigeons(HOLES)))
    asked += [question(f"writes-{seed}", "unsat", writes(seed)) for seed in ARRAY_SEEDS]
    asked.append(question("bit-trick", "unsat", bit_trick(TRICK_BITS)))
    first, second = PRIMES
    asked.append(question("factors", "sat", factors(PRODUCT_BITS, first * second)))
    return asked


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(questions()) + '(echo "all asked")\n'
    (folder / "questions.smt2").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
