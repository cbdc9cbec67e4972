"""The verdict: do a study's trials show a difference between two treatments?

No other module of the lab decides that.

Two treatments are compared by the differences of their figures within blocks, which exclude
whatever disturbed both at that moment. The subject is the ratio of geometric means, so differences
are of logarithms; for a metric that can be zero it is the difference of means. A pair is tested by
the paired t test with its own spread, steadied by how alike the pairs of the family scatter
(`spread`). No test of assumptions chooses the method.

A metric in a setting has two families: each treatment with the baseline, as in C. W. Dunnett's
procedure, and all pairs. A pair with the baseline is judged in the first, any other in the second.
Probabilities and intervals are Šidák's for as many pairs as the family has: the chance of any false
difference in a family shall be 5 %, and all its intervals shall hold at once with 95 %, from three
blocks on. An interval excludes equality exactly where the adjusted probability is below 5 %.
Dunnett's own bound supposes that all scatter alike; Šidák's holds whatever the correlation.

`benchmarks/verdict_errors.py` shows by simulation that this holds, beside Tukey's procedure and
Friedman's with Conover's; docs/method.md has its tables.

Over several settings a pair's differences are averaged, each setting with the same weight; their
variances add up, with Satterthwaite's degrees of freedom.

Rounded figures can agree by accident, and would then seem to have no spread. The spread of a
difference, before it is steadied, is therefore taken to be at least what rounding to the smallest
step between any two figures of the family makes of it (W. F. Sheppard's correction). Only figures
of which every treatment gave the same in all blocks are facts, without any spread.

References: "Student", "The probable error of a mean", Biometrika 6 (1908), 1-25; Z. Šidák,
"Rectangular confidence regions for the means of multivariate normal distributions", JASA 62 (1967),
626-633; C. W. Dunnett, "A multiple comparison procedure for comparing several treatments with a
control", JASA 50 (1955), 1096-1121; F. E. Satterthwaite, "An approximate distribution of estimates
of variance components", Biometrics Bulletin 2 (1946), 110-114; W. F. Sheppard, "On the calculation
of the most probable values of frequency constants", Proceedings of the London Mathematical Society
29 (1898), 353-380.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtr, stdtrit

from heapfit.meaning import too_small
from heapfit.records import ALLOCATOR, CAN_BE_ZERO, SIGNIFICANT, Metric, Study, Subject, Verdict
from heapfit.settings import setting_levels, setting_name
from heapfit.statistics.observations import Flags, Floats, Integers, Readings, figures_of, sample
from heapfit.statistics.spread import steadied

METHOD = "steadied paired t, Šidák"
STOPPED_METHOD = f"{METHOD}, stopped at a precision"
# A study that runs until its intervals are narrow stops a little more often when they are by chance
# too narrow. Each pair then counts as this many: the smallest multiple of a half that kept every
# simulated error of benchmarks/stopping_errors.py in its bound.
OF_STOPPING = 1.5
# Two blocks have one degree of freedom: an interval of theirs says next to nothing.
FEWEST_BLOCKS = 3
# With so few blocks, the paired t test is itself false a little too often where figures are not
# normal (a machine that gets slower), so each pair counts as this many.
OF_FEWEST = 1.3

# Steps between figures that are smaller, relative to the largest figure, are rounding of sums.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Pairs:
    """A family of pairs of treatments: all pairs (first < second), or those with one treatment,
    which is then the second. Arrays end in an axis of pairs.

    `variance` is that of `mean`, with `df` degrees of freedom; `blocks` counts those with both.
    """

    first: Integers
    second: Integers
    mean: Floats
    variance: Floats
    df: Floats
    blocks: Integers
    comparisons: Integers  # pairs of treatments that have any figure; no axis of pairs


@dataclass(frozen=True)
class Judged:
    """Mean differences with simultaneous intervals and adjusted probabilities; NaN where too
    little is known."""

    mean: Floats
    low: Floats
    high: Floats
    p: Floats


def pairs(
    figures: Floats, *, ratio: bool = True, to: int | None = None, steady: bool = True
) -> Pairs:
    """Return every pair's mean difference within blocks; with `ratio`, of logarithms.

    `figures` are [..., treatment, block], NaN where there is none. With `ratio` they must be
    positive. With `to`, the family is that of the pairs with this treatment. Without `steady` each
    pair keeps its own spread, as for an average: that has degrees of freedom enough, and an error
    of steadying would be the same in all settings.

    >>> found = pairs(np.array([[5.0, 7.0, 9.0], [1.0, 4.0, 4.0]]), ratio=False)
    >>> found.mean.tolist(), found.blocks.tolist(), found.df.tolist()
    ([4.0], [3], [2.0])
    """
    first, second = (each.astype(np.int64) for each in np.triu_indices(figures.shape[-2], 1))
    values = np.log(figures) if ratio else figures
    gaps = values[..., first, :] - values[..., second, :]
    there = ~np.isnan(gaps)
    blocks = there.sum(axis=-1)
    n = np.maximum(blocks, 1)
    mean = np.where(there, gaps, 0.0).sum(axis=-1) / n
    square = np.where(there, (gaps - mean[..., None]) ** 2, 0.0).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        of_one = np.maximum(square / (n - 1), _of_rounding(figures, first, second, ratio))
    treatments = (~np.isnan(figures)).any(axis=-1).sum(axis=-1)
    if steady:
        variance, df = _steadied(of_one, blocks, treatments, to is not None)
    else:
        variance = np.where(blocks > 1, of_one, np.nan)
        df = np.where(blocks > 1, blocks - 1.0, np.nan)
    comparisons = treatments * (treatments - 1) // 2 if to is None else treatments - 1
    found = Pairs(
        first=first,
        second=second,
        mean=np.where(blocks > 0, mean, np.nan),
        variance=variance / n,
        df=df,
        blocks=blocks,
        comparisons=comparisons,
    )
    return found if to is None else _with(found, to)


def _steadied(
    of_one: Floats, blocks: Integers, treatments: Integers, with_one: bool
) -> tuple[Floats, Floats]:
    """A pair with too few blocks keeps its own spread, so that it is not told by the others'."""
    df = np.where(blocks > 1, blocks - 1.0, np.nan)
    enough = blocks >= FEWEST_BLOCKS
    variance, more_df = steadied(
        np.where(enough, of_one, np.nan),
        np.where(enough, df, np.nan),
        treatments,
        with_one=with_one,
    )
    own = np.where(blocks > 1, of_one, np.nan)
    return np.where(enough, variance, own), np.where(enough, more_df, df)


