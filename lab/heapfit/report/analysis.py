"""What the statistics and the advice find in a study: asked here and nowhere else in the reports.

Which metrics are analysed is decided here too: those that the study names, else the primary one;
memory and fragmentation always, since they are the other sides of every trade that an allocator
makes; and those of a paper's tables, which stand beside ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heapfit.advice import recommend
from heapfit.findings import Advice, Analysis
from heapfit.records import Study
from heapfit.statistics import Readings, analyse_all

_OTHER_SIDES = ("replay_peak_bytes", "peak_rss_bytes", "fragmentation_events", "heap_fragmentation")


@dataclass(frozen=True)
class Findings:
    """The analyses of a study's metrics, the primary one first, and the advice drawn from them."""

    analyses: list[Analysis] = field(default_factory=list)
    advice: Advice | None = None

    def of(self, metric: str) -> Analysis | None:
        """Return the analysis of `metric`, if there is one."""
        return next((each for each in self.analyses if each.metric == metric), None)


def find(readings: Readings) -> Findings:
    """Return what is found in the trials so far; nothing where they are too few."""
    study = readings.study
    analyses = analyse_all(readings, analysed_metrics(study))
    advice = recommend(readings, analyses, study.weights)
    return Findings(analyses, advice if advice.standings else None)


def analysed_metrics(study: Study) -> list[str]:
    """Return the names of the metrics to analyse, the primary one first."""
    published = [table.metric for table in study.published]
    wanted = dict.fromkeys([study.primary_metric, *study.shown, *published, *_OTHER_SIDES])
    measured = {metric.name for metric in study.metrics}
    return [name for name in wanted if name in measured]
