#!/usr/bin/env python3
"""What does it cost to let the figures say how many replicates there are?

Simulates studies that run until every interval is narrow enough, as `heapfit compare --precision`
does, and that look at the figures after the same numbers of blocks; the kinds of scatter are those
of verdict_errors.py, the precision asked for is such that studies end at any of the looks. Each is
judged under several rules, which differ in how wide an interval is at a look: as if there were none
but this one, as the verdict has it, by Pocock's and by O'Brien and Fleming's boundaries, and by a
confidence sequence (Robbins's normal mixture). Counted are studies of equal treatments with any
false difference, and those of different ones whose intervals all hold the truth.

Then: how many trials that takes beside a number of replicates that is fixed for all programs and
enough for the one that scatters most, and finds real differences as often there; and what a drift
of the machine does to intervals where partners run side by side, and where they do not.

    .venv/bin/python benchmarks/stopping_errors.py --json docs/results/stopping.json

Exits 0 where the rule in use keeps the verdict's promises and takes at most 0.6 of the trials, 1
where it does not. `scripts/update-docs verdict` writes the stored result into docs/method.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lab"), str(HERE)]

from heapfit.records import SIGNIFICANT  # noqa: E402
from heapfit.statistics.verdict import OF_STOPPING, Pairs, judge, pairs  # noqa: E402
from heapfit.study.stopping import LOOKS  # noqa: E402
from verdict_errors import LEAST_COVERAGE, MOST_FALSE, SCATTERS, SPREAD  # noqa: E402

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

TREATMENTS = (2, 3, 5, 10, 15)
MOST_TRIALS = 0.6
# The halves differ by so much, in spreads: what half as many blocks as there may be could show.
EFFECT = 1.0
# Precisions asked for: the width that half of the studies have at each look, and around it.
_AROUND = (0.9, 1.0, 1.15)
_BATCH = 4_000_000

# ------------------------------------------------------------------ rules

# How many times each pair is adjusted for, at each look.
Rule = Sequence[float]


@lru_cache(maxsize=1)
def _walks() -> Floats:
    """The standardized means of equal treatments at the looks, a row for each of many studies."""
    generator = np.random.default_rng(4)
    steps = np.diff(LOOKS, prepend=0)
    walks = (generator.normal(0, 1, (200_000, len(LOOKS))) * np.sqrt(steps)).cumsum(axis=1)
    return np.asarray(np.abs(walks) / np.sqrt(LOOKS))


def _as_rule(bounds: Floats) -> Rule:
    """Return how many times a pair must be adjusted for so that its bounds are these."""
    return [float(SIGNIFICANT / (2 * ndtr(-bound))) for bound in bounds]


def _boundary(shape: Floats) -> Rule:
    """The boundary of this shape that equal treatments cross at any look in 5 % of studies."""
    largest = (_walks() / shape).max(axis=1)
    return _as_rule(np.quantile(largest, 1 - SIGNIFICANT) * shape)


def _confidence_sequence() -> Rule:
    """Robbins's normal mixture, narrowest in the middle of the looks."""
    blocks = np.array(LOOKS, dtype=float)
    weight = 5.0
    bounds = (blocks + weight) / blocks * np.log((blocks + weight) / weight / SIGNIFICANT**2)
    return _as_rule(np.sqrt(bounds))


RULES: dict[str, Rule] = {
    "as if fixed": [1.0] * len(LOOKS),
    "verdict": [OF_STOPPING] * len(LOOKS),
    "Pocock": _boundary(np.ones(len(LOOKS))),
    "O'Brien-Fleming": _boundary(np.sqrt(LOOKS[-1] / np.array(LOOKS))),
    "confidence sequence": _confidence_sequence(),
}

# ------------------------------------------------------------------ counting


@dataclass(frozen=True)
class Looked:
    """What each study shows at each look under a rule: arrays of [study, look]."""

    width: Floats  # to either side, of the widest interval, on the scale of logarithms
    errs: Flags  # whether any interval leaves the truth out
    found: Floats  # the share of real differences that are shown


