"""By how much an allocator differs from the baseline, in a few words."""

from __future__ import annotations

from heapfit.findings import Advice
from heapfit.records import Verdict
from heapfit.report.results import Results
from heapfit.text import Scale, visible

# An interval narrower than so many per cent is told in tenths of them.
_NARROW = 2.0


def change(verdict: Verdict, scale: Scale) -> str:
    """Return the change from the second to the first, with its interval where that is known.

    A ratio is told in per cent, a difference in the unit of `scale`.
    """
    is_ratio = verdict.subject == "ratio"
    estimate = 100 * (verdict.estimate - 1) if is_ratio else verdict.estimate
    unit = "%" if is_ratio else scale.unit
    if verdict.low is None or verdict.high is None:
        figure = f"{estimate:+,.0f}" if is_ratio else scale.difference(estimate)
        return f"{figure} {unit}".rstrip()
    low, high = (100 * (b - 1) if is_ratio else b for b in (verdict.low, verdict.high))
    decimals = _decimals(verdict.shown, estimate, low, high)
    figures = [
        f"{each:+,.{decimals}f}" if is_ratio else scale.difference(each)
        for each in (estimate, low, high)
    ]
    return f"{figures[0]} {unit}".rstrip() + f" ({figures[1]} to {figures[2]})"


def _decimals(shown: bool, estimate: float, low: float, high: float) -> int:
    fewest = 1 if high - low < _NARROW else 0
    reads_equal = (n for n in range(fewest, 3) if shown and not round(estimate, n))
    return max(reads_equal, default=fewest - 1) + 1


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
            scale = results.scale(metric, 3)
            said.append(f"{metric.label.lower()} {change(verdict, scale)}{undecided}")
    return visible(f"Compared with {results.baseline}: {'; '.join(said)}.") if said else ""
