"""Effect sizes: every allocator's ratio to one reference, with intervals, a column per setting."""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.records import Metric, Verdict
from heapfit.report.findings_words import p_text
from heapfit.report.results import Results
from heapfit.report.settings import levels_label
from heapfit.text import DASH, TIMES, Scale, ratio

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
    results: Results, metric: Metric, scale: Scale, wanted: str | None
) -> RatioTable | None:
    """Return the verdicts on `wanted`, or on the baseline where there are none of it: over all
    settings, then in each."""
    own = [each for each in results.summary.verdicts if each.metric == metric.name and each.told]
    own.sort(key=lambda each: bool(each.at))
    for reference in filter(None, (wanted, results.baseline)):
        with_it = [
            each if each.second == reference else each.turned()
            for each in own
            if reference in (each.first, each.second)
        ]
        if with_it:
            return _table(with_it, reference, scale)
    return None


def _table(verdicts: list[Verdict], reference: str, scale: Scale) -> RatioTable:
    columns = list(dict.fromkeys(map(_column, verdicts)))
    rows = list(dict.fromkeys(each.first for each in verdicts))
    cells = {(each.first, _column(each)): _entry(each, scale) for each in verdicts}
    return RatioTable(
        reference=reference,
        method=" and ".join(dict.fromkeys(each.method for each in verdicts)),
        columns=columns,
        rows=[(row, [cells.get((row, column)) for column in columns]) for row in rows],
    )


def _column(verdict: Verdict) -> str:
    return levels_label(verdict.at.items()) or _OVERALL


def _entry(verdict: Verdict, scale: Scale) -> RatioEntry:
    low, high = verdict.low, verdict.high
    is_ratio = verdict.subject == "ratio"

    def shown(value: float, sign: str = "") -> str:
        return ratio(value, sign, _DECIMALS) if is_ratio else scale.difference(value)

    estimate = shown(verdict.estimate, TIMES)
    interval = "" if low is None or high is None else f"{shown(low)} {DASH} {shown(high)}"
    return RatioEntry(estimate, interval, p_text(verdict.p), decided=verdict.shown)
