"""What an analysis says of the allocators in one setting: the best, and who is not shown to differ.

These are the comparisons that the letters of its tables stand for, so that a sentence and the table
below it say the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from heapfit.findings import Analysis, Difference
from heapfit.records import ALLOCATOR, Metric, Setting
from heapfit.report.findings_words import SIGNIFICANT
from heapfit.report.settings import setting_levels


@dataclass(frozen=True)
class Verdict:
    """The allocators that an analysis compares in a setting.

    `tied` are not shown to differ from the `best`; `alike`: no two of all are shown to differ.
    """

    best: str
    tied: list[str]
    alike: bool
    compared: list[str]
    ratios: dict[str, float]


def verdict(analysis: Analysis, setting: Setting, metric: Metric, baseline: str) -> Verdict | None:
    """Return what `analysis` says of `metric` in `setting`; None where it compares nothing there.

    `ratios` are those to the baseline, of the means that the analysis compares.
    """
    found = _differences(analysis, setting)
    if not found:
        return None
    compared = list(dict.fromkeys(name for each in found for name in (each.first, each.second)))
    best = _best(found, metric, compared)
    apart = {
        name
        for each in found
        if _differ(each) and best in (each.first, each.second)
        for name in (each.first, each.second)
    }
    return Verdict(
        best=best,
        tied=[name for name in compared if name != best and name not in apart],
        alike=not any(map(_differ, found)),
        compared=compared,
        ratios=_ratios(found, baseline),
    )


def _differences(analysis: Analysis, setting: Setting) -> list[Difference]:
    """The comparisons of allocators in `setting`, whose factors of one level go unsaid."""
    levels = setting_levels(setting)
    at = frozenset((name, levels[name]) for name in analysis.factors if name != ALLOCATOR)
    return analysis.between_allocators.get(at, [])


def _best(differences: list[Difference], metric: Metric, names: list[str]) -> str:
    """The allocator whose mean is better than that of each other one."""
    wins: Counter[str] = Counter()
    for each in differences:
        first_is_better = (each.ratio < 1) == (metric.better == "lower")
        wins[each.first if first_is_better else each.second] += 1
    return max(names, key=lambda name: wins[name])


def _differ(difference: Difference) -> bool:
    return difference.p < SIGNIFICANT


def _ratios(differences: list[Difference], baseline: str) -> dict[str, float]:
    ratios = {each.first: each.ratio for each in differences if each.second == baseline}
    for each in differences:
        if each.first == baseline and each.ratio:
            ratios[each.second] = 1 / each.ratio
    return ratios
