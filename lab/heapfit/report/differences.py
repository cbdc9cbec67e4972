"""Effect sizes: every allocator's ratio to one reference, with intervals, a column per setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heapfit.findings import Difference
from heapfit.records import ALLOCATOR
from heapfit.report.findings_words import p_text
from heapfit.report.settings import levels_label
from heapfit.report.units import DASH, TIMES

_DECIMALS = 3
_OVERALL = "all settings"


@dataclass(frozen=True)
class RatioEntry:
    """One ratio to the reference as it is shown. `decided`: its interval excludes 1."""

    ratio: str
    interval: str
    p: str
    decided: bool


@dataclass(frozen=True)
class RatioTable:
    """Ratios to `reference`: rows are allocators, columns are settings."""

    reference: str
    method: str
    columns: list[str]
    rows: list[tuple[str, list[RatioEntry | None]]]


def ratios_to(
    differences: Sequence[Difference], wanted: str | None, baseline: str
) -> RatioTable | None:
    """Return the comparisons with `wanted`, or with the baseline where there are none of it."""
    own = [each for each in differences if each.factor == ALLOCATOR]
    for reference in filter(None, (wanted, baseline)):
        with_it = [each for each in own if reference in (each.first, each.second)]
        if with_it:
            return _table(with_it, reference)
    return None


def _table(differences: list[Difference], reference: str) -> RatioTable:
    columns = list(dict.fromkeys(_column(each) for each in differences))
    rows = list(dict.fromkeys(_other(each, reference) for each in differences))
    cells = {(_other(d, reference), _column(d)): _entry(d, reference) for d in differences}
    return RatioTable(
        reference=reference,
        method=" and ".join(dict.fromkeys(each.method for each in differences)),
        columns=columns,
        rows=[(row, [cells.get((row, column)) for column in columns]) for row in rows],
    )


def _column(difference: Difference) -> str:
    return levels_label(difference.at.items()) or _OVERALL


def _other(difference: Difference, reference: str) -> str:
    return difference.first if difference.second == reference else difference.second


def _entry(difference: Difference, reference: str) -> RatioEntry:
    ratio, low, high = difference.ratio, difference.low, difference.high
    if difference.first == reference:
        ratio, low, high = _inverse(ratio), _inverse(high), _inverse(low)
    return RatioEntry(
        ratio=f"{ratio:.{_DECIMALS}f}{TIMES}",
        interval=f"{low:.{_DECIMALS}f} {DASH} {high:.{_DECIMALS}f}",
        p=p_text(difference.p),
        decided=not low <= 1.0 <= high,
    )


def _inverse(ratio: float) -> float:
    return 1 / ratio if ratio else float("inf")
