"""By how much an allocator differs from the baseline, in a few words."""

from __future__ import annotations

from collections.abc import Sequence

from heapfit.findings import Advice
from heapfit.records import Verdict
from heapfit.report.conclusions import mid_sentence
from heapfit.report.results import Results
from heapfit.text import TERMINAL_DIGITS, Scale, visible

# A change below so many per cent, or an interval of that width, is told in tenths of them.
_NARROW = 2.0
_MOST_MORE_DECIMALS = 3


def change(verdict: Verdict, scale: Scale) -> str:
    """Return the change from the second to the first, with its interval where that is known.

    A ratio is told in per cent, a difference in the unit of `scale`; with as many decimals as it
    takes to tell a difference that is shown from none, and the ends of an interval from each other.
    """
    is_ratio = verdict.subject == "ratio"
    unit = "%" if is_ratio else scale.unit
    known = [e for e in (verdict.estimate, verdict.low, verdict.high) if e is not None]
    estimate, *bounds = [100 * (e - 1) if is_ratio else scale.scaled(e) for e in known]
    width = bounds[1] - bounds[0] if len(bounds) == 2 else abs(estimate)
    fewest = int(width < _NARROW) if is_ratio else scale.decimals
    decimals = next(
        (
            n
            for n in range(fewest, fewest + _MOST_MORE_DECIMALS)
            if not _reads_wrong([estimate, *bounds], n, verdict.shown)
        ),
        fewest + _MOST_MORE_DECIMALS,
    )
    figure = f"{_signed(estimate, decimals)} {unit}".rstrip()
    if len(bounds) < 2:
        return figure
    low, high = (_signed(each, decimals) for each in bounds)
    return f"{figure} ({low} to {high})"


def _reads_wrong(values: Sequence[float], decimals: int, shown: bool) -> bool:
    rounded = [round(each, decimals) for each in values]
    is_point = len(values) > 1 and rounded[1] == rounded[-1] and values[1] != values[-1]
    return is_point or (shown and not all(rounded))


def _signed(value: float, decimals: int) -> str:
    return f"{value:+,.{decimals}f}" if round(value, decimals) else "0"


def against_baseline(results: Results, advice: Advice) -> str:
    """Return what the recommended allocator is to the baseline in each of the metrics that decide,
    over all settings, as a sentence; empty: there is nothing to say."""
    name = advice.recommended
    setting = results.settings[0] if len(results.settings) == 1 else None
    if name is None or name == results.baseline:
        return ""
    by_name = {metric.name: metric for metric in results.metrics}
    said = []
    for metric in (by_name[each] for each in advice.metrics.values() if each in by_name):
        verdict = results.verdict(setting, metric, name, results.baseline)
        if verdict is not None:
            undecided = "" if verdict.shown else ", which may be chance"
            scale = results.scale(metric, TERMINAL_DIGITS)
            said.append(f"{mid_sentence(metric.label)} {change(verdict, scale)}{undecided}")
    baseline = visible(results.baseline)
    return f"Compared with {baseline}: {'; '.join(said)}." if said else ""
