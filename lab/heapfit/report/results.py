"""A summary, indexed the way that every report reads it: by setting, metric and allocator.

Knows the order in which metrics are shown, which allocator is best where, and what the verdicts say
of the others. The writers only format what this module says, so that all of them say the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from heapfit.meaning import MEMORY, PEAKS, PROCESSOR, PROCESSOR_TIME, WALL
from heapfit.records import Estimate, Metric, Setting, Summary, Verdict
from heapfit.settings import setting_levels, setting_of
from heapfit.text import Scale, ratio, scale_for

# The smallest sample whose extremes enclose the median with 95 % confidence: 1 - 2 * 0.5**n
# reaches 0.95 at n = 6. With fewer trials an interval is only their range.
FEWEST_TRIALS = 6

# Marks a figure that is not shown to differ from what it is compared with.
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


class Outcome:
    """What the verdicts say of the allocators in one metric and setting, or of the settings of a
    study of one allocator.

    `best` has the best mean beside the baseline. `tied` are not shown to differ from it, `behind`
    are shown to be worse, and `ahead` to be better: in the blocks that they have in common, which
    are not all where trials have failed. Of each in `beaten`, some other is shown to be better.
    """

    def __init__(
        self, ranked: Sequence[str], verdicts: Mapping[tuple[str, str], Verdict], metric: Metric
    ) -> None:
        """`ranked`: the best mean first; `verdicts`: on each pair, either way round."""
        self.compared = ranked
        self.verdicts = verdicts
        self.best, *others = ranked
        better = {pair for pair, each in verdicts.items() if each.shown and _gains(each, metric)}
        self.behind = [name for name in others if (self.best, name) in better]
        self.ahead = [name for name in others if (name, self.best) in better]
        self.tied = [name for name in others if name not in (*self.behind, *self.ahead)]
        self.beaten = {worse for _, worse in better}
        # No two of all are shown to differ.
        self.alike = not any(each.shown for each in verdicts.values())
        # What the others are shown to be behind by is too little to matter.
        leads = [verdicts[self.best, name] for name in self.behind]
        self.trivial = bool(leads) and all(each.trivial for each in leads)


@dataclass(frozen=True)
class VerdictText:
    """A verdict in figures; `low` and `high` are empty where no interval is known."""

    estimate: str
    low: str
    high: str
    unit: str  # of a difference

    @property
    def with_unit(self) -> str:
        return f"{self.estimate} {self.unit}".rstrip()


@dataclass(frozen=True)
class ShownCell:
    """A cell of a table of metrics, in texts for any renderer to lay out."""

    estimate: Estimate
    median: str
    low: str
    high: str
    verdict: Verdict | None  # what it is to the baseline; None: of the baseline, or unknown
    relative: str  # the same as a text; empty: nothing is known
    relative_low: str
    relative_high: str
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
        self._compared: dict[tuple[Setting, str], list[str]] = {}
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
        return sorted(self.allocators, key=lambda name: self._rank(setting, metric, name))

    def _rank(self, setting: Setting, metric: Metric, name: str) -> tuple[int, float]:
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
        key = (setting, metric.name)
        if key not in self._compared:
            found = self._between(setting, metric).items()
            names = {first for (first, _), each in found if each.told}
            self._compared[key] = [name for name in self.allocators if name in names]
        return self._compared[key]

    def best(self, setting: Setting, metric: Metric) -> set[str]:
        """The allocators with the best mean; none where there is nothing to choose between."""
        key = (setting, metric.name)
        if key not in self._bests:
            names = [each.allocator for each in self.estimates(setting, metric)]
            places = {name: self._rank(setting, metric, name) for name in names}
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
        return self._between(setting, metric).get((first, second))

    def _between(
        self, setting: Setting | None, metric: Metric
    ) -> Mapping[tuple[str, str], Verdict]:
        place: Place = () if setting is None else tuple(setting_levels(setting).items())
        return self._verdicts.get((metric.name, place), {})

    def against_baseline(self, setting: Setting, metric: Metric, name: str) -> Verdict | None:
        """What is known of an allocator to the baseline; None of the baseline itself."""
        return self.verdict(setting, metric, name, self.baseline)

    def outcome(self, setting: Setting, metric: Metric) -> Outcome | None:
        """What the verdicts say of the allocators; None where too few blocks tell anything."""
        told = self._told(setting, metric)
        ranked = [name for name in self.ranked(setting, metric) if name in told]
        found = self._between(setting, metric).items()
        known = {pair: each for pair, each in found if set(pair) <= set(told)}
        return Outcome(ranked, known, metric) if ranked else None

    def outcome_of_settings(self, metric: Metric) -> Outcome | None:
        """The same of the settings of a study of one allocator; None where nothing is known."""
        if not self.study.is_of_one:
            return None
        known = {pair: each for pair, each in self._between(None, metric).items() if each.told}
        names = list(dict.fromkeys(first for first, _ in known))

        def behind(name: str) -> float:
            verdict = known.get((name, names[0]))
            return 0.0 if verdict is None else _cost(verdict.beyond, metric)

        return Outcome(sorted(names, key=behind), known, metric) if names else None

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
        verdict = self.against_baseline(setting, metric, name)
        relative = None if verdict is None else verdict_text(verdict, scale, sign, decimals)
        return ShownCell(
            estimate=estimate,
            median=scale.number(estimate.median),
            low=scale.number(estimate.low),
            high=scale.number(estimate.high),
            verdict=verdict,
            relative=self.relative(setting, metric, name, scale, sign, decimals),
            relative_low=relative.low if relative else "",
            relative_high=relative.high if relative else "",
            undecided=self.undecided(setting, metric, name),
            is_best=name in self.best(setting, metric),
        )

    def relative(
        self, setting: Setting, metric: Metric, name: str, scale: Scale, sign: str, decimals: int
    ) -> str:
        """What an allocator is to the baseline: a ratio, or a difference with its sign."""
        verdict = self.against_baseline(setting, metric, name)
        if verdict is not None:
            return verdict_text(verdict, scale, sign, decimals).estimate
        estimate = self.estimate(setting, metric, name)
        is_ratio = metric.name not in self.compared_by_difference
        has_ratio = name == self.baseline and estimate and is_ratio
        return ratio(1.0, sign, decimals) if has_ratio else ""

    @cached_property
    def compared_by_difference(self) -> set[str]:
        """The metrics that are compared by differences, since they may be zero."""
        return {each.metric for each in self.summary.verdicts if each.subject == "difference"}

    def trials_per_cell(self, setting: Setting, metric: Metric) -> tuple[int, int]:
        """The fewest and the most trials behind an estimate of this metric."""
        counts = [e.n for e in self.estimates(setting, metric)]
        return min(counts, default=0), max(counts, default=0)


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


def verdict_text(verdict: Verdict, scale: Scale, sign: str, decimals: int) -> VerdictText:
    """Return a ratio with so many `decimals` and its `sign`, or a difference on the `scale`."""
    is_ratio = verdict.subject == "ratio"
    decimals = _decimals_of(verdict, decimals)

    def text(value: float | None, sign: str = "") -> str:
        if value is None:
            return ""
        return ratio(value, sign, decimals) if is_ratio else scale.difference(value)

    unit = "" if is_ratio else scale.unit
    return VerdictText(text(verdict.estimate, sign), text(verdict.low), text(verdict.high), unit)


def _decimals_of(verdict: Verdict, decimals: int) -> int:
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


def _gains(verdict: Verdict, metric: Metric) -> bool:
    """Whether the first of the two is the better one."""
    return _cost(verdict.beyond, metric) < 0
