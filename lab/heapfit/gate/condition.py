"""Bounds as a user writes them: `peak_rss_bytes>1.05`, `mmap:wall_s>1.03`, `system_s>+0.1`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from heapfit.errors import UsageError

_FORM = re.compile(
    r"(?:(?P<treatment>.+):)?\s*(?P<metric>\w[\w.-]*)\s*(?P<sign><=|>=|[<>])"
    r"\s*(?P<bound>[+-]?[0-9]+(?:\.[0-9]+)?)\s*"
)


@dataclass(frozen=True)
class Condition:
    """What must not be (`>`, `<`) or must be (`<=`, `>=`) of a metric. The bound is a ratio, or
    with a sign in front of it a difference."""

    text: str
    treatment: str | None
    metric: str
    sign: Literal["<", ">", "<=", ">="]
    bound: float
    is_difference: bool
    option: str = ""  # that the user wrote it behind

    def forbidden(self) -> Condition:
        """Return what must not be, where this says what must be."""
        opposite: dict[str, Literal["<", ">"]] = {"<=": ">", ">=": "<"}
        return replace(self, sign=opposite[self.sign])


# Who writes as much means a number of bytes or calls, and would have a gate that never fails.
_NO_RATIO = 100


def parse(text: str, option: str, signs: str, example: str) -> Condition:
    """Return the condition; UsageError where `text` is none with one of the `signs`.

    >>> parse("mine:wall_s > 1.03", "--fail-if", "< >", "").treatment
    'mine'
    """
    found = _FORM.fullmatch(text)
    if found is None or found["sign"] not in signs.split():
        raise UsageError(f"{option} takes a condition such as {example!r}, not {text!r}")
    is_difference = found["bound"][0] in "+-"
    bound = float(found["bound"])
    if not is_difference and bound <= 0:
        raise UsageError(f"{option} {text!r}: a ratio is above 0; write a difference with its sign")
    if not is_difference and bound >= _NO_RATIO:
        raise UsageError(
            f"{option} {text!r}: without a sign a bound is a ratio, here {bound:g} times as much; "
            f"write a difference with its sign: '{text[: found.start('bound')]}+{found['bound']}'"
        )
    sign: Literal["<", ">", "<=", ">="] = found["sign"]  # type: ignore[assignment]
    return Condition(text, found["treatment"], found["metric"], sign, bound, is_difference, option)
