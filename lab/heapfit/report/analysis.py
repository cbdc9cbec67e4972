"""What statistics and advice find in a study: asked here and nowhere else in the reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from heapfit.advice import recommend
from heapfit.findings import Advice, Analysis
from heapfit.statistics import Readings, analyse_all, analysed_metrics


@dataclass(frozen=True)
class Findings:
    """The analyses of a study's metrics as papers make them, the primary one first, and the advice,
    which is drawn from verdicts."""

    analyses: list[Analysis] = field(default_factory=list)
    advice: Advice | None = None

    def of(self, metric: str) -> Analysis | None:
        """Return the analysis of `metric`, if there is one."""
        return next((each for each in self.analyses if each.metric == metric), None)


def find(readings: Readings) -> Findings:
    """Return what is found in the trials so far; nothing where they are too few."""
    study = readings.study
    advice = recommend(readings, study.weights)
    analyses = analyse_all(readings, analysed_metrics(study))
    return Findings(analyses, advice if advice.standings else None)
