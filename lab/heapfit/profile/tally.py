"""A tally: what is counted of traces, in whole numbers that add up.

Each file is counted alone, on whichever machine; the sum of tallies does not depend on their order
or on who counted. So a profile made by a cluster is the one made here, to the last digit. A table
of the tally has rows of sums by a key; most of a row are amounts, ADDENDS numbers each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from heapfit.profile.model import Amount, Recording

# The objects of a sampled trace stand for others, a fraction more or less: they count in 65536ths.
UNITS = 1 << 16

# An amount in a row: objects, bytes, variance of the objects (all in UNITS), variance of the bytes.
ADDENDS = 4

Key = tuple[Any, ...]
Row = tuple[int, ...]
Table = dict[Key, Row]
_Group = TypeVar("_Group")


@dataclass
class Example:
    """A burst to draw: of a thread, by its key."""

    thread: Key
    start_ns: int
    end_ns: int


@dataclass
class Counted:
    """A recording as it was counted, and the first bursts in it."""

    recording: Recording
    examples: list[Example] = field(default_factory=list)
    builds: dict[str, str] = field(default_factory=dict)  # build IDs of its files, by path
    sources: frozenset[str] = frozenset()  # of interpreted programs, without folders
    changed: tuple[str, ...] = ()  # files that are others by now


@dataclass
class Tally:
    """The sums of one recording or of several, which stand in `recordings` in the user's order."""

    recordings: list[Counted] = field(default_factory=list)
    sums: dict[str, Table] = field(default_factory=lambda: defaultdict(dict))
    most: dict[str, Table] = field(default_factory=lambda: defaultdict(dict))  # the greater counts

    def add(self, table: str, key: Key, row: Iterable[int]) -> None:
        """Add `row` to the row of `key`."""
        rows, new = self.sums[table], tuple(row)
        old = rows.get(key)
        rows[key] = new if old is None else tuple(map(sum, zip(old, new, strict=True)))

    def raise_to(self, table: str, key: Key, row: Iterable[int]) -> None:
        """Make each number of the row of `key` at least that of `row`."""
        rows, new = self.most[table], tuple(row)
        old = rows.get(key)
        rows[key] = new if old is None else tuple(map(max, zip(old, new, strict=True)))

    def include(self, other: Tally) -> None:
        """Add all of `other`, whose recordings come after."""
        self.recordings += other.recordings
        for table, rows in other.sums.items():
            for key, row in rows.items():
                self.add(table, key, row)
        for table, rows in other.most.items():
            for key, row in rows.items():
                self.raise_to(table, key, row)

    def total(self, table: str, width: int) -> Row:
        """Return the sum of all rows of `table`, which are of `width` numbers."""
        return add_up(self.sums[table].values(), width)


def merged(tallies: Iterable[Tally]) -> Tally:
    """Return the sum of `tallies`."""
    whole = Tally()
    for each in tallies:
        whole.include(each)
    return whole


def add_up(rows: Iterable[Row], width: int) -> Row:
    """Return the sum of rows of `width` numbers.

    >>> add_up([(1, 2), (3, 4)], 2), add_up([], 2)
    ((4, 6), (0, 0))
    """
    return tuple(map(sum, zip((0,) * width, *rows, strict=True)))


def grouped(table: Table, by: Callable[..., _Group], width: int) -> dict[_Group, Row]:
    """Return the sums of `table` by what `by` makes of the parts of a key.

    >>> grouped({("a", 1): (2,), ("b", 1): (3,)}, lambda letter, number: number, 1)
    {1: (5,)}
    """
    groups: defaultdict[_Group, list[Row]] = defaultdict(list)
    for key, row in table.items():
        groups[by(*key)].append(row)
    return {group: add_up(rows, width) for group, rows in groups.items()}


def amount(row: Sequence[int], at: int = 0) -> Amount:
    """Return the amount that begins at place `at` of `row`.

    >>> amount((3 * UNITS, 48 * UNITS, 0, 0))
    Amount(objects=3, bytes=48, objects_error=0.0, bytes_error=0.0)
    """
    objects, size, objects_variance, bytes_variance = row[at : at + ADDENDS]
    return Amount(
        objects=whole(objects),
        bytes=whole(size),
        objects_error=math.sqrt(objects_variance / UNITS),
        bytes_error=math.sqrt(bytes_variance),
    )


def whole(units: int) -> int:
    """Return UNITS as a whole number, rounded."""
    return (units + UNITS // 2) // UNITS


def share(part: float, of: float) -> float | None:
    """Return `part` as a share of a whole; None when there is no whole.

    >>> share(1, 4), share(0, 0)
    (0.25, None)
    """
    return part / of if of else None
