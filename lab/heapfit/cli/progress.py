"""How far a study is: what runs now, what remains, and the medians so far; and how far another long
work is.

In a terminal a bar and a table, elsewhere a line now and then. The display changes only when a
trial begins or ends: one that redraws itself would take processor time from the program that is
being measured.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from heapfit.cli.failures import INTERRUPTED
from heapfit.cli.medians import RunningMedians
from heapfit.cli.output import warn
from heapfit.records import PlannedTrial, Precision, Study, Trial
from heapfit.settings import setting_label
from heapfit.study import Progress, SeriesProgress
from heapfit.text import counted, duration, percent

# Into a log file or a pipe, a line no more often than this.
_LINE_INTERVAL_S = 10.0


class StudyProgress(Progress):
    """Shows the course of a study on `console`; a context manager around its execution."""

    def __init__(self, console: Console) -> None:
        """Show nothing until the study begins."""
        self.console = console
        self._bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.description}", markup=False),
            console=console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("", start=False, left="")
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._medians: RunningMedians | None = None
        self._next_line = 0.0
        self._precision = ""  # that the last look found
        self._limit = ""  # of the first trial, of which nobody knows yet how long it takes
        self.done = 0
        self.planned = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _what(self, planned: PlannedTrial) -> str:
        """Name the trial that runs now."""
        what = f"{planned.allocator}, {setting_label(planned.setting)}"
        limit = self._limit if not self.done else ""
        return f"{what}{' (warm-up)' if planned.warmup else ''}{limit}"

    def begin(self, study: Study, done: list[Trial]) -> None:
        """Show the study's length and what an earlier run has already done."""
        self.done, self.planned = len(done), len(study.plan)
        if self.done == self.planned and study.rule:
            self.console.print(f"{self.planned} trials are already done")
        elif self.done == self.planned:
            self.console.print(
                f"all {self.planned} trials are already done; a higher --replicates adds "
                "more, --out begins a new study"
            )
        elif done:
            self.console.print(f"continuing: {self.done} of {self.planned} trials are already done")
        else:
            self._limit = f"; at most {study.timeout_s:g} s for a trial (--timeout)"
        self._begin(study, done)

    def noticed(self, sentence: str) -> None:
        """Say what has changed since an earlier run."""
        self.console.print(sentence, style="yellow", soft_wrap=True)

    def disturbed(self, sentence: str) -> None:
        """Warn of it, once for all studies of the command."""
        warn(sentence)

    def _begin(self, study: Study, done: list[Trial]) -> None:
        self._bar.update(self._task, total=self.planned, completed=self.done)
        if _is_drawn_on(self.console):
            self._medians = RunningMedians(study, done)
            self._live.start()

    def extended(self, study: Study, precision: Precision | None) -> None:
        """Count what is planned now, and say how precise the study is."""
        self.planned = len(study.plan)
        self._bar.update(self._task, total=self.planned)
        if precision is None or study.rule is None or study.rule.precision is None:
            return
        reached = "not known yet"
        if isfinite(precision.reached):
            reached = f"known to {percent(precision.reached)}"
        self._precision = reached
        self.console.print(
            f"after {counted(precision.blocks, 'block')}: {precision.metric} of {precision.first} "
            f"and {precision.second} is {reached}, {percent(study.rule.precision)} is "
            f"wanted; going on to {study.replicates} blocks",
            soft_wrap=True,
        )

    def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
        """Show what runs now."""
        what = self._what(planned)
        self._show(planned, what, remaining_s)
        self._say(what, remaining_s)

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        """Count a trial."""
        self.done += 1
        if self._medians:
            self._medians.add(trial)
        self._show(trial.planned, f"{trial.planned.allocator}: {trial.status}", remaining_s)

    def _show(self, planned: PlannedTrial, what: str, remaining_s: float | None) -> None:
        if self._medians is None:  # nothing is drawn
            return
        remain = f"{self.planned - self.done} remain"
        left = ", ".join(filter(None, [remain, _left(remaining_s), self._precision]))
        self._bar.update(self._task, completed=self.done, description=what, left=left)
        self._live.update(Group(self._bar, self._medians.table(planned)), refresh=True)

    def _say(self, what: str, remaining_s: float | None) -> None:
        now = time.monotonic()
        if self._medians is not None or now < self._next_line:
            return
        self._next_line = now + _LINE_INTERVAL_S
        left = f", {_left(remaining_s)}" if remaining_s is not None else ""
        self.console.print(
            f"{self.done} of {self.planned} trials{left}; now {what}", soft_wrap=True
        )


class ManyProgress(StudyProgress, SeriesProgress):
    """Shows the course of a study of many parts: one bar over all trials, the medians of a part."""

    def __init__(self, console: Console, planned: int, done: Mapping[str, int]) -> None:
        """Show nothing until the first part begins; `planned` trials are those of all, of which
        earlier runs have `done` some, by part."""
        super().__init__(console)
        self.planned = planned
        self.done = sum(done.values())
        self._before = done
        self._part = ""

    def begin(self, study: Study, done: list[Trial]) -> None:
        """Name the part that begins and count what an earlier run has done of it."""
        self._part = study.name
        self.done += len(done) - self._before[study.name]  # They may have been put aside since.
        self._begin(study, done)

    def abandoned(self, study: Study, undone: int, problem: str) -> None:
        """Say what is wrong with a part and take it out of the count."""
        self.planned -= undone
        self._bar.update(self._task, total=self.planned, completed=self.done)
        self.console.print(f"{study.name}: {problem}", style="bold", soft_wrap=True)

    def _what(self, planned: PlannedTrial) -> str:
        return f"{self._part}: {super()._what(planned)}"


@contextmanager
def kept_on_interrupt(progress: StudyProgress, folder: Path) -> Iterator[None]:
    """Show `progress` meanwhile; on Ctrl-C say what `folder` keeps, and exit as a shell expects."""
    try:
        with progress:
            yield
    except KeyboardInterrupt:
        # Nothing is planned while what is to be measured is still read.
        kept = f"{progress.done} of {progress.planned} trials are"
        progress.console.print(
            f"interrupted: {kept if progress.planned else 'what was measured is'} kept in "
            f"{folder}; the same command continues from there",
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def told_on_interrupt() -> Iterator[None]:
    """On Ctrl-C before a trial runs, of a continued fit, too, exit as a shell expects."""
    try:
        yield
    except KeyboardInterrupt:
        warn("interrupted; the same command continues where it stopped")
        raise typer.Exit(INTERRUPTED) from None


class WorkProgress:
    """Shows how far a work of known length is, on `console`; a context manager around it.

    Elsewhere than in a terminal it shows nothing: what is not a result, and no error, only disturbs
    who reads them.
    """

    def __init__(self, console: Console) -> None:
        """Show nothing before the first call."""
        self._console = console
        self._bar = Bar(
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}", markup=False),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._bar.stop()

    def __call__(self, done: float, total: float, what: str) -> None:
        """Show that `done` of `total` is done, and what goes on now."""
        if _is_drawn_on(self._console):
            if self._task is None:
                self._task = self._bar.add_task("")
                self._bar.start()
            self._bar.update(self._task, completed=done, total=total, description=what)


def _is_drawn_on(console: Console) -> bool:
    # Of a bar Rich shows nothing at all on a dumb terminal, such as a shell in Emacs.
    return console.is_terminal and not console.is_dumb_terminal


def _left(remaining_s: float | None) -> str:
    return "" if remaining_s is None else f"{duration(remaining_s)} left"
