"""What a gate decides: of each figure whether its bound holds, is exceeded, or cannot be told."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from heapfit.records import Record

# Broken: the program does not run, so that there is nothing to decide.
Outcome = Literal["passed", "failed", "untold", "broken"]

CANNOT_BE_TOLD = 3
WORK_FAILED = 4
# What counts first stands first.
_EXIT_CODES: dict[Outcome, int] = {
    "failed": 1,
    "broken": WORK_FAILED,
    "untold": CANNOT_BE_TOLD,
    "passed": 0,
}


class Place(Record):
    """A line of the program that has to do with a decision, and what it did."""

    what: str
    file: str | None = None
    line: int | None = None


class Decision(Record):
    """Whether one bound holds. It has failed only where that is shown."""

    name: str
    outcome: Outcome
    why: str
    places: list[Place] = Field(default=[])

    @property
    def word(self) -> str:
        """The outcome as a reader is told it."""
        return "inconclusive" if self.outcome == "untold" else self.outcome


def exit_code(decisions: Sequence[Decision]) -> int:
    """Return 1 where a bound is shown to be exceeded, else 4 where a program does not run, else 3
    where a bound cannot be told.

    >>> exit_code([])
    0
    """
    outcomes = {each.outcome for each in decisions}
    return next((code for outcome, code in _EXIT_CODES.items() if outcome in outcomes), 0)
