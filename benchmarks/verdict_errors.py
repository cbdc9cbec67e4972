#!/usr/bin/env python3
"""How often is the lab's verdict wrong, and what does it find, beside other procedures?

Simulates studies whose truth is known: scatter that is normal, lognormal, five times as large for
one treatment or for half of them, of every size between, heavy-tailed, with drift, with the
outliers of a busy machine, or rounded. Of each it counts: studies of equal treatments with any
false difference; studies whose intervals all hold the truth; and the share of real differences that
are found, when one half of the treatments is slower than the other.

    .venv/bin/python benchmarks/verdict_errors.py --studies 10000 --json docs/results/verdict.json

The comparisons with a baseline are counted by themselves. Two rules that rest on verdicts are
simulated too, in studies of equal allocators: the choice between wall time and processor time
(`statistics/time_metric.py`), by the false differences of the metric that was chosen; and notes on
settings in which another allocator "costs significantly less", by the studies that have any.

Prints a line for each design and kind of scatter. Exits 0 where the promises are kept (at most
5.5 % of studies with a false difference or note, at least 94 % with intervals that hold), 1 where
they are not. `scripts/update-docs verdict` writes the stored result into docs/method.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, stdtrit
from scipy.stats import rankdata

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lab"))

from heapfit.advice import recommend  # noqa: E402
from heapfit.records import (  # noqa: E402
    SIGNIFICANT,
    Factor,
    InstalledAllocator,
    Metric,
    Study,
    Workload,
    WorkloadRun,
)
from heapfit.statistics.observations import Readings  # noqa: E402
from heapfit.statistics.studentized_range import critical  # noqa: E402
from heapfit.statistics.time_metric import decides  # noqa: E402
from heapfit.statistics.verdict import Judged, judge, pairs  # noqa: E402

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST_FALSE = 0.055
LEAST_COVERAGE = 0.94

TREATMENTS = (2, 3, 5, 10, 15)
BLOCKS = (3, 4, 6, 10, 20)

# The usual scatter of a trial, relative to its mean; blocks differ by as much again.
SPREAD = 0.05
# How much slower one half is in the studies of power, in spreads, with ten blocks.
EFFECT = 2.0
# Numbers that are held at a time: 100 MB of them.
_BATCH = 4_000_000
# Candidates that draw signs or orders need hundreds of draws for each study.
_DRAWS = 499
_DRAWN_DESIGNS = ((5, 6), (5, 10))


# ------------------------------------------------------------------ made figures

# Makes [study, treatment, block] from the logarithms of the treatments' true costs.
Scatter = Callable[[np.random.Generator, int, int, Floats], Floats]


def _around(truth: Floats, noise: Floats, generator: np.random.Generator) -> Floats:
    """Figures in blocks that share an effect, from the noise of their logarithms."""
    shared = generator.normal(0, SPREAD, (noise.shape[0], 1, noise.shape[2]))
    return np.asarray(np.exp(truth[:, None] + noise + shared))


def normal(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
    own = 1 + generator.normal(0, SPREAD, (studies, len(truth), blocks))
    return _around(truth, np.log(own), generator)


def lognormal(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
    """As skewed as a figure that varies by half."""
    noise = generator.normal(0, 10 * SPREAD, (studies, len(truth), blocks))
    return _around(10 * truth, noise, generator)


def spreads(multiples: Callable[[int], Floats]) -> Scatter:
    """Normal scatter of each treatment that many times the usual one."""

    def scatter(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
        noise = generator.normal(0, SPREAD, (studies, len(truth), blocks))
        return _around(truth, noise * multiples(len(truth))[:, None], generator)

    return scatter


def heavy(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
    """Student's t of three degrees of freedom."""
    noise = SPREAD * generator.standard_t(3, (studies, len(truth), blocks))
    return _around(truth, noise, generator)


