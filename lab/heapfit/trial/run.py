"""Run one planned trial: its program under its allocator, judged, with all figures that are wanted.

The first run of the program is the one that is timed. Once it has proved good, a command metric's
command is run on what it left, and each source that has `own_run` gets a run of the program for
itself, under the same allocator on the same cores, that must end the same way.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.records import CommandMetric, PlannedTrial, Study, Trial, TrialStatus
from heapfit.trial import preload, verdict
from heapfit.trial.attempt import Attempt
from heapfit.trial.launcher import CouldNotStart, Running
from heapfit.trial.metrics import sources_of
from heapfit.trial.source import Source

# A program that fails with less than this left on its disk has probably failed for that reason.
LITTLE_SPACE_BYTES = 1 << 20

# In a command metric's command, for the file with the program's standard output.
_STDOUT = "{stdout}"
# It reads what a program wrote; one that takes longer than this hangs.
COMMAND_TIMEOUT_S = 60.0


def run_trial(
    study: Study,
    planned: PlannedTrial,
    workspace: Path,
    reference: Trial | None,
    data: Path | None = None,
) -> Trial:
    """Run `planned` in a folder of its own below `workspace` and return what came of it.

    `reference` is the baseline's trial whose output is the right one; with None the output's
    digest is recorded and not judged. `data` is the workload's prepared data folder. A program
    that fails is a trial with that status; an exception means that the lab itself could not do its
    work.
    """
    started = datetime.now(UTC)
    with _folder(workspace / f"trial-{planned.index:06d}") as folder:
        run = _TrialRun(study, planned, folder, data)
        figures: dict[str, float] = {}
        try:
            figures = run.measure(reference)
        except verdict.Rejected as rejected:
            status, reason = rejected.status, rejected.reason
            _check_space(folder)
        else:
            status, reason = TrialStatus.OK, ""
        return Trial(
            planned=planned,
            status=status,
            reason=reason,
            started=started,
            exit_code=run.timed.exit_code,
            metrics=figures,
            output_sha256=run.timed.digest,
            threads=run.timed.most_threads,
            left_running=run.timed.used.left_running if run.timed.used else 0,
            stderr_tail=run.stderr_tail or run.timed.stderr_tail(),
        )


class _TrialRun:
    """The timed run of a trial, and those that follow it."""

    def __init__(
        self, study: Study, planned: PlannedTrial, folder: Path, data: Path | None
    ) -> None:
        sources = sources_of(study)
        self._study = study
        self._planned = planned
        self._folder = folder
        self._data = data
        # Nobody looks at the figures of a warm-up.
        self._own_runs = [each for each in sources if each.own_run and not planned.warmup]
        timed = [each for each in sources if not each.own_run]
        self._timed_sources = timed
        self.timed = self._attempt(folder, timed, study.timeout_s, witnessed=planned.warmup)
        self.stderr_tail = ""  # of a run after the timed one, where that went wrong

    def _attempt(
        self,
        folder: Path,
        sources: list[type[Source]],
        timeout_s: float,
        *,
        witnessed: bool = False,
    ) -> Attempt:
        return Attempt(
            self._study,
            self._planned,
            sources,
            timeout_s=timeout_s,
            folder=folder,
            data=self._data,
            witnessed=witnessed,
        )

    def measure(self, reference: Trial | None) -> dict[str, float]:
        """Return the figures of the study's metrics; raise `Rejected` where a run is no good."""
        figures = self._timed_figures()
        timed = self.timed
        if self._study.warmups == 0 and self._planned.replicate == 1:
            self._witness()
        verdict.check_same_output(timed.digest, reference, own=timed.is_reference)
        for metric in self._study.workload.command_metrics:
            figures[metric.name] = self._command_figure(metric)
        for source in self._own_runs:
            figures |= self._figures_of_own_run(source)
        wanted = {metric.name for metric in self._study.metrics}
        return {name: figure for name, figure in figures.items() if name in wanted}

    def _timed_figures(self) -> dict[str, float]:
        """Return the figures of the first run.

        Some programs cannot be traced: debuggers, and what is setuid. A warm-up that fails when it
        is witnessed is therefore repeated as the others are run.
        """
        try:
            return _figures_of(self.timed)
        except verdict.Rejected as rejected:
            is_told = rejected.reason.startswith(verdict.WITHOUT_ALLOCATOR)
            if not self.timed.witness or is_told or rejected.status is TrialStatus.TIMEOUT:
                raise
        folder = self._folder / "again"
        folder.mkdir()
        self.timed = self._attempt(folder, self._timed_sources, self._study.timeout_s)
        return _figures_of(self.timed)

    def _witness(self) -> None:
        """Reject a run without the allocator, of which no warm-up has told."""
        with _folder(self._folder / "witnessed") as folder:
            attempt = self._attempt(folder, [], self._study.timeout_s, witnessed=True)
            if attempt.witness is None:
                return
            try:
                _figures_of(attempt)
            except verdict.Rejected as rejected:
                if rejected.reason.startswith(verdict.WITHOUT_ALLOCATOR):
                    raise

    def _command_figure(self, metric: CommandMetric) -> float:
        """Return the number in the last line that a command of the user's prints.

        It runs without the allocator, in the workload's folder, on the lab's processors.
        """
        out, err = (self._folder / f"metric-{kind}.txt" for kind in ("out", "err"))
        exit_code = self._run_command(metric, out, err)
        if exit_code != 0:
            last_words = _last_line(err)
            said = f" (it says: {last_words})" if last_words else ""
            raise _command_failed(metric, f"{verdict.how_it_ended(exit_code)}{said}")
        printed = _last_line(out)
        try:
            return verdict.number(printed)
        except ValueError as error:
            raise verdict.mismatch(
                f"the last line that the command of metric {metric.name} prints is no usable "
                f"number: {printed[:80]!r}"
            ) from error

    def _run_command(self, metric: CommandMetric, out: Path, err: Path) -> int:
        timed = self.timed
        words = timed.placeholders.expand_all(metric.command)
        try:
            with Running(
                timed.launcher,
                [word.replace(_STDOUT, str(timed.stdout)) for word in words],
                cpus=timed.split.others,
                directory=timed.workload.here.resolve(),
                environment=preload.clean_environment(),
                changes=preload.environment_changes(None, timed.environment),
                stdin=None,
                stdout=out,
                stderr=err,
            ) as running:
                ended = running.wait(COMMAND_TIMEOUT_S)
        except CouldNotStart as error:
            raise _command_failed(metric, str(error)) from error
        if ended is None:
            raise _command_failed(metric, f"it still ran after {COMMAND_TIMEOUT_S:g} s")
        return ended.exit_code

    def _figures_of_own_run(self, source: type[Source]) -> dict[str, float]:
        assert self.timed.used is not None, "the timed run comes first"
        # What the program took without the tool says more than the study's limit.
        timeout_s = max(self._study.timeout_s, self.timed.used.wall_s * source.slowdown)
        names = {metric.name for metric in source.metrics}
        with _folder(self._folder / "own-run") as folder:
            attempt = self._attempt(folder, [source], timeout_s)
            with closing(attempt):
                try:
                    attempt.run()
                    figures = attempt.judge()
                    if attempt.digest != self.timed.digest:
                        reason = "gives different output than in the run before, which was timed"
                        raise verdict.mismatch(reason)
                except verdict.Rejected as rejected:
                    self.stderr_tail = attempt.stderr_tail()
                    raise verdict.Rejected(
                        rejected.status,
                        f"in the run for {source.metrics[0].name} alone: {rejected.reason}",
                    ) from rejected
        return {name: figure for name, figure in figures.items() if name in names}


def _figures_of(attempt: Attempt) -> dict[str, float]:
    with closing(attempt):
        attempt.run()
        return attempt.judge()


def _command_failed(metric: CommandMetric, reason: str) -> verdict.Rejected:
    return verdict.Rejected(
        TrialStatus.FAILED, f"the command of metric {metric.name} failed: {reason}"
    )


def _last_line(path: Path) -> str:
    text = verdict.tail(path).decode(errors="replace").strip()
    return text.rpartition("\n")[2].strip()


def _check_space(folder: Path) -> None:
    """Stop rather than blame an allocator for a program that failed for want of disk space."""
    if shutil.disk_usage(folder).free < LITTLE_SPACE_BYTES:
        raise HeapfitError(
            f"the disk of {folder.parent} is full; make room and repeat the same command: "
            "what is measured is kept"
        )


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """An empty folder that is gone afterwards, whatever happens in between."""
    try:
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    except OSError as error:
        raise HeapfitError(
            f"cannot make {path}: {error.strerror}; free some space there"
        ) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
