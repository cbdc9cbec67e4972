"""What a noisy machine leaves untold, and how many blocks would tell."""

from __future__ import annotations

import math

from heapfit.records import Verdict
from heapfit.statistics import Readings
from heapfit.statistics.observations import figures_of
from heapfit.statistics.power import replicates_to_tell
from heapfit.statistics.verdict import FEWEST_BLOCKS, by_block, pairs, subject_of

# A gain that anybody would deploy an allocator for. An interval that has both this and no change in
# it says nothing.
WORTH = 0.05


def is_untold(readings: Readings, metric: str, verdict: Verdict | None) -> bool:
    """Whether a figure (the lower the better) may as well be the same as less by what matters, and
    there were too few blocks to show that."""
    if verdict is None or verdict.subject != "ratio" or verdict.shown or verdict.low is None:
        return False
    if verdict.trivial or verdict.low >= 1 - WORTH:
        return False
    needed = blocks_to_show(readings, metric, verdict.first)
    return needed is None or needed > verdict.blocks


def reach(verdict: Verdict) -> float:
    """How far the interval of a ratio reaches to either side, in parts of one."""
    return math.sqrt((verdict.high or math.inf) / (verdict.low or 1.0)) - 1


def blocks_to_show(readings: Readings, metric: str, name: str) -> int | None:
    """How many blocks would show a gain of `WORTH` of `name` over the baseline, with the scatter
    that there is; None: there is no figure, or more than anybody would run are needed."""
    figures = figures_of(readings, metric)
    if subject_of(metric, figures) != "ratio":
        return None
    names = [each.name for each in readings.study.allocators]
    found = pairs(by_block(readings, figures), to=names.index(readings.study.baseline))
    place = (0, found.first.tolist().index(names.index(name)))
    if found.blocks[place] < FEWEST_BLOCKS:
        return None
    return replicates_to_tell(found, place, float(found.mean[place]) + math.log1p(WORTH))
