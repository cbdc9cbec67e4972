"""A folder read for its reports: each part is loaded, summed up and analysed once, when asked.

Statistics and advice are asked here, and nowhere else in the reports, what they find in a study.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from heapfit.advice import recommend
from heapfit.findings import Advice, Analysis
from heapfit.records import (
    FigureDefinition,
    PeerComparison,
    Series,
    SeriesSummary,
    Study,
    Summary,
    Trial,
)
from heapfit.statistics import (
    Readings,
    analyse_all,
    analysed_metrics,
    compare_with_peers,
    summarise,
)
from heapfit.statistics import read as read_trials
from heapfit.statistics.verdict import FEWEST_BLOCKS
from heapfit.study import load, load_problems, load_series, looks


@dataclass(frozen=True)
class Findings:
    """The analyses of a study's metrics as papers make them, the primary one first, and the advice,
    which is drawn from verdicts."""

    advice: Advice | None = None
    analyse: Callable[[], list[Analysis]] = list

    @cached_property
    def analyses(self) -> list[Analysis]:
        """Made when somebody reads them: SciPy's tests of assumptions take a while to load."""
        return self.analyse()

    def of(self, metric: str) -> Analysis | None:
        """Return the analysis of `metric`, if there is one."""
        return next((each for each in self.analyses if each.metric == metric), None)


def find(readings: Readings) -> Findings:
    """Return what is found in the trials so far; nothing where they are too few."""
    study = readings.study
    advice = recommend(readings, study.weights)
    return Findings(
        advice if advice.standings else None,
        lambda: analyse_all(readings, analysed_metrics(study)),
    )


class Reading:
    """A study and its trials, with what follows from them."""

    def __init__(self, study: Study, trials: list[Trial], looks: Sequence[int] = ()) -> None:
        """Read the `trials` of `study`, of which a verdict was shown after `looks` blocks."""
        self.study = study
        self.trials = trials
        self._looks = looks

    @property
    def blocks(self) -> int:
        """How many blocks there are to draw a verdict from; 0: too few for any."""
        counted = {trial.block for trial in self.trials if not trial.planned.warmup}
        return len(counted) if len(counted) >= FEWEST_BLOCKS else 0

    @cached_property
    def readings(self) -> Readings:
        return read_trials(self.study, self.trials)

    @cached_property
    def summary(self) -> Summary:
        shown = {*self._looks, self.blocks} - {0}
        return summarise(self.readings).model_copy(update={"looks": sorted(shown)})

    @cached_property
    def findings(self) -> Findings:
        return find(self.readings)


class SeriesReading:
    """A series with a `Reading` of each part that has begun, and its summary."""

    def __init__(self, folder: Path) -> None:
        """Read the series in `folder`. Raises `UsageError` where it cannot be read."""
        series, measured = load_series(folder)
        self.parts = {name: Reading(*each) for name, each in measured.items()}
        self.summary = SeriesSummary(
            series=series,
            figures=[_compared(each, series, measured) for each in series.definition.figures],
            workloads=self._summaries(series.workloads),
            probes=self._summaries(series.probes),
            experiments=self._summaries(series.experiments),
            problems=load_problems(folder),
        )

    @property
    def findings(self) -> dict[str, Findings]:
        """What was found in each experiment, by its name."""
        return {name: self.parts[name].findings for name in self.summary.experiments}

    def _summaries(self, names: Sequence[str]) -> dict[str, Summary]:
        return {name: self.parts[name].summary for name in names if name in self.parts}


def _compared(
    figure: FigureDefinition, series: Series, measured: Mapping[str, tuple[Study, list[Trial]]]
) -> PeerComparison:
    """A figure of a series, over those of its parts that have begun."""
    definition = series.definition
    parts = series.workloads
    if figure.experiments:
        parts = [each.name for each in definition.experiments_of(figure)]
    return compare_with_peers(
        figure,
        [measured[name] for name in parts if name in measured],
        [allocator.name for allocator in series.allocators],
        definition.subject_of(figure),
    )


def read(folder: Path) -> Reading:
    """Read the study in `folder`. Raises `UsageError` if it holds none."""
    return Reading(*load(folder), looks(folder))