def look(figures: Floats, gap: Floats) -> dict[str, Looked]:
    """Return what each rule shows of figures [study, treatment, block] at every look; `gap` is the
    truth of each pair's difference of logarithms."""
    at_looks = [pairs(figures[..., :blocks]) for blocks in LOOKS]
    return {
        name: _looked([_one(*each, gap) for each in zip(at_looks, rule, strict=True)])
        for name, rule in RULES.items()
    }


def _one(found: Pairs, of_each: float, gap: Floats) -> tuple[Floats, Flags, Floats]:
    """As `verdict.judge` has it, without probabilities, which take long."""
    count = of_each * len(found.first)
    level = -np.expm1(np.log1p(-SIGNIFICANT) / count) / 2
    df = found.df[..., :1]  # those of one family are equal: every pair has all blocks
    reach = -stdtrit(df, level) * np.sqrt(found.variance)
    errs = (np.abs(found.mean - gap) > reach).any(axis=-1)
    shown = (np.abs(found.mean) > reach)[:, gap != 0]
    power = shown.mean(axis=-1) if shown.shape[-1] else np.zeros(len(shown))
    return reach.max(axis=-1), errs, power


def _looked(looks: Sequence[tuple[Floats, Flags, Floats]]) -> Looked:
    return Looked(*(np.stack(each, axis=1) for each in zip(*looks, strict=True)))


def stops(seen: Looked, width: float) -> NDArray[np.int64]:
    """Return at which look each study ends that is to be so narrow."""
    enough = seen.width <= width
    enough[:, -1] = True
    return np.asarray(enough.argmax(axis=1))


@dataclass(frozen=True)
class Line:
    """What was counted for a kind of scatter: by rule, of the precision that was worst."""

    scatter: str
    treatments: int
    studies: int
    false: dict[str, float]
    coverage: dict[str, float]
    blocks: dict[str, float]  # on average over all precisions that the verdict ended by itself at


