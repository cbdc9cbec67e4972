"""Which of a test's parameters the everyday run takes: one or two that stand for all.

The others carry the mark `full`, so that each is in exactly one of the two runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest


def sampled(values: Mapping[str, Any] | Iterable[Any], *everyday: str) -> list[Any]:
    """Parameters for `parametrize`: those called as in `everyday`, and the others marked `full`.

    A mapping's keys are the parameters' names, else each value's text is its own.
    """
    named = values if isinstance(values, Mapping) else {str(value): value for value in values}
    unknown = set(everyday) - set(named)
    assert not unknown, f"no such parameters: {unknown}"
    return [
        pytest.param(value, id=name, marks=() if name in everyday else pytest.mark.full)
        for name, value in named.items()
    ]


def first(everyday: int, values: Sequence[Any]) -> list[Any]:
    """Parameters for `parametrize`: those after the first `everyday` are marked `full`."""
    return [
        *values[:everyday],
        *(pytest.param(*_arguments(value), marks=pytest.mark.full) for value in values[everyday:]),
    ]


def _arguments(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
