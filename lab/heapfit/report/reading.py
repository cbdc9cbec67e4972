"""A folder read for its reports: each part is loaded, summed up and analysed once, when asked.

Statistics and advice are asked here, and nowhere else in the reports, what they find in a study.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from heapfit.advice import failing_words, missing_words, recommend
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
from heapfit.report.results import Results
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


class Reading:
    """A study and its trials, with what follows from them.

    `study` is what was planned. That of the summary and of the results has the metrics, too, that
    are derived from others.
    """

    def __init__(self, study: Study, trials: list[Trial], looks: Sequence[int] = ()) -> None:
        """Read the `trials` of `study`. After `looks` blocks, a verdict was shown."""
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
    def results(self) -> Results:
        return Results(self.summary)

    @cached_property
    def advice(self) -> Advice | None:
        """The recommendation, which is drawn from verdicts; None: there are too few trials."""
        advice = recommend(self.readings, self.summary.study.weights)
        return advice if advice.standings else None

    @cached_property
    def why_no_advice(self) -> str:
        """Why no trials can bring a recommendation; empty: they may, or have."""
        if self.advice:
            return ""
        return " ".join([*missing_words(self.readings), *failing_words(self.readings).values()])

    @cached_property
    def analyses(self) -> list[Analysis]:
        """The analyses of variance that a paper would make, of the primary metric first.

        SciPy's tests of assumptions take a while to load, so they are made when asked for.
        """
        return analyse_all(self.readings, analysed_metrics(self.summary.study))

    def analysis(self, metric: str) -> Analysis | None:
        return next((each for each in self.analyses if each.metric == metric), None)


class SeriesReading:
    """A series with a `Reading` of each part that has begun, and its summary."""

    def __init__(self, folder: Path) -> None:
        """Read the series in `folder`. Raises `UsageError` where it cannot be read."""
        series, measured = load_series(folder)
        self.parts = {n: Reading(*each, looks(folder / n)) for n, each in measured.items()}
        self.summary = SeriesSummary(
            series=series,
            figures=[_compared(each, series, measured) for each in series.definition.figures],
            workloads=self._summaries(series.workloads),
            probes=self._summaries(series.probes),
            experiments=self._summaries(series.experiments),
            problems=load_problems(folder),
        )

    @property
    def advice(self) -> dict[str, Advice | None]:
        """The recommendation of each experiment, by its name."""
        return {name: self.parts[name].advice for name in self.summary.experiments}

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


def read(folder: Path, weights: Mapping[str, float] | None = None) -> Reading:
    """Read the study in `folder`, with its own weights or these. Raises `UsageError` if it holds
    none."""
    study, trials = load(folder)
    if weights is not None:
        study = study.model_copy(update={"weights": dict(weights)})
    return Reading(study, trials, looks(folder))