def count(scatter: str, treatments: int, studies: int, seed: int) -> Line:
    generator = np.random.default_rng([seed, list(SCATTERS).index(scatter), treatments])
    truth = np.where(np.arange(treatments) < treatments // 2, 0.0, EFFECT * SPREAD)
    first, second = np.triu_indices(treatments, 1)
    stretch = 10.0 if scatter == "lognormal" else 1.0
    gap = (truth[first] - truth[second]) * stretch
    equal: list[dict[str, Looked]] = []
    real: list[dict[str, Looked]] = []
    for size in _batches(studies, len(first) * LOOKS[-1]):
        made = SCATTERS[scatter](generator, size, LOOKS[-1], np.zeros(treatments))
        equal.append(look(made, np.zeros(len(first))))
        real.append(look(SCATTERS[scatter](generator, size, LOOKS[-1], truth), gap))
    seen, other = _joined(equal), _joined(real)
    widths = [
        float(around * middle)
        for middle in np.median(seen["verdict"].width, axis=0)[:-1]
        for around in _AROUND
    ]
    return Line(
        scatter,
        treatments,
        studies,
        {name: max(_share(seen[name], width) for width in widths) for name in RULES},
        {name: min(1 - _share(other[name], width) for width in widths) for name in RULES},
        {
            name: round(float(np.mean([_blocks(seen[name], width) for width in widths])), 2)
            for name in RULES
        },
    )


def _share(seen: Looked, width: float) -> float:
    at = stops(seen, width)
    return round(float(seen.errs[np.arange(len(at)), at].mean()), 5)


def _blocks(seen: Looked, width: float) -> float:
    return float(np.array(LOOKS)[stops(seen, width)].mean())


def _joined(parts: Sequence[dict[str, Looked]]) -> dict[str, Looked]:
    return {
        name: Looked(
            *(
                np.concatenate([getattr(part[name], field) for part in parts])
                for field in ("width", "errs", "found")
            )
        )
        for name in RULES
    }


def _batches(studies: int, numbers: int) -> Iterator[int]:
    most = max(1, _BATCH // numbers)
    while studies > 0:
        yield min(most, studies)
        studies -= most


def simulate(studies: int, seed: int) -> Iterator[Line]:
    for scatter in SCATTERS:
        for treatments in TREATMENTS:
            # Of many treatments there are many pairs, and the error is further from its bound.
            yield count(scatter, treatments, min(studies, studies * 4 // treatments), seed)


# ------------------------------------------------------------------ trials saved

# The program that scatters most is to be known this well, which takes it as many blocks or so.
_WANTED_BLOCKS = 50
# A real difference, in precisions.
_DIFFERENCE = 1.5
# How many times as much the worst program scatters as the quietest; others evenly between.
RANGES = (1, 2, 4, 8)
_USUAL_RANGE = 4
_PROGRAMS = 7
_SAVING_TREATMENTS = 5


@dataclass(frozen=True)
class Saving:
    """Programs that scatter differently, all to be known to one precision."""

    scatter: str
    range: int
    power: float  # the least of any program's: of real differences, those found
    fixed: int  # blocks that the worst program needs to find as many; all programs get them
    blocks: float  # on average, where each program gets what it needs

    @property
    def share(self) -> float:
        return self.blocks / self.fixed


def save(scatter: str, studies: int, seed: int) -> Iterator[Saving]:
    generator = np.random.default_rng([seed, list(SCATTERS).index(scatter)])
    made = SCATTERS[scatter](generator, studies, LOOKS[-1], np.zeros(_SAVING_TREATMENTS))
    logs = np.log(np.maximum(made, SPREAD))
    worst = look(np.exp(logs), np.zeros(_SAVING_TREATMENTS * (_SAVING_TREATMENTS - 1) // 2))
    wanted = float(np.median(worst["verdict"].width[:, LOOKS.index(_WANTED_BLOCKS)]))
    truth = np.arange(_SAVING_TREATMENTS) % 2 * _DIFFERENCE * wanted
    first, second = np.triu_indices(_SAVING_TREATMENTS, 1)
    gap = truth[first] - truth[second]
    by_program: dict[float, tuple[float, float]] = {}
    for spread in RANGES:
        for part in np.geomspace(1 / spread, 1, _PROGRAMS if spread > 1 else 1):
            seen = look(np.exp(part * logs + truth[:, None]), gap)["verdict"]
            at = stops(seen, wanted)
            power = float(seen.found[np.arange(len(at)), at].mean())
            by_program[part] = power, float(np.array(LOOKS)[at].mean())
        own = [by_program[p] for p in np.geomspace(1 / spread, 1, _PROGRAMS if spread > 1 else 1)]
        least = min(power for power, _ in own)
        fixed = _fixed(np.exp(logs + truth[:, None]), gap, least)
        blocks = float(np.mean([each for _, each in own]))
        yield Saving(scatter, spread, round(least, 4), fixed, round(blocks, 2))


def _fixed(figures: Floats, gap: Floats, power: float) -> int:
    """The fewest blocks that find as many real differences, by the verdict of a fixed number."""
    fewest, most = 2, LOOKS[-1]
    while most - fewest > 1:
        middle = (fewest + most) // 2
        enough = _one(pairs(figures[..., :middle]), 1.0, gap)[2].mean() >= power
        fewest, most = (fewest, middle) if enough else (middle, most)
    return most


# ------------------------------------------------------------------ drift

_SETTINGS, _ALLOCATORS, _DRIFT_BLOCKS = 6, 5, 10
_ROUND = _SETTINGS * _ALLOCATORS


def _steady(generator: np.random.Generator, studies: int, trials: int) -> Floats:
    """Slower by a half from first to last."""
    return np.broadcast_to(np.log1p(0.5 * np.arange(trials) / trials), (studies, trials))


def _wandering(generator: np.random.Generator, studies: int, trials: int) -> Floats:
    """A random walk, as far in one round through all settings as twice a trial's scatter."""
    steps = generator.normal(0, 2 * SPREAD / _ROUND**0.5, (studies, trials))
    return np.asarray(steps.cumsum(axis=1))


def _waves(generator: np.random.Generator, studies: int, trials: int) -> Floats:
    """Up and down by a tenth, once in a round through all settings."""
    phase = generator.uniform(0, 2 * np.pi, (studies, 1))
    return np.asarray(0.1 * np.sin(2 * np.pi * np.arange(trials) / _ROUND + phase))


DRIFTS = {"a steady rise": _steady, "a random walk": _wandering, "waves": _waves}


@dataclass(frozen=True)
class Order:
    """What an order of trials makes of a drift: `width` beside that without any drift."""

    drift: str
    order: str
    width: float
    coverage: float


def drift(studies: int, seed: int) -> Iterator[Order]:
    generator = np.random.default_rng([seed, 7])
    shape = (studies, _DRIFT_BLOCKS, _SETTINGS, _ALLOCATORS)
    noise = generator.normal(0, SPREAD, shape)
    still, _ = _intervals(noise)
    orders = {"side by side": _side_by_side(generator, studies), "anywhere in the block":
              _anywhere(generator, studies)}  # fmt: skip
    for name, made in DRIFTS.items():
        slow = made(generator, studies, _ROUND * _DRIFT_BLOCKS)
        for order, place in orders.items():
            when = place + _ROUND * np.arange(_DRIFT_BLOCKS)[:, None]
            moved = np.take_along_axis(slow, when.reshape(studies, -1), axis=1).reshape(shape)
            width, coverage = _intervals(noise + moved)
            yield Order(name, order, round(width / still, 3), round(coverage, 4))


def _intervals(logs: Floats) -> tuple[float, float]:
    """The median width of intervals, and the share of families that hold the truth, which is 0."""
    found = judge(pairs(np.exp(np.moveaxis(logs, 1, -1))))
    holds = (found.low <= 0) & (found.high >= 0)
    return float(np.median(found.high - found.low)), float(holds.all(axis=-1).mean())


def _side_by_side(generator: np.random.Generator, studies: int) -> NDArray[np.int64]:
    """The places of the cells of a block, [study, block, cell], as `study.plan` has them."""
    settings = generator.random((studies, _DRIFT_BLOCKS, _SETTINGS)).argsort(axis=-1)
    within = generator.random((studies, _DRIFT_BLOCKS, _SETTINGS, _ALLOCATORS)).argsort(axis=-1)
    places = settings[..., None] * _ALLOCATORS + within
    return np.asarray(places.reshape(studies, _DRIFT_BLOCKS, _ROUND))


def _anywhere(generator: np.random.Generator, studies: int) -> NDArray[np.int64]:
    return np.asarray(generator.random((studies, _DRIFT_BLOCKS, _ROUND)).argsort(axis=-1))


# ------------------------------------------------------------------ the whole


def keeps_promises(line: Line) -> bool:
    return line.false["verdict"] <= MOST_FALSE and line.coverage["verdict"] >= LEAST_COVERAGE


def saves(savings: Sequence[Saving]) -> bool:
    return all(each.share <= MOST_TRIALS for each in savings if each.range == _USUAL_RANGE)


def said(line: Line) -> str:
    numbers = [
        f"{name} {100 * line.false[name]:.1f}/{100 * line.coverage[name]:.1f}/{line.blocks[name]}"
        for name in line.false
    ]
    return (
        f"{line.scatter}, {line.treatments} treatments: false and covered in %, blocks: "
        f"{', '.join(numbers)}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Keep the result there.")
    arguments = parser.parse_args()
    orders = list(drift(arguments.studies // 5, arguments.seed))
    for order in orders:
        print(order)
    savings = []
    for scatter in SCATTERS:
        for saving in save(scatter, arguments.studies // 5, arguments.seed):
            print(f"{saving}, share {saving.share:.2f}", flush=True)
            savings.append(saving)
    lines = []
    for line in simulate(arguments.studies, arguments.seed):
        print(said(line), flush=True)
        lines.append(line)
    if arguments.json:
        kept = {
            "seed": arguments.seed,
            "looks": LOOKS,
            "lines": [asdict(each) for each in lines],
            "savings": [{**asdict(each), "share": round(each.share, 3)} for each in savings],
            "orders": [asdict(each) for each in orders],
        }
        arguments.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    broken = [line for line in lines if not keeps_promises(line)]
    for line in broken:
        print(f"NOT KEPT: {said(line)}")
    return 1 if broken or not saves(savings) else 0


if __name__ == "__main__":
    sys.exit(main())
