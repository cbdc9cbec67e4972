"""The spread of a pair's differences, steadied by the spread of the other pairs of its family.

With six blocks a pair's own variance has five degrees of freedom, and the intervals of ten pairs
are then half as wide again as they need be. The variances of all pairs are taken to be drawn from
one distribution, the scaled inverse chi-square, whose location and degrees of freedom d0 are
estimated from the logarithms of those seen. A pair's variance becomes the mean of its own and of
that location, weighted by degrees of freedom. Where treatments scatter alike, d0 is large and the
variance is nearly the pooled one; where one of them scatters otherwise, d0 is small and nearly
nothing is pooled: no test chooses between the two. With two treatments there is one pair, and it
is the paired t test.

Two things differ from Smyth's procedure, which is for thousands of variances that are independent.
Pairs that share a treatment share half of their spread, which takes a known part of the scatter of
the logarithms away. And d0 is itself a rough estimate, the rougher the fewer blocks: only a share
of it is counted among the degrees of freedom, which grows with the blocks. The shares are the
largest that were tried and kept the errors of simulated studies in their bound. The share is
smaller in a family in which all pairs have one treatment in common: if that one scatters otherwise,
all of its pairs are wrong together.

Reference: G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential
expression in microarray experiments", Statistical Applications in Genetics and Molecular Biology 3
(2004), article 3, sections 5 and 6.2.
"""

import numpy as np
from scipy.special import digamma, polygamma

from heapfit.statistics.observations import Floats, Integers

# With fewer there is one pair.
_FEWEST_TREATMENTS = 3
# The share of d0 that is counted: the first, less the second over a pair's own degrees of freedom.
_OF_ALL_PAIRS, _OF_PAIRS_WITH_ONE = (0.5, 0.9), (0.2, 0.45)
_LEAST_SHARE = 0.01
# As good as pooled: more degrees of freedom change no digit that is printed.
_MOST_D0 = 1e4
_STEPS = 10  # of Newton's method, which takes four to six to the last digit
# Two pairs that share one treatment of equal spread: of their variances' logarithms.
_CORRELATION = 0.25


def steadied(
    variance: Floats, df: Floats, treatments: Integers, *, with_one: bool = False
) -> tuple[Floats, Floats]:
    """Return the steadied variances of the pairs' differences and their degrees of freedom.

    The arguments are the pairs' own, with all pairs of a family of `treatments` along the last
    axis. A pair of which too little is known has NaN; it stays so and does not affect the others.
    `with_one` says that the family consists of the pairs with one of the treatments.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        location, d0 = _prior(variance, df, treatments)
        mixed = (d0 * location + df * variance) / (d0 + df)
        most, less = _OF_PAIRS_WITH_ONE if with_one else _OF_ALL_PAIRS
        counted = np.maximum(most - less / df, _LEAST_SHARE) * d0
        rest = (treatments - 2)[..., None] * df
        if with_one:
            rest = np.minimum(rest, df**2)  # With few blocks a large d0 is mostly luck.
        together = df + np.minimum(counted, rest)
    facts = np.where(np.isnan(variance), np.inf, variance).min(axis=-1, initial=np.inf) <= 0
    learns = ((treatments >= _FEWEST_TREATMENTS) & ~facts)[..., None] & ~np.isnan(mixed)
    return np.where(learns, mixed, variance), np.where(learns, together, df)


def _prior(variance: Floats, df: Floats, treatments: Integers) -> tuple[Floats, Floats]:
    """The location and the degrees of freedom of the distribution; NaN: of one pair or none."""
    logs = np.log(variance) - digamma(df / 2) + np.log(df / 2)
    count = (~np.isnan(variance)).sum(axis=-1)
    middle = np.nansum(logs, axis=-1) / count
    scatter = np.nansum((logs - middle[..., None]) ** 2, axis=-1) / (count - 1)
    # Of any two pairs of k treatments these share one: k (k - 1) (k - 2) / 2 of the couples.
    pairs = treatments * (treatments - 1) / 2
    share = 2 * (treatments - 2) / (pairs - 1)
    chance = np.nansum(polygamma(1, df / 2), axis=-1) / count * (1 - _CORRELATION * share)
    d0 = 2 * _inverse_trigamma(np.maximum(scatter - chance, 2 / _MOST_D0))
    location = np.exp(middle + digamma(d0 / 2) - np.log(d0 / 2))
    return location[..., None], d0[..., None]


def _inverse_trigamma(values: Floats) -> Floats:
    """By Newton's method on the reciprocal, which is convex and nearly straight (Smyth's appendix).

    >>> [round(float(y), 6) for y in _inverse_trigamma(polygamma(1, np.array([0.05, 1.0, 400.0])))]
    [0.05, 1.0, 400.0]
    """
    found = 0.5 + 1 / values
    for _ in range(_STEPS):
        trigamma = polygamma(1, found)
        found = found + trigamma * (1 - trigamma / values) / polygamma(2, found)
    return np.asarray(found)
