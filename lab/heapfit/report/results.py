"""A summary, indexed the way that every report reads it: by setting, metric and allocator.

Knows the order in which metrics are shown, which allocator is best where, and what the verdicts say
of the others. The writers only format what this module says, so that all of them say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from heapfit.meaning import MEMORY, PEAKS, PROCESSOR, PROCESSOR_TIME, WALL
from heapfit.records import Estimate, Metric, Setting, Summary, Verdict
from heapfit.report.labels import setting_levels, setting_of
from heapfit.text import Scale, ratio, scale_for

# The smallest sample whose extremes enclose the median with 95 % confidence: 1 - 2 * 0.5**n
# reaches 0.95 at n = 6. With fewer trials an interval is only their range.
FEWEST_TRIALS = 6

# Before a figure that is not shown to differ from what it is compared with.
UNDECIDED = "~"

# With more settings than this a reader is better served by tables and plots that line them up.
MOST_OPEN_SETTINGS = 4

# A ratio of 0.9996 is the closest to 1 that is told apart from it in a table.
_MOST_MORE_DECIMALS = 2
# A change below so many per cent, or an interval of that width, is told in tenths of them, and with
# so many decimals more where these do not suffice.
_NARROW = 2.0
_MOST_DECIMALS_OF_CHANGE = 3

# After the primary metric and memory, the ones that most readers look for; then the workload's own.
_USUAL_ORDER = [
    WALL,
    *PROCESSOR_TIME,
    *MEMORY,
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
]


# The levels of a setting, as a verdict has them.
Place = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Standing:
    """How the allocators stand to each other in one metric and setting, by its verdicts.

    `best` has the best mean beside the baseline. `tied` are not shown to differ from it, `behind`
    are shown to be worse, and `ahead` to be better: in the blocks that they have in common, which
    are not all where trials have failed. `alike`: no two of all are shown to differ. `beaten`: of
    whom some other is shown to be better.
    """

    best: str
    tied: list[str]
    behind: list[str]
    ahead: list[str]
    beaten: set[str]
    alike: bool
    trivial: bool  # what the others are shown to be behind by is too little to matter


@dataclass(frozen=True)
class ShownCell:
    """A cell of a table of metrics, in texts for any renderer to lay out."""

    estimate: Estimate
    median: str
    low: str
    high: str
    relative: str  # what it is to the baseline; empty: nothing is known
    undecided: bool
    is_best: bool


class Results:
    """A summary's estimates, indexed. Owned by the report that made it; never changes."""

    def __init__(self, summary: Summary) -> None:
        self.summary = summary
        self.study = summary.study
        self.baseline = summary.study.baseline
        self.allocators = [allocator.name for allocator in summary.study.allocators]
        self.settings = sorted(summary.study.settings(), key=lambda setting: setting[0])
        self._cells = {(setting_of(e), e.metric, e.allocator): e for e in summary.estimates}
        self._verdicts = _indexed(summary.verdicts)
        self._compared: dict[tuple[str, Place], list[str]] = {}
        self.metrics = self._ordered_metrics()
        # A report asks for these again in every cell of every table.
        self._scales: dict[tuple[str, int], Scale] = {}
        self._bests: dict[tuple[Setting, str], set[str]] = {}

    def _ordered_metrics(self) -> list[Metric]:
        """The metrics that have a figure anywhere, those first that a narrow table must have."""
        with_figures = {metric for _, metric, _ in self._cells}
        present = [m for m in self.study.metrics if m.name in with_figures]
        primary = self.study.primary_metric

        def place(metric: Metric) -> tuple[bool, bool, bool, int]:
            usual = metric.name in _USUAL_ORDER
            rank = _USUAL_ORDER.index(metric.name) if usual else len(_USUAL_ORDER)
            decides = metric.name == PROCESSOR
            return (metric.name != primary, not decides, metric.name not in PEAKS, rank)

        return sorted(present, key=place)

    def estimate(self, setting: Setting, metric: Metric, allocator: str) -> Estimate | None:
        return self._cells.get((setting, metric.name, allocator))

    def estimates(self, setting: Setting, metric: Metric) -> list[Estimate]:
        """The estimates of one metric in one setting, in the study's order."""
        found = (self.estimate(setting, metric, name) for name in self.allocators)
        return [estimate for estimate in found if estimate is not None]

    def ranked(self, setting: Setting, metric: Metric) -> list[str]:
        """All allocators, the best mean first, those without a figure last.

        By the verdicts with the baseline; by medians where there is none of the baseline.
        """
        return sorted(self.allocators, key=lambda name: self._place(setting, metric, name))

    def _place(self, setting: Setting, metric: Metric, name: str) -> tuple[int, float]:
        estimate = self.estimate(setting, metric, name)
        if estimate is None:
            return 3, 0.0
        told = self._told(setting, metric)
        reference = self.baseline if not told or self.baseline in told else told[0]
        verdict = self.verdict(setting, metric, name, reference)
        if name == reference or verdict is not None:
            behind = 0.0 if verdict is None else _cost(verdict.beyond, metric)
            return (0 if not told or name in told else 1), behind
        # Never in a block with the reference: a median is all that there is to go by.
        return 2, _cost(estimate.median, metric)

    def _told(self, setting: Setting, metric: Metric) -> list[str]:
        """The allocators of which there are blocks enough to say something, as the study lists
        them."""
        key = (metric.name, tuple(setting_levels(setting).items()))
        if key not in self._compared:
            found = self._verdicts.get(key, {})
            names = {first for (first, _), each in found.items() if each.told}
            self._compared[key] = [name for name in self.allocators if name in names]
        return self._compared[key]

    def best(self, setting: Setting, metric: Metric) -> set[str]:
        """The allocators with the best mean; none where there is nothing to choose between."""
        key = (setting, metric.name)
        if key not in self._bests:
            names = [each.allocator for each in self.estimates(setting, metric)]
            places = {name: self._place(setting, metric, name) for name in names}
            best = min(places.values(), default=None)
            is_choice = len(set(places.values())) > 1
            self._bests[key] = {name for name in names if is_choice and places[name] == best}
        return self._bests[key]

    def scale(self, metric: Metric, digits: int) -> Scale:
        """The scale of one metric, the same in all settings."""
        key = (metric.name, digits)
        if key not in self._scales:
            own = [e for e in self.summary.estimates if e.metric == metric.name]
            # Where every median is zero, what there is beside them would be rounded away.
            values = (
                [e.median for e in own] if any(e.median for e in own) else [e.maximum for e in own]
            )
            self._scales[key] = scale_for(metric.unit, values, digits)
        return self._scales[key]

    def constant(self, setting: Setting, metric: Metric) -> float | None:
        """The value that every single trial gave, if they all gave the same."""
        values = {v for e in self.estimates(setting, metric) for v in (e.minimum, e.maximum)}
        return values.pop() if len(values) == 1 else None

    def verdict(
        self, setting: Setting | None, metric: Metric, first: str, second: str
    ) -> Verdict | None:
        """What is known of `first` to `second`; without a setting, over all of them."""
        place: Place = () if setting is None else tuple(setting_levels(setting).items())
        return self._verdicts.get((metric.name, place), {}).get((first, second))

    def against_baseline(self, setting: Setting, metric: Metric, name: str) -> Verdict | None:
        """What is known of an allocator to the baseline; None of the baseline itself."""
        return self.verdict(setting, metric, name, self.baseline)

    def standing(self, setting: Setting, metric: Metric) -> Standing | None:
        """How the allocators stand; None where too few blocks tell, or all pairs are not known."""
        told = self._told(setting, metric)
        compared = [name for name in self.ranked(setting, metric) if name in told]
        if not compared:
            return None
        known = {
            pair: each
            for pair in permutations(compared, 2)
            if (each := self.verdict(setting, metric, *pair))
        }
        return _stand(compared, known, metric)

    def between_settings(self, metric: Metric) -> dict[tuple[str, str], Verdict]:
        """What is known of the settings of a study of one allocator, each pair either way round."""
        found = self._verdicts.get((metric.name, ()), {}) if self.study.is_of_one else {}
        return {pair: each for pair, each in found.items() if each.told}

    def settings_standing(self, metric: Metric) -> Standing | None:
        """How the settings of a study of one allocator stand; None where nothing is known."""
        known = self.between_settings(metric)
        names = list(dict.fromkeys(first for first, _ in known))
        if not names:
            return None
        behind = {n: known[n, names[0]].beyond if (n, names[0]) in known else 0.0 for n in names}
        return _stand(sorted(names, key=lambda n: _cost(behind[n], metric)), known, metric)

    @cached_property
    def has_mere_ranges(self) -> bool:
        """Whether some interval is only a range, of too few trials for 95 % confidence."""
        return any(1 < e.n < FEWEST_TRIALS for e in self.summary.estimates)

    @cached_property
    def has_intervals(self) -> bool:
        """Whether there were blocks enough for the interval of some difference."""
        return any(each.told for each in self.summary.verdicts)

    def undecided(self, setting: Setting, metric: Metric, name: str) -> bool:
        """Whether no difference from the baseline is shown; of the baseline itself it is said
        nowhere."""
        verdict = self.against_baseline(setting, metric, name)
        return verdict is not None and not verdict.shown

    def shown(
        self, setting: Setting, metric: Metric, name: str, digits: int, sign: str, decimals: int
    ) -> ShownCell | None:
        """A figure as a table shows it, with `digits` of it and `decimals` of a ratio."""
        estimate = self.estimate(setting, metric, name)
        if estimate is None:
            return None
        scale = self.scale(metric, digits)
        return ShownCell(
            estimate=estimate,
            median=scale.number(estimate.median),
            low=scale.number(estimate.low),
            high=scale.number(estimate.high),
            relative=self.relative(setting, metric, name, scale, sign, decimals),
            undecided=self.undecided(setting, metric, name),
            is_best=name in self.best(setting, metric),
        )

    def relative(
        self, setting: Setting, metric: Metric, name: str, scale: Scale, sign: str, decimals: int
    ) -> str:
        """What an allocator is to the baseline: a ratio, or a difference with its sign."""
        verdict = self.against_baseline(setting, metric, name)
        if verdict is not None:
            if verdict.subject == "ratio":
                return ratio(verdict.estimate, sign, decimals_of(verdict, decimals))
            return scale.difference(verdict.estimate)
        estimate = self.estimate(setting, metric, name)
        has_ratio = name == self.baseline and estimate and metric.name not in self._of_differences
        return ratio(1.0, sign, decimals) if has_ratio else ""

    @property
    def has_differences(self) -> bool:
        """Whether some metrics are compared by differences, since they may be zero."""
        return bool(self._of_differences)

    @cached_property
    def _of_differences(self) -> set[str]:
        return {each.metric for each in self.summary.verdicts if each.subject == "difference"}

    def trials_per_cell(self, setting: Setting, metric: Metric) -> tuple[int, int]:
        """The fewest and the most trials behind an estimate of this metric."""
        counts = [e.n for e in self.estimates(setting, metric)]
        return min(counts, default=0), max(counts, default=0)


