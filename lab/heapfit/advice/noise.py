"""What a noisy machine leaves untold, and how many blocks would tell."""

import math
from dataclasses import replace

import numpy as np

from heapfit.records import Metric, Verdict
from heapfit.statistics import Readings
from heapfit.statistics.observations import Floats, figures_of
from heapfit.statistics.power import replicates_to_tell
from heapfit.statistics.verdict import (
    FEWEST_BLOCKS,
    Pairs,
    by_block,
    of_each,
    over_settings,
    pairs,
    subject_of,
)

# A gain that anybody would deploy an allocator for. An interval that has both this and no change in
# it says nothing.
WORTH = 0.05
# An interval of a ratio that reaches further than this factor to either side tells nobody anything.
_MOST_REACH = 4.0


def is_untold(readings: Readings, metric: Metric, verdict: Verdict | None) -> bool:
    """Whether the first of two may as well be the same as better by what matters, and there were
    too few blocks to show that."""
    if verdict is None or verdict.subject != "ratio" or verdict.shown or verdict.low is None:
        return False
    better = verdict if metric.better == "lower" else verdict.turned()
    if verdict.trivial or better.low is None or better.low >= 1 - WORTH:
        return False
    needed = blocks_to_show(readings, metric.name, verdict.first)
    settings = 1 if verdict.at else len(readings.study.settings())
    return needed is None or needed * settings > verdict.blocks


def reach(verdict: Verdict) -> float:
    """How far the interval of a ratio reaches to either side, in parts of one."""
    return math.sqrt((verdict.high or math.inf) / (verdict.low or 1.0)) - 1


def is_vague(verdict: Verdict) -> bool:
    """Whether nothing is shown, and the interval is too wide to be read."""
    is_known = verdict.subject == "ratio" and verdict.low is not None and not verdict.shown
    return is_known and (not verdict.low or reach(verdict) + 1 > _MOST_REACH)


def blocks_to_show(readings: Readings, metric: str, name: str) -> int | None:
    """How many blocks would show a gain of `WORTH` of `name` over the baseline, in the mean over
    all settings, with the scatter that there is; None: there is no figure, or more than anybody
    would run are needed."""
    figures = figures_of(readings, metric)
    if subject_of(metric, figures) != "ratio":
        return None
    names = [each.name for each in readings.study.allocators]
    found = _with_baseline(by_block(readings, figures), names.index(readings.study.baseline))
    place = (0, found.first.tolist().index(names.index(name)))
    if not (found.df[place] >= FEWEST_BLOCKS - 1 and math.isfinite(found.variance[place])):
        return None  # There is no verdict, either.
    bound = float(found.mean[place]) + math.log1p(WORTH)
    return replicates_to_tell(found, place, bound, of_each(readings.study))


def _with_baseline(table: Floats, baseline: int) -> Pairs:
    """The pairs of the verdict over all settings, as those of one: [1, pair]. A block is one in
    every setting."""
    settings = len(table)
    if settings == 1:
        return pairs(table, to=baseline)
    found = over_settings(pairs(table, to=baseline, steady=False))
    return replace(
        found,
        mean=found.mean[None],
        variance=found.variance[None],
        df=found.df[None],
        blocks=found.blocks[None] // settings,
        comparisons=np.atleast_1d(found.comparisons),
    )
