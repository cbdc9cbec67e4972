"""What two runs are to each other, as plain data."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from heapfit.records import Record

# Between the calls of a chain, the innermost first.
SITE_SEPARATOR = " < "
CALLS_SHOWN = 3  # that a person knows a site by; those that led to them are in JSON


class Change(StrEnum):
    """What may be said of a figure of two runs."""

    SAME = "same"
    LESS = "less"
    MORE = "more"
    NEW = "new"  # of a call site that the old run does not have
    GONE = "gone"  # of one that the new run does not have
    UNCLEAR = "unclear"  # the intervals of both meet, or there are too few trials for any
    NOT_COMPARABLE = "not comparable"  # it is the machine's as much as the program's


class Fact(Record):
    """Something about a run that is another one in the other; None: it is not known, or absent."""

    name: str
    old: str | None
    new: str | None


class Span(Record):
    """A figure with the interval in which it is known."""

    value: float
    low: float
    high: float

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


class Figure(Record):
    """One figure of both runs."""

    of: str = Field(description="The treatment and its setting, or the call site; empty: all.")
    name: str
    unit: str = Field(description="A base unit; `ratio`: to the baseline of the same run.")
    old: Span
    new: Span
    change: Change


class Diff(Record):
    """All that is told of two runs."""

    kind: str = Field(description="`results` or `recordings`.")
    old: str
    new: str
    began: list[datetime | None] = Field(
        description="Of the old and of the new one, when; None: an anonymous recording."
    )
    changed: list[Fact] = Field(description="What is another one: program, versions, machine.")
    figures: list[Figure] = Field(description="Figures of both runs, side by side.")
    ratios: list[Figure] = Field(
        default=[], description="To the baseline within each run, where a machine cancels out."
    )
    sites: list[Figure] = Field(
        default=[], description="Call sites whose figures differ, those by most bytes first."
    )
    abbreviated: list[Figure] = Field(
        default=[], description="The same by the three innermost calls, as the tables show it."
    )
    notes: list[str] = Field(
        default=[], description="What to know before one reads the names of the call sites."
    )
    conclusions: list[str] = Field(description="What may be concluded and what may not.")


def change(old: Span, new: Span, *, known: bool = True) -> Change:
    """Return what the intervals say; `known`: they hold what they shall with 95 % confidence.

    >>> change(Span(value=1, low=1, high=1), Span(value=2, low=2, high=2)).value
    'more'
    """
    if not known:
        return Change.UNCLEAR
    if old.is_exact and new.is_exact and old.value == new.value:
        return Change.SAME
    if old.low <= new.high and new.low <= old.high:
        return Change.UNCLEAR
    return Change.MORE if new.value > old.value else Change.LESS


def figure(
    of: str, name: str, unit: str, spans: Sequence[Span], *, known: bool = True, own: bool = True
) -> Figure:
    """Return a figure of the old and the new run; `own`: it is the program's, not the machine's."""
    old, new = spans
    found = change(old, new, known=known) if own else Change.NOT_COMPARABLE
    return Figure(of=of, name=name, unit=unit, old=old, new=new, change=found)


def facts(old: dict[str, str], new: dict[str, str]) -> list[Fact]:
    """Return what differs between two descriptions.

    >>> [each.name for each in facts({"kernel": "6.1", "a": "b"}, {"kernel": "6.6", "a": "b"})]
    ['kernel']
    """
    return [
        Fact(name=name, old=old.get(name), new=new.get(name))
        for name in dict.fromkeys([*old, *new])
        if old.get(name) != new.get(name)
    ]
