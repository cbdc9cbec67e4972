"""Compact letter displays: means that share no letter differ.

The insert-and-absorb algorithm. It starts with one letter for all. For each pair that differs,
every letter that both carry is split in two: one without the first, one without the second; a
letter that another one covers is absorbed. The result is exact for any pattern of differences: two
means share a letter if and only if they were not found to differ.

Reference: H.-P. Piepho, "An algorithm for a letter-based representation of all-pairwise
comparisons", Journal of Computational and Graphical Statistics 13 (2004), 456-466.
"""

from collections.abc import Iterable, Sequence
from string import ascii_lowercase


def letters(order: Sequence[int], different: Iterable[tuple[int, int]]) -> list[str]:
    """Return the letters of items 0 to n-1; `order` lists the items from the first letter on.

    >>> letters([2, 0, 1], [(2, 1)])
    ['ab', 'b', 'a']
    """
    rank = {item: place for place, item in enumerate(order)}
    groups = [frozenset(range(len(order)))]
    for first, second in different:
        groups = _absorbed(_split(groups, rank[first], rank[second]))
    groups.sort(key=sorted)
    marks = [""] * len(order)
    for index, group in enumerate(groups):
        for place in group:
            marks[order[place]] += letter(index)
    return marks


def letter(index: int) -> str:
    """Return the letter of a number from 0: a to z, then a2 to z2, and so on.

    >>> [letter(index) for index in (0, 25, 26, 52)]
    ['a', 'z', 'a2', 'a3']
    """
    round_, place = divmod(index, len(ascii_lowercase))
    return ascii_lowercase[place] + (str(round_ + 1) if round_ else "")


def _split(groups: list[frozenset[int]], first: int, second: int) -> list[frozenset[int]]:
    split: list[frozenset[int]] = []
    for group in groups:
        if first in group and second in group:
            split += [group - {first}, group - {second}]
        else:
            split.append(group)
    return split


def _absorbed(groups: list[frozenset[int]]) -> list[frozenset[int]]:
    kept: list[frozenset[int]] = []
    for group in sorted(set(groups), key=len, reverse=True):
        if not any(group <= other for other in kept):
            kept.append(group)
    return kept
