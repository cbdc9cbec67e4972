"""A folder read for its reports: each part is loaded, summed up and analysed once, when asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from heapfit.records import SeriesSummary, Study, Summary, Trial
from heapfit.report.analysis import Findings, find
from heapfit.report.series_summary import summarise_parts
from heapfit.statistics import Readings, summarise
from heapfit.statistics import read as read_trials
from heapfit.statistics.verdict import FEWEST_BLOCKS
from heapfit.study import load, load_series, looks


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
        summaries = {name: part.summary for name, part in self.parts.items()}
        self.summary: SeriesSummary = summarise_parts(folder, series, measured, summaries)

    @property
    def findings(self) -> dict[str, Findings]:
        """What was found in each experiment, by its name."""
        return {name: self.parts[name].findings for name in self.summary.experiments}


def read(folder: Path) -> Reading:
    """Read the study in `folder`. Raises `UsageError` if it holds none."""
    return Reading(*load(folder), looks(folder))