def drift(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
    """The machine gets slower by a half while the study runs, in random order within blocks."""
    count = len(truth)
    place = generator.random((studies, count, blocks)).argsort(axis=1)
    place += count * np.arange(blocks)
    noise = generator.normal(0, SPREAD, (studies, count, blocks))
    return np.asarray(np.exp(truth[:, None] + noise) * (1 + 0.5 * place / (count * blocks)))


def outliers(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
    """One trial of twenty, and half of them in a busy minute, takes up to twice as long."""
    shape = (studies, len(truth), blocks)
    busy = generator.random((studies, 1, blocks)) < 0.1
    hit = generator.random(shape) < np.where(busy, 0.5, 0.05)
    noise = generator.normal(0, SPREAD, shape) + hit * generator.exponential(0.3, shape)
    return _around(truth, noise, generator)


def ties(generator: np.random.Generator, studies: int, blocks: int, truth: Floats) -> Floats:
    """Figures are rounded to steps as wide as they scatter."""
    return np.asarray(np.round(normal(generator, studies, blocks, truth) / SPREAD) * SPREAD)


SCATTERS: dict[str, Scatter] = {
    "normal": normal,
    "lognormal": lognormal,
    "one spread five times the others": spreads(lambda k: np.where(np.arange(k) < 1, 5.0, 1.0)),
    "half of the spreads five times the others": spreads(
        lambda k: np.where(np.arange(k) < k / 2, 5.0, 1.0)
    ),
    "spreads from one to five times": spreads(lambda k: np.geomspace(1, 5, k)),
    "heavy tails": heavy,
    "drift": drift,
    "outliers of a busy machine": outliers,
    "ties": ties,
}
# The truth of the skewed figures is stretched like their scatter.
_STRETCHED = {"lognormal": 10.0}

# ------------------------------------------------------------------ procedures

# Says of each pair [study, pair] whether a difference is shown.
Procedure = Callable[[Floats], Flags]


def verdict(figures: Floats) -> Flags:
    return np.asarray(judge(pairs(figures)).p < SIGNIFICANT)


def baseline(figures: Floats) -> Flags:
    """The verdict on every treatment beside the first: a family of its own."""
    return np.asarray(judge(pairs(figures, to=0)).p < SIGNIFICANT)


def own_spreads(figures: Floats) -> Flags:
    """The verdict without what the other treatments show of spread: the paired t test."""
    found = pairs(figures)
    logs = np.log(figures)
    gaps = logs[:, found.first] - logs[:, found.second]
    blocks = gaps.shape[-1]
    alone = gaps.var(axis=-1, ddof=1) / blocks
    df = np.full_like(alone, blocks - 1.0)
    return np.asarray(judge(replace(found, variance=alone, df=df)).p < SIGNIFICANT)


def tukey(figures: Floats) -> Flags:
    """Tukey's procedure on logarithms, after blocks, with one variance for all."""
    logs = np.log(figures)
    count, blocks = logs.shape[1:]
    means = logs.mean(axis=2)
    left = logs - means[:, :, None] - logs.mean(axis=1, keepdims=True)
    left += means.mean(axis=1)[:, None, None]
    df = (count - 1) * (blocks - 1)
    error = np.sqrt((left**2).sum(axis=(1, 2)) / df / blocks)
    first, second = np.triu_indices(count, 1)
    gaps = np.abs(means[:, first] - means[:, second])
    return np.asarray(gaps > critical(count, df) * error[:, None])


def conover(figures: Floats) -> Flags:
    """Friedman's test of ranks within blocks, and where it rejects, Conover's comparisons."""
    ranks = rankdata(figures, axis=1)
    count, blocks = ranks.shape[1:]
    sums = ranks.sum(axis=2)
    squares = (ranks**2).sum(axis=(1, 2))
    middle = blocks * count * (count + 1) ** 2 / 4
    between = (sums**2).sum(axis=1) / blocks
    df = (blocks - 1) * (count - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = (blocks - 1) * (between - middle) / (squares - between)
        error = np.sqrt(2 * blocks * (squares - between) / df)
    rejects = fdtrc(count - 1, df, np.nan_to_num(f, nan=0.0, posinf=1e9)) < SIGNIFICANT
    first, second = np.triu_indices(count, 1)
    gaps = np.abs(sums[:, first] - sums[:, second])
    limit = stdtrit(df, 1 - SIGNIFICANT / 2) * error
    return np.asarray(rejects[:, None] & (gaps > limit[:, None]))


def _studentized(logs: Floats) -> Floats:
    """The absolute paired t of every pair, over any leading axes."""
    blocks = logs.shape[-1]
    means = logs.mean(axis=-1)
    left = logs - means[..., None]
    products = left @ np.swapaxes(left, -1, -2)
    own = np.diagonal(products, axis1=-2, axis2=-1)
    first, second = np.triu_indices(logs.shape[-2], 1)
    square = own[..., first] + own[..., second] - 2 * products[..., first, second]
    gaps = np.abs(means[..., first] - means[..., second])
    with np.errstate(divide="ignore", invalid="ignore"):
        found = gaps / np.sqrt(np.maximum(square, 0) / (blocks * (blocks - 1)))
    return np.asarray(np.where(gaps < 1e-12, 0.0, found))


def _beyond_most(seen: Floats, drawn: Floats) -> Flags:
    """Which statistics are beyond the largest of all but 5 % of the draws, themselves one."""
    largest = np.sort(drawn.max(axis=-1))
    as_large = len(largest) - np.searchsorted(largest, seen * (1 - 1e-9))
    return np.asarray((as_large + 1) / (len(largest) + 1) < SIGNIFICANT)


def sign_flips(figures: Floats) -> Flags:
    """The largest paired t, under flips of the sign of whole blocks."""
    generator = np.random.default_rng(3)
    logs = np.log(figures)
    logs = logs - logs.mean(axis=1, keepdims=True)
    signs = generator.choice([-1.0, 1.0], (_DRAWS, 1, logs.shape[-1]))
    each = zip(_studentized(logs), logs, strict=True)
    return np.array([_beyond_most(seen, _studentized(own * signs)) for seen, own in each])


def permutations(figures: Floats) -> Flags:
    """The largest paired t, under exchange of the treatments within blocks."""
    generator = np.random.default_rng(3)
    logs = np.log(figures)
    seen = _studentized(logs)
    found = []
    for own, statistics in zip(logs, seen, strict=True):
        drawn = generator.permuted(np.broadcast_to(own, (_DRAWS, *own.shape)), axis=1)
        found.append(_beyond_most(statistics, _studentized(drawn)))
    return np.array(found)


BASELINE = "baseline"
PROCEDURES: dict[str, Procedure] = {
    "verdict": verdict,
    BASELINE: baseline,
    "own spreads": own_spreads,
    "Tukey": tukey,
    "Conover": conover,
}
DRAWN: dict[str, Procedure] = {"sign flips": sign_flips, "permutations": permutations}

# ------------------------------------------------------------- the choice of a metric

# Log(wall time / processor time) of every run, in spreads. Wall time contains processor time, so
# the two are never independent.
Waits = Callable[[np.random.Generator, tuple[int, int, int]], Floats]

WAITS: dict[str, Waits] = {
    "near the limit": lambda generator, shape: generator.exponential(0.4, shape),
    "as the program itself": lambda generator, shape: generator.exponential(1.0, shape),
    "in busy minutes": lambda generator, shape: (
        generator.exponential(1.0, (shape[0], 1, shape[2])) * generator.exponential(1.0, shape)
    ),
}
CHOICE_DESIGNS = tuple(product((2, 5), (3, 6, 10)))  # allocators, blocks
# More studies of fewer designs: each of the hundreds of shares is to be told from 5 %.
_CHOICE_STUDIES = 5


@dataclass(frozen=True)
class Choice:
    """What the choice between wall and processor time came to in studies of equal treatments."""

    scatter: str
    waits: str
    treatments: int
    blocks: int
    studies: int
    chosen: float  # the share in which processor time decided
    false: float  # any difference by the metric that decided, of all pairs
    baseline: float  # likewise, of the pairs with the baseline


def count_choices(
    scatter: str, waits: str, treatments: int, blocks: int, studies: int, seed: int
) -> Choice:
    """Simulate studies in which wall time is processor time and waits."""
    names = list(SCATTERS).index(scatter), list(WAITS).index(waits)
    generator = np.random.default_rng([seed, *names, treatments, blocks])
    chosen = false = of_baseline = 0
    for size in _batches(studies, treatments**2 * blocks):
        own = SCATTERS[scatter](generator, size, blocks, np.zeros(treatments))
        wall = own * np.exp(SPREAD * WAITS[waits](generator, own.shape))
        is_chosen = decides(wall[:, None], own[:, None])
        decisive = np.where(is_chosen[:, None, None], own, wall)
        chosen += int(is_chosen.sum())
        false += int(verdict(decisive).any(axis=1).sum())
        of_baseline += int(baseline(decisive).any(axis=1).sum())
    shares = (each / studies for each in (chosen, false, of_baseline))
    return Choice(scatter, waits, treatments, blocks, studies, *shares)


def simulate_choices(studies: int, seed: int) -> Iterator[Choice]:
    for scatter, waits in product(SCATTERS, WAITS):
        for design in CHOICE_DESIGNS:
            yield count_choices(scatter, waits, *design, _CHOICE_STUDIES * studies, seed)


# ------------------------------------------------------------- notes on settings

NOTES_SCATTERS = ("normal", "spreads from one to five times")
NOTES_DESIGNS = tuple(product((2, 4, 6), (3, 5, 10), (2, 4)))  # allocators, blocks, settings
# A recommendation takes as long as hundreds of simulated verdicts.
_NOTES_SHARE = 20


@dataclass(frozen=True)
class Notes:
    """How many studies of equal allocators have a note on any setting."""

    scatter: str
    treatments: int
    blocks: int
    settings: int
    studies: int
    false: float


def count_notes(
    scatter: str, treatments: int, blocks: int, settings: int, studies: int, seed: int
) -> Notes:
    """Simulate recommendations on time and memory among equal allocators."""
    place = NOTES_SCATTERS.index(scatter)
    generator = np.random.default_rng([seed, place, treatments, blocks, settings])
    metrics = [
        Metric(name=name, label=name, unit=unit, better="lower", source="")
        for name, unit in (("wall_s", "s"), ("peak_rss_bytes", "bytes"))
    ]
    study = _study(treatments, settings, metrics)
    cells = [(a, s, b) for a in range(treatments) for s in range(settings) for b in range(blocks)]
    allocator, setting, block = (np.array(each) for each in zip(*cells, strict=True))
    nothing = np.zeros(len(cells), dtype=np.int64)
    false = 0
    for _ in range(studies):
        # So large that no difference is too small to matter.
        figures = {
            metric.name: 1e12
            * SCATTERS[scatter](generator, settings, blocks, np.zeros(treatments))
            .swapaxes(0, 1)
            .ravel()
            for metric in metrics
        }
        readings = Readings(
            study, [], study.design(), [allocator, nothing, setting], np.arange(len(cells)), block,
            nothing, figures, 0,
        )  # fmt: skip
        advice = recommend(readings, {})
        leader = advice.standings[0].allocator
        false += any(leader not in (each.best, *each.tied) for each in advice.by_setting)
    return Notes(scatter, treatments, blocks, settings, studies, false / studies)


def _study(treatments: int, settings: int, metrics: list[Metric]) -> Study:
    run = WorkloadRun(command=["true"])
    return Study.model_construct(
        name="simulated",
        command=run.command,
        workload=Workload(name="simulated", title="", question="", run=run),
        allocators=[
            InstalledAllocator(name=f"{number}", title="", version="", library=None)
            for number in range(treatments)
        ],
        baseline="0",
        cores=[1],
        factors=[Factor(name="size", levels=[f"{number}" for number in range(settings)])],
        metrics=metrics,
        primary_metric=metrics[0].name,
    )


def simulate_notes(studies: int, seed: int) -> Iterator[Notes]:
    for scatter, design in product(NOTES_SCATTERS, NOTES_DESIGNS):
        yield count_notes(scatter, *design, max(studies // _NOTES_SHARE, 1), seed)


# ------------------------------------------------------------------ counting


@dataclass(frozen=True)
class Line:
    """What was counted for one design and kind of scatter; shares from 0 to 1."""

    scatter: str
    treatments: int
    blocks: int
    studies: int
    coverage: float
    false: dict[str, float]  # by procedure: studies of equal treatments with any difference
    power: dict[str, float]  # by procedure: of the real differences, those found


def count(scatter: str, treatments: int, blocks: int, studies: int, seed: int) -> Line:
    """Simulate `studies` of equal and as many of different treatments."""
    procedures = {**PROCEDURES, **(DRAWN if (treatments, blocks) in _DRAWN_DESIGNS else {})}
    effect = EFFECT * SPREAD * (10 / blocks) ** 0.5
    truth = np.where(np.arange(treatments) < treatments // 2, 0.0, effect)
    first, second = np.triu_indices(treatments, 1)
    differ = truth[first] != truth[second]
    from_first = truth[1:] != truth[0]
    false = dict.fromkeys(procedures, 0.0)
    power = dict.fromkeys(procedures, 0.0)
    counted = dict.fromkeys(procedures, 0)
    covered = 0
    generator = np.random.default_rng([seed, list(SCATTERS).index(scatter), treatments, blocks])
    for size in _batches(studies, len(first) * blocks):
        equal = SCATTERS[scatter](generator, size, blocks, np.zeros(treatments))
        real = SCATTERS[scatter](generator, size, blocks, truth)
        gap = (truth[first] - truth[second]) * _STRETCHED.get(scatter, 1.0)
        covered += int(_holds(judge(pairs(real)), gap).sum())
        for name, procedure in procedures.items():
            some = slice(max(size // 10, 1)) if name in DRAWN else slice(None)
            found = procedure(equal[some])
            false[name] += float(found.any(axis=1).sum())
            of = from_first if name == BASELINE else differ
            power[name] += float(procedure(real[some])[:, of].mean(axis=1).sum())
            counted[name] += len(found)
    return Line(
        scatter,
        treatments,
        blocks,
        studies,
        covered / studies,
        {name: round(total / counted[name], 5) for name, total in false.items()},
        {name: round(total / counted[name], 5) for name, total in power.items()},
    )


def _holds(found: Judged, truth: Floats) -> Flags:
    return np.asarray(((found.low <= truth) & (truth <= found.high)).all(axis=1))


def _batches(studies: int, numbers: int) -> Iterator[int]:
    most = max(1, _BATCH // numbers)
    while studies > 0:
        yield min(most, studies)
        studies -= most


def simulate(studies: int, seed: int) -> Iterator[Line]:
    for scatter in SCATTERS:
        for treatments in TREATMENTS:
            for blocks in BLOCKS:
                yield count(scatter, treatments, blocks, studies, seed)


def keeps_promises(line: Line | Choice | Notes) -> bool:
    """Whether errors and coverage are as promised."""
    if isinstance(line, Line):
        most = max(line.false["verdict"], line.false[BASELINE])
        return most <= MOST_FALSE and line.coverage >= LEAST_COVERAGE
    most = max(line.false, line.baseline) if isinstance(line, Choice) else line.false
    return most <= MOST_FALSE


def said(line: Line | Choice | Notes) -> str:
    design = f"{line.scatter}, {line.treatments} treatments, {line.blocks} blocks"
    if isinstance(line, Choice):
        return (
            f"{design}, waits {line.waits}: processor time decides in {100 * line.chosen:.0f} %, "
            f"false {100 * line.false:.1f} %, with the baseline {100 * line.baseline:.1f} %"
        )
    if isinstance(line, Notes):
        return f"{design}, {line.settings} settings: false notes in {100 * line.false:.1f} %"
    numbers = [
        f"{name} {100 * line.false[name]:.1f}/{100 * line.power[name]:.0f}" for name in line.false
    ]
    return f"{design}: covered {100 * line.coverage:.1f} %; false/found in %: {', '.join(numbers)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Keep the result there.")
    arguments = parser.parse_args()
    simulated: dict[str, list[Any]] = {}
    for name, part in (
        ("lines", simulate),
        ("choices", simulate_choices),
        ("notes", simulate_notes),
    ):
        for line in part(arguments.studies, arguments.seed):
            print(said(line), flush=True)
            simulated.setdefault(name, []).append(line)
    if arguments.json:
        kept = {name: [asdict(line) for line in lines] for name, lines in simulated.items()}
        text = json.dumps({"seed": arguments.seed, **kept}, indent=1)
        arguments.json.write_text(f"{text}\n", encoding="utf-8")
    broken = [line for lines in simulated.values() for line in lines if not keeps_promises(line)]
    for line in broken:
        print(f"NOT KEPT: {said(line)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