def _stand(
    ranked: Sequence[str], known: Mapping[tuple[str, str], Verdict], metric: Metric
) -> Standing:
    """How those stand that are `ranked`, the best mean first, by what is `known` of them."""
    best, *others = ranked
    # Each pair is there either way round.
    better = {pair for pair, each in known.items() if each.shown and _cost(each.beyond, metric) < 0}
    behind = {name: known[best, name] for name in others if (best, name) in better}
    ahead = [name for name in others if (name, best) in better]
    return Standing(
        best=best,
        tied=[name for name in others if name not in behind and name not in ahead],
        behind=list(behind),
        ahead=ahead,
        beaten={worse for _, worse in better},
        alike=not any(each.shown for each in known.values()),
        trivial=bool(behind) and all(each.trivial for each in behind.values()),
    )


def _indexed(
    verdicts: list[Verdict],
) -> Mapping[tuple[str, Place], Mapping[tuple[str, str], Verdict]]:
    """By metric and levels, then by pair, each pair either way round."""
    found: dict[tuple[str, Place], dict[tuple[str, str], Verdict]] = {}
    for each in verdicts:
        own = found.setdefault((each.metric, tuple(each.at.items())), {})
        own[each.first, each.second] = each
        own[each.second, each.first] = each.turned()
    return found


def decimals_of(verdict: Verdict, decimals: int) -> int:
    """As many decimals more as a ratio needs that is shown to differ from 1 and would read so."""
    more = range(decimals, decimals + _MOST_MORE_DECIMALS)
    reads_equal = (n for n in more if verdict.shown and round(verdict.estimate, n) == 1)
    return max(reads_equal, default=decimals - 1) + 1


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
            for n in range(fewest, fewest + _MOST_DECIMALS_OF_CHANGE)
            if not _reads_wrong([estimate, *bounds], n, verdict.shown)
        ),
        fewest + _MOST_DECIMALS_OF_CHANGE,
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


def _cost(value: float, metric: Metric) -> float:
    return value if metric.better == "lower" else -value
