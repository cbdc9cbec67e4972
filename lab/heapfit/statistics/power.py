"""How many replicates would show a given difference, and how many would show on which side of a
bound a verdict's interval lies.

The former is for the analysis as papers make it. The comparison is Tukey's between two allocators
in one setting. Their difference over its standard error follows a noncentral t distribution of
noncentrality (difference / standard deviation) * sqrt(n / 2), n the replicates, with the residual
degrees of freedom that the design has with n replicates; it is found when it exceeds the
studentized range's critical value over the root of two, either way. The standard deviation is that
of the residuals, taken as known: after few replicates the note itself is uncertain.

The latter is for verdicts: the mean difference within blocks over its standard error, less that of
the bound, follows a noncentral t distribution too, and the side is known when that exceeds the
verdict's own critical value. Each further block adds one to the pair's degrees of freedom.

Reference: A. J. Hayter and W. Liu, "The power function of the studentised range test", Annals of
Statistics 18 (1990), 465-468; J. Cohen, "Statistical Power Analysis for the Behavioral Sciences",
2nd ed. (1988), for 0.8.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, log1p, sqrt

import numpy as np
from scipy.special import nctdtr

from heapfit.findings import PowerNote
from heapfit.statistics.studentized_range import critical
from heapfit.statistics.verdict import Pairs, adjusted_for, critical_t

EFFECT = 0.02
POWER = 0.8
MOST_REPLICATES = 1000
_LARGEST_EFFECT = 100.0
# Where the noncentrality exceeds the limit by more, the distribution cannot be computed.
_CERTAIN = 38


@dataclass(frozen=True)
class DesignPower:
    """What the power of Tukey's comparison in a design depends on, besides the replicates and the
    effect."""

    levels: int  # means in the family
    exponent: float
    cv: float  # of a trial, relative to the mean, on the measured scale
    residual_df: Callable[[int], float]  # with so many replicates

    def power(self, effect: float, replicates: int) -> float:
        """Return the probability of finding a true ratio of 1 + `effect`."""
        df = self.residual_df(replicates)
        if df < 1 or not np.isfinite(self.cv):
            return 0.0
        limit = critical(self.levels, float(df)) / sqrt(2)
        noncentrality = self._difference(effect) / self.cv * sqrt(replicates / 2)
        above = _probability_above(limit, noncentrality, df)
        if above == 1.0:
            return above
        return above + float(np.nan_to_num(nctdtr(df, noncentrality, -limit)))

    def _difference(self, effect: float) -> float:
        """The effect on the scale of the analysis, over the mean's slope there."""
        if self.exponent == 0:
            return log1p(effect)
        return abs(expm1(self.exponent * log1p(effect)) / self.exponent)


def power_note(
    design: DesignPower, replicates: int, effect: float = EFFECT, power: float = POWER
) -> PowerNote:
    """Return what `design` needs to find `effect` with probability `power`, and what it finds
    with the `replicates` that there are."""
    return PowerNote(
        effect=effect,
        power=power,
        replicates=_fewest(lambda count: design.power(effect, count), power),
        residual_cv=design.cv,
        achieved=design.power(effect, replicates),
        detectable=_detectable(design, replicates, power),
    )


def replicates_to_tell(
    found: Pairs, place: tuple[int, int], bound: float, of_each: float = 1.0, power: float = POWER
) -> int | None:
    """Return how many blocks would show, with probability `power`, that a pair lies on the side of
    `bound` where its mean difference is now; None: more than `MOST_REPLICATES`.

    `place` is the setting and the pair, `of_each` how many times each counts in the adjustment.
    """
    blocks, df = int(found.blocks[place]), float(found.df[place])
    deviation = sqrt(float(found.variance[place]) * blocks)
    gap = abs(float(found.mean[place]) - bound)
    pairs_adjusted_for = adjusted_for(found.comparisons[place[0]], of_each)

    def power_of(count: int) -> float:
        own_df = df + count - blocks
        if own_df < 1:
            return 0.0
        limit = float(critical_t(pairs_adjusted_for, own_df))
        noncentrality = gap / deviation * sqrt(count)
        return _probability_above(limit, noncentrality, own_df)

    return _fewest(power_of, power) if deviation > 0 else None


def _probability_above(limit: float, noncentrality: float, df: float) -> float:
    """Return the probability that a variable of the noncentral t distribution exceeds `limit`."""
    if noncentrality > limit + _CERTAIN:
        return 1.0
    # By symmetry: nctdtr computes the probability below a limit.
    return float(nctdtr(df, -noncentrality, -limit))


def _fewest(power_of: Callable[[int], float], power: float) -> int | None:
    """The fewest replicates of sufficient power, by bisection: power grows with them."""
    low, high = 1, MOST_REPLICATES
    if power_of(high) < power:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if power_of(middle) < power:
            low = middle
        else:
            high = middle
    return high


def _detectable(design: DesignPower, replicates: int, power: float) -> float | None:
    from scipy.optimize import brentq  # Takes a while to load: only for who reads an analysis.

    def shortfall(effect: float) -> float:
        return design.power(effect, replicates) - power

    if shortfall(_LARGEST_EFFECT) < 0:
        return None
    return float(brentq(shortfall, 0.0, _LARGEST_EFFECT, xtol=1e-5))
