"""The Pareto front: the allocators that no other one beats in everything.

Reference: V. Pareto, "Manuale di economia politica" (1906); H. T. Kung, F. Luccio and F. P.
Preparata, "On finding the maxima of a set of vectors", JACM 22 (1975), 469-476, for the notion of
dominance.
"""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(costs: Sequence[Sequence[float]]) -> list[bool]:
    """Return, for each vector of costs, whether no other is as low everywhere and lower somewhere.

    >>> pareto_front([(1, 3), (2, 2), (2, 3), (1, 3)])
    [True, True, False, True]
    """
    return [not any(_dominates(other, own) for other in costs) for own in costs]


def _dominates(first: Sequence[float], second: Sequence[float]) -> bool:
    pairs = list(zip(first, second, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
