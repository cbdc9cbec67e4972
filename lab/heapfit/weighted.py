"""The interval of a total that is estimated from a sample.

Each sampled object counts by what it stands for, so a total is a sum of weighted Poisson counts.
Its interval is that of M. P. Fay and E. J. Feuer (Statistics in Medicine 16, 1997), which holds for
few samples, too: the estimate with two standard errors to either side is too narrow there.
"""

_TAIL = 0.025  # on either side


def interval(total: float, variance: float, most: float | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a total with this variance.

    `most` is the most that one more sample could add; left out, it is what the samples that there
    are add on average. Where there is no sample, the interval is made of it alone.

    >>> [round(each, 1) for each in interval(4.0, 4.0)]  # a count of four
    [1.1, 10.2]
    >>> interval(7.0, 0.0)  # counted, not estimated
    (7.0, 7.0)
    >>> [round(each, 1) for each in interval(0.0, 0.0, most=1.0)]  # a count of none
    [0.0, 3.7]
    """
    from scipy.special import chdtri

    if total <= 0 and most:
        return 0.0, float(most / 2 * chdtri(2, _TAIL))
    if variance <= 0 or total <= 0:
        return total, total
    low = variance / (2 * total) * chdtri(2 * total**2 / variance, 1 - _TAIL)
    most = variance / total if most is None else most
    total, variance = total + most, variance + most**2
    high = variance / (2 * total) * chdtri(2 * total**2 / variance, _TAIL)
    return float(low), float(high)