def _with(found: Pairs, to: int) -> Pairs:
    """Return the pairs with the treatment `to`, each turned so that it is the second."""
    own = np.flatnonzero((found.first == to) | (found.second == to))
    turned = found.first[own] == to
    others = np.where(turned, found.second[own], found.first[own])
    mean = found.mean[..., own]
    return replace(
        found,
        first=others,
        second=np.full_like(others, to),
        mean=np.where(turned, -mean, mean),
        variance=found.variance[..., own],
        df=found.df[..., own],
        blocks=found.blocks[..., own],
    )


def average(of_settings: Pairs, kept: Flags) -> Pairs:
    """Return the pairs over all settings, the first axis; `kept` says which settings count for a
    pair.

    A setting in which a pair has only one block adds nothing to what is known of its spread, and
    gets the average of the others'.
    """
    n = kept.sum(axis=0)
    known = kept & ~np.isnan(of_settings.variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        one = np.where(known, of_settings.variance * of_settings.blocks, 0.0)
        usual = one.sum(axis=0) / known.sum(axis=0)
        parts = np.where(known, of_settings.variance, usual / of_settings.blocks) / n**2
        parts = np.where(kept, parts, 0.0)
        total = parts.sum(axis=0)
        shares = np.where(known, (of_settings.variance / n**2) ** 2 / of_settings.df, 0.0)
        df = np.where(total > 0, total**2 / shares.sum(axis=0), of_settings.df[0])
        nominal = np.where(known, of_settings.df, 0.0).sum(axis=0)
        means = np.where(kept, of_settings.mean, 0.0)
        mean = means.sum(axis=0) / n
        # Facts that balance each other leave what rounding left of them.
        mean = np.where(np.abs(mean) > _ROUNDING * np.abs(means).max(axis=0), mean, mean * 0.0)
    return Pairs(
        first=of_settings.first,
        second=of_settings.second,
        mean=np.where(n > 0, mean, np.nan),
        variance=np.where(nominal >= FEWEST_BLOCKS - 1, total, np.nan),
        df=np.where(np.isfinite(df), np.clip(df, 1.0, nominal), nominal),
        # What the bound asks for is met by degrees of freedom, which settings share.
        blocks=np.where(kept, of_settings.blocks, 0).sum(axis=0),
        comparisons=of_settings.comparisons.max(axis=0),
    )


def over_settings(found: Pairs) -> Pairs:
    """Return `average` of the pairs that share a block in every setting; there are too few figures
    to compare the others over all of them."""
    kept = found.blocks > 0
    kept &= kept.sum(axis=0) == kept.any(axis=1).sum()
    return average(found, kept)


def judge(found: Pairs, of_each: float = 1.0) -> Judged:
    """Return the intervals and probabilities of a family of pairs, each counted `of_each` times.

    That is 1 unless the number of figures depended on the figures.
    """
    count = adjusted_for(found.comparisons, of_each)[..., None]
    count = count * np.where(found.blocks <= FEWEST_BLOCKS, OF_FEWEST, 1.0)
    told = (found.df >= FEWEST_BLOCKS - 1) & ~np.isnan(found.variance)
    error = np.sqrt(np.where(told, found.variance, np.nan))
    df = np.where(told, found.df, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        studentized = np.where(np.abs(found.mean) > 0, np.abs(found.mean) / error, 0.0)
    alone = 2 * stdtr(df, -studentized)
    with np.errstate(divide="ignore"):  # what is certainly chance
        p = np.where(told, -np.expm1(count * np.log1p(-alone)), np.nan)
    bound = critical_t(count, df)
    return Judged(found.mean, found.mean - bound * error, found.mean + bound * error, p)


def adjusted_for(comparisons: Integers, of_each: float) -> Floats:
    """Return how many pairs the intervals of a family are adjusted for."""
    return np.asarray(of_each * np.maximum(comparisons, 1))


def critical_t(count: Floats, df: Floats | float) -> Floats:
    """Return half the width of an interval adjusted for `count` pairs, in standard errors."""
    return np.asarray(-stdtrit(df, -np.expm1(np.log1p(-SIGNIFICANT) / count) / 2))


def subject_of(metric: str, figures: Floats) -> Subject:
    """Return how figures of a metric are compared: as a ratio, or as a difference where one can be
    zero."""
    counted = figures[~np.isnan(figures)]
    can_be_zero = metric in CAN_BE_ZERO or bool((counted <= 0).any())
    return "difference" if can_be_zero else "ratio"


def mean_of_known(values: Floats, axis: int = -1) -> Floats:
    """Return the mean along an axis without NaN; NaN where there is nothing else."""
    counts = (~np.isnan(values)).sum(axis=axis)
    return np.asarray(np.nansum(values, axis=axis) / np.where(counts, counts, np.nan))


def by_block(readings: Readings, figures: Floats) -> Floats:
    """Return figures as [setting, allocator, block]; NaN where there is none."""
    block = readings.shared
    allocators, *others = readings.shape
    table = np.full((allocators * math.prod(others), block.max(initial=0) + 1), np.nan)
    there = np.isfinite(figures)
    table[readings.cell[there], block[there]] = figures[there]
    return table.reshape(allocators, math.prod(others), -1).swapaxes(0, 1)


def in_full_grid(readings: Readings, figures: Floats, metric: str) -> Flags | None:
    """Return which [setting, allocator] are compared over all settings at once.

    Levels are left out until each allocator has a figure in each setting. None: too few are left.
    """
    grid = sample(readings, figures, metric)
    if grid is None or grid.layout.factors[0].name != ALLOCATOR:
        return None
    kept = np.zeros(math.prod(readings.shape), dtype=bool)
    kept[readings.cell[grid.layout.rows]] = True
    return kept.reshape(readings.shape[0], -1).T


def verdicts(readings: Readings, whole: Collection[str] = ()) -> list[Verdict]:
    """Return every metric's verdicts, setting by setting, then over all settings (no levels).

    They are of all pairs for the metrics in `whole`, of each allocator with the baseline for the
    others. Where one allocator alone is measured in several settings, they are of its settings, for
    the metrics in `whole`.
    """
    study = readings.study
    if study.is_of_one:
        wanted = [metric for metric in study.metrics if metric.name in whole]
        return [each for metric in wanted for each in between_settings(readings, metric)]
    baseline = [allocator.name for allocator in study.allocators].index(study.baseline)
    made: list[Verdict] = []
    for metric in study.metrics:
        to = None if metric.name in whole else baseline
        family = _Family.of_allocators(readings, figures_of(readings, metric.name), metric)
        made += [each for found in family.in_settings(to) for each in found]
        if len(family.levels) > 1:
            made += family.overall(to)
    return made


def in_settings(
    readings: Readings, figures: Floats, metric: Metric, times: int = 1
) -> list[list[Verdict]]:
    """Return the verdicts on `figures`, one for each trial, in every setting of the study, adjusted
    for `times` as many pairs."""
    family = _Family.of_allocators(readings, figures, metric)
    return replace(family, of_each=family.of_each * times).in_settings()


def overall(readings: Readings, figures: Floats, metric: Metric) -> list[Verdict]:
    """Return the verdicts on `figures` over all settings; where there is one, those of that one."""
    family = _Family.of_allocators(readings, figures, metric)
    if len(family.levels) > 1:
        return family.overall()
    return [each for found in family.in_settings() for each in found]


def between_settings(readings: Readings, metric: Metric) -> list[Verdict]:
    """Return the verdicts on the settings of one allocator, which share blocks as allocators do."""
    family = _Family.of_allocators(readings, figures_of(readings, metric.name), metric)
    settings = readings.study.settings()
    family = replace(
        family,
        names=[setting_name(readings.study, setting) for setting in settings],
        levels=[{}],
        table=family.table.swapaxes(0, 1),
        baseline=None,
    )
    return [each for found in family.in_settings() for each in found]


def of_each(study: Study) -> float:
    """Return how many times each pair of a study is counted in the adjustment."""
    return OF_STOPPING if study.stops_by_figures else 1.0


@dataclass(frozen=True)
class _Family:
    """The figures of one metric, [setting, treatment, block], by the treatments' `names`."""

    names: Sequence[str]
    levels: Sequence[Mapping[str, str]]  # of each setting
    metric: Metric
    table: Floats
    complete: Flags | None  # the [setting, treatment] to be compared over all settings, if any
    subject: Subject
    baseline: int | None  # its pairs are a family of their own; None: there is no such family
    of_each: float  # how many times each pair is counted in the adjustment
    method: str

    @classmethod
    def of_allocators(cls, readings: Readings, figures: Floats, metric: Metric) -> _Family:
        study = readings.study
        names = [allocator.name for allocator in study.allocators]
        return cls(
            names=names,
            levels=[setting_levels(setting) for setting in study.settings()],
            metric=metric,
            table=by_block(readings, figures),
            complete=in_full_grid(readings, figures, metric.name),
            subject=subject_of(metric.name, figures),
            baseline=None if study.control is None else names.index(study.control),
            of_each=of_each(study),
            method=STOPPED_METHOD if study.stops_by_figures else METHOD,
        )

    def in_settings(self, to: int | None = None) -> list[list[Verdict]]:
        found, judged = self._judged(to, lambda of: self._pairs(self.table, of))
        means = self._means()
        return [
            list(self._records(found, judged, means, (setting,), at))
            for setting, at in enumerate(self.levels)
        ]

    def overall(self, to: int | None = None) -> list[Verdict]:
        if self.complete is None:
            return []
        kept = np.where(self.complete[..., None], self.table, np.nan)
        averaged, judged = self._judged(
            to, lambda of: over_settings(self._pairs(kept, of, steady=False))
        )
        means = self._means()
        each = self._pairs(kept, to, steady=False)
        gaps = self._in_units(each.mean, each, means)
        # Each treatment's mean is the average over the settings that it has.
        mean, gap = mean_of_known(means, axis=0), mean_of_known(gaps, axis=0)
        made = list(self._records(averaged, judged, mean, (), {}, gap))
        if any(each.trivial for each in made):  # Much either way may cancel out to little.
            within = [each for found in self.in_settings(to) for each in found]
            much = {(e.first, e.second) for e in within if e.shown and not e.trivial}
            made = [
                e.model_copy(update={"trivial": e.trivial and (e.first, e.second) not in much})
                for e in made
            ]
        return made

    def _pairs(self, table: Floats, to: int | None, *, steady: bool = True) -> Pairs:
        return pairs(table, ratio=self.subject == "ratio", to=to, steady=steady)

    def _judged(
        self, to: int | None, family: Callable[[int | None], Pairs]
    ) -> tuple[Pairs, Judged]:
        """Judge the pairs with `to`, or all of them, each in its own `family`."""
        found = family(to)
        judged = judge(found, self.of_each)
        if to is not None or self.baseline is None:
            return found, judged
        of_baseline = judge(family(self.baseline), self.of_each)
        return found, _replaced(judged, found, of_baseline, self.baseline)

    def _records(
        self,
        found: Pairs,
        judged: Judged,
        means: Floats,
        place: tuple[int, ...],
        at: Mapping[str, str],
        gap: Floats | None = None,
    ) -> Iterator[Verdict]:
        """Yield the verdicts at a place of the leading axes; `means` are the treatments', in the
        metric's unit. So is `gap`, the difference of each pair, where that is not this ratio of
        these means: over settings the ratio may come from one whose figures are small."""
        is_ratio = self.subject == "ratio"
        bounds = np.array((judged.mean[place], judged.low[place], judged.high[place]))
        with np.errstate(over="ignore"):
            estimates, lows, highs = np.exp(bounds) if is_ratio else bounds
        in_units = self._in_units(bounds, found, means[place])
        gaps, least, most = in_units if gap is None else in_units + (gap - in_units[0])
        little = too_small(self.metric)
        columns = (found.first, found.second, estimates, lows, highs, judged.p[place],
                   found.blocks[place], gaps, least, most)  # fmt: skip
        for first, second, estimate, low, high, p, blocks, gap, from_, to in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            if blocks == 0:
                continue
            told = not math.isnan(p)
            is_much = from_ >= little or to <= -little if little else p < SIGNIFICANT
            # Over settings the larger ones may say the opposite of what the ratio does.
            agrees = not is_ratio or (estimate - 1) * gap >= 0
            yield Verdict.model_construct(
                metric=self.metric.name,
                first=self.names[first],
                second=self.names[second],
                at=dict(at),
                subject=self.subject,
                estimate=estimate,
                low=low if told else None,
                high=high if told else None,
                p=p if told else None,
                blocks=blocks,
                absolute=gap,
                absolute_low=from_ if told else None,
                absolute_high=to if told else None,
                trivial=told and -little < from_ and to < little,
                matters=told and is_much and agrees,
                method=self.method,
            )

    def _in_units(self, bounds: Floats, found: Pairs, means: Floats) -> Floats:
        """Return `bounds` of the pairs as differences in the unit of the treatments' `means`."""
        if self.subject != "ratio":
            return bounds
        # Both geometric means are the middle of the two, times or over the root of their ratio.
        middle = np.sqrt(means[..., found.first] * means[..., found.second])
        with np.errstate(over="ignore"):
            return np.asarray(2 * middle * np.sinh(bounds / 2))

    def _means(self) -> Floats:
        """Each treatment's mean in each setting."""
        if self.subject == "ratio":
            return np.exp(mean_of_known(np.log(self.table)))
        return mean_of_known(self.table)


def _replaced(judged: Judged, found: Pairs, of_baseline: Judged, baseline: int) -> Judged:
    """Return what was judged of all pairs, with those of the baseline's from their own family."""
    own = np.flatnonzero((found.first == baseline) | (found.second == baseline))
    turned = found.first[own] == baseline
    low, high, p = judged.low.copy(), judged.high.copy(), judged.p.copy()
    low[..., own] = np.where(turned, -of_baseline.high, of_baseline.low)
    high[..., own] = np.where(turned, -of_baseline.low, of_baseline.high)
    p[..., own] = of_baseline.p
    return Judged(judged.mean, low, high, p)


def _of_rounding(figures: Floats, first: Integers, second: Integers, ratio: bool) -> Floats:
    """The variance of a difference of two figures that are rounded to the family's step.

    Nil for facts. A rounded figure is uniform about the true one: a variance of step squared over
    12 (of its logarithm: relative to the figure).
    """
    flat = np.sort(figures.reshape(*figures.shape[:-2], -1), axis=-1)  # NaN goes last
    gaps = np.diff(flat, axis=-1)
    largest = np.nanmax(np.abs(np.where(np.isnan(flat), 0.0, flat)), axis=-1, keepdims=True)
    steps = np.where(gaps > _ROUNDING * largest, gaps, np.inf).min(axis=-1, initial=np.inf)
    lowest, highest = np.fmin.reduce(figures, axis=-1), np.fmax.reduce(figures, axis=-1)
    with np.errstate(invalid="ignore"):
        scatters = (highest - lowest > _ROUNDING * largest).any(axis=-1)
    step = np.where(scatters & np.isfinite(steps), steps, 0.0)[..., None]
    if not ratio:
        return np.asarray(np.broadcast_to(step**2 / 6, (*step.shape[:-1], len(first))))
    middle = np.where(lowest > 0, np.sqrt(lowest * highest), np.nan)
    relative = (step / middle) ** 2 / 12
    return np.asarray(np.nan_to_num(relative[..., first] + relative[..., second]))
