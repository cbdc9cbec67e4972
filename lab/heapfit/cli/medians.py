"""The figures so far, while a study runs: each allocator's median of the primary metric.

In the terminal alone. Ratios are those of the medians to the baseline's; the report pairs them by
block, and is what counts.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import starmap
from statistics import median

from rich.table import Table
from rich.text import Text

from heapfit.records import PlannedTrial, Setting, Study, Trial, TrialStatus
from heapfit.settings import level_label, varied_levels
from heapfit.text import ratio, scale_for

# With more settings than fit side by side, the one that runs now is shown alone.
_MOST_SETTINGS = 4


class RunningMedians:
    """Of one study, the figures of each cell of its design."""

    def __init__(self, study: Study, done: Iterable[Trial]) -> None:
        """Begin with the trials that an earlier run has done."""
        self._study = study
        self._metric = next(each for each in study.metrics if each.name == study.primary_metric)
        self._figures: dict[tuple[str, Setting], list[float]] = defaultdict(list)
        for trial in done:
            self.add(trial)

    def add(self, trial: Trial) -> None:
        """Take in a finished trial, if it counts."""
        figure = trial.metrics.get(self._metric.name)
        if trial.status is TrialStatus.OK and not trial.planned.warmup and figure is not None:
            self._figures[trial.planned.allocator, trial.planned.setting].append(figure)

    def table(self, running: PlannedTrial) -> Table:
        """Return the table to show while `running` runs."""
        settings = self._study.settings()
        if len(settings) > _MOST_SETTINGS:
            settings = [running.setting]
        made = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
        made.add_column(f"{self._metric.label}, medians so far")
        for setting in settings:
            made.add_column(self._heading(setting), justify="right")
        for name in (allocator.name for allocator in self._study.allocators):
            made.add_row(name, *(self._cell(name, setting) for setting in settings))
        return made

    def _heading(self, setting: Setting) -> str:
        """Name a setting by what varies in the study, a line for each factor."""
        return "\n".join(starmap(level_label, varied_levels(self._study, setting).items()))

    def _cell(self, allocator: str, setting: Setting) -> Text:
        own = self._median(allocator, setting)
        if own is None:
            return Text("none yet", style="dim")
        others = (self._median(each.name, setting) for each in self._study.allocators)
        scale = scale_for(self._metric.unit, [each for each in others if each is not None])
        baseline = self._median(self._study.baseline, setting)
        is_baseline = allocator == self._study.baseline
        beside = f"  {ratio(own / baseline)}" if baseline and not is_baseline else ""
        count = f"  n = {len(self._figures[allocator, setting])}"
        return Text.assemble(scale.text(own), beside, (count, "dim"))

    def _median(self, allocator: str, setting: Setting) -> float | None:
        figures = self._figures.get((allocator, setting))
        return median(figures) if figures else None
