"""Run one planned trial: its program under its allocator, judged, with all figures of the study.

The first run of the program is the one that is timed. Once that has passed all checks, the commands
of command metrics are run on the files that it left, and each source that has `own_run` gets a run
of the program for itself, under the same allocator on the same cores, which must end the same way.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from heapfit.errors import HeapfitError
from heapfit.files import remove_tree
from heapfit.record import VARIANT, examine
from heapfit.records import CommandMetric, PlannedTrial, Study, Trial, TrialStatus
from heapfit.trial import outcome, preload
from heapfit.trial.attempt import Attempt
from heapfit.trial.launcher import CouldNotStart, Running
from heapfit.trial.metrics import sources_of
from heapfit.trial.own_libraries import RECORDINGS
from heapfit.trial.source import Source

# How often a failed warm-up of the reference is repeated: a program that fails in a quarter of its
# runs does so in all in one study of 256.
_REPEATS = 3

# A program that fails with less than this left on its disk has probably failed for that reason.
LITTLE_SPACE_BYTES = 1 << 20

# In a command metric's command, for the file with the program's standard output.
_STDOUT = "{stdout}"
# Such a command only reads what a program wrote; if it takes longer than this, it hangs.
COMMAND_TIMEOUT_S = 60.0


def run_trial(
    study: Study,
    planned: PlannedTrial,
    workspace: Path,
    reference: Trial | None,
    data: Path | None = None,
) -> Trial:
    """Run `planned` in a folder of its own below `workspace` and return the finished trial.

    `reference` is the baseline's trial whose output it must match; with None the output's digest is
    recorded and not compared. `data` is the workload's prepared data folder. A program
    that fails is a trial with that status; an exception means that the lab itself could not do its
    work.
    """
    started = datetime.now(UTC)
    with _folder(workspace / f"trial-{planned.index:06d}") as folder:
        run = _TrialRun(study, planned, folder, data)
        figures: dict[str, float] = {}
        try:
            figures = run.measure(reference)
        except outcome.Rejected as rejected:
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
        self._attempt = partial(Attempt, study, planned, data=data)
        # The figures of a warm-up are not used.
        self._own_runs = [each for each in sources if each.own_run and not planned.warmup]
        self._timed_sources = [each for each in sources if not each.own_run]
        self.timed = self._attempt(self._timed_sources, folder=folder, witnessed=planned.warmup)
        self.stderr_tail = ""  # of a run after the timed one, where that went wrong

    def measure(self, reference: Trial | None) -> dict[str, float]:
        """Return the figures of the study's metrics; raise `Rejected` where a run fails a check."""
        figures = self._timed_figures()
        timed = self.timed
        if self._study.warmups == 0 and self._planned.replicate == 1:
            self._witness()
        outcome.check_same_output(timed.digest, reference, own=timed.is_reference)
        for metric in self._study.workload.command_metrics:
            figures[metric.name] = self._command_figure(metric)
        for source in self._own_runs:
            figures |= self._figures_of_own_run(source)
        wanted = {metric.name for metric in self._study.metrics}
        return {name: figure for name, figure in figures.items() if name in wanted}

    def _timed_figures(self) -> dict[str, float]:
        """Return the figures of the first run.

        Some programs cannot be traced: debuggers, and what is setuid. A warm-up that fails when it
        is witnessed is therefore repeated as the others are run. So is, more often, one of the
        reference, without which nothing can be compared: the program may fail now and then.
        """
        is_needed = self._planned.warmup and self.timed.is_reference
        left = _REPEATS if is_needed else 1 if self.timed.witness else 0
        while True:
            try:
                return _figures_of(self.timed)
            except outcome.Rejected as rejected:
                is_told = rejected.reason.startswith(outcome.WITHOUT_ALLOCATOR)
                if not left or is_told or rejected.status is TrialStatus.TIMEOUT:
                    raise
            folder = self._folder / f"again-{left}"
            folder.mkdir()
            self.timed = self._attempt(self._timed_sources, folder=folder)
            left -= 1

    def _witness(self) -> None:
        """Reject a treatment whose program runs without the allocator, where no warm-up checked
        that."""
        with _folder(self._folder / "witnessed") as folder:
            attempt = self._attempt([], folder=folder, witnessed=True)
            if attempt.witness is None:
                return
            try:
                _figures_of(attempt)
            except outcome.Rejected as rejected:
                if rejected.reason.startswith(outcome.WITHOUT_ALLOCATOR):
                    raise

    def _command_figure(self, metric: CommandMetric) -> float:
        """Return the number in the last line that a command of the user's prints.

        It runs without the allocator, in the workload's folder, on the lab's processors.
        """
        out, err = (self._folder / f"metric-{kind}.txt" for kind in ("out", "err"))
        exit_code = self._run_command(metric, out, err)
        if exit_code != 0:
            said = outcome.it_says(outcome.tail(err).decode(errors="replace"))
            raise _command_failed(metric, f"{outcome.how_it_ended(exit_code)}{said}")
        printed = _last_line(out)
        try:
            return outcome.number(printed)
        except ValueError as error:
            raise outcome.mismatch(
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
            attempt = self._attempt([source], folder=folder, timeout_s=timeout_s)
            with closing(attempt):
                try:
                    attempt.run()
                    figures = attempt.judge()
                    if attempt.digest != self.timed.digest:
                        reason = "gives different output than in the run before, which was timed"
                        raise outcome.mismatch(reason)
                except outcome.Rejected as rejected:
                    self.stderr_tail = attempt.stderr_tail()
                    raise outcome.Rejected(
                        rejected.status,
                        f"in the run for {source.metrics[0].name} alone: {rejected.reason}",
                    ) from rejected
        return {name: figure for name, figure in figures.items() if name in names}


def _figures_of(attempt: Attempt) -> dict[str, float]:
    with closing(attempt):
        attempt.run()
        return attempt.judge()


def _command_failed(metric: CommandMetric, reason: str) -> outcome.Rejected:
    return outcome.Rejected(
        TrialStatus.FAILED, f"the command of metric {metric.name} failed: {reason}"
    )


def _last_line(path: Path) -> str:
    text = outcome.tail(path).decode(errors="replace").strip()
    return text.rpartition("\n")[2].strip()


def _check_space(folder: Path) -> None:
    """Stop rather than blame an allocator for a program that failed for want of disk space."""
    if shutil.disk_usage(folder).free < LITTLE_SPACE_BYTES:
        raise HeapfitError(
            f"the disk of {folder.parent} is full; make room and repeat the same command: "
            "completed trials are kept"
        )


@contextmanager
def _folder(path: Path) -> Iterator[Path]:
    """An empty folder that is gone afterwards, whatever happens in between."""
    try:
        remove_tree(path)
        path.mkdir(parents=True)
    except OSError as error:
        raise HeapfitError(
            f"cannot make {path}: {error.strerror}; free some space there"
        ) from error
    try:
        yield path
    finally:
        remove_tree(path)


# ------------------------------------------------------------------- recording


def _by_use(files: Sequence[Path]) -> list[Path]:
    """Return the recordings, those first whose process used its heap most: a server that holds much
    in few blocks before the driver that asks it."""
    if len(files) < 2:
        return list(files)
    used = [_use(each) for each in files]
    most = [max(1, *of_all) for of_all in zip(*used, strict=True)]
    shares = [sum(of / largest for of, largest in zip(each, most, strict=True)) for each in used]
    ranked = sorted(zip(shares, files, strict=True), key=lambda each: (-each[0], each[1]))
    return [file for _, file in ranked]


def _use(file: Path) -> tuple[int, int]:
    """Return a recording's events, and the bytes that were live at most."""
    from heapfit.trace.native import read_totals

    try:
        totals = read_totals(file)
    except HeapfitError:  # It has no end: its process was killed.
        return examine(file).events, 0
    return totals.events, totals.peak_bytes


class RecordedRun(NamedTuple):
    """The recordings of a run, and the sources that have watched it."""

    files: list[Path]
    sources: Sequence[Source]
    failure: str  # how it ended, where it should have ended otherwise


def recorded_run(
    study: Study,
    file: Path,
    data: Path | None,
    settings: Mapping[str, str],
    sources: Sequence[type[Source]] = (),
    *,
    all_processes: bool = False,
) -> RecordedRun:
    """Run the study's baseline once with the recorder's `settings`, watched by the `sources`.

    `file` is of the process that used its heap most, by events and by what it had live at most;
    with `all_processes`, those of the others are beside it as FILE.1, FILE.2 and so on. Raises
    Rejected where the program could not be run to its end.
    """
    plain = study.allocators[0]
    recorded = plain.model_copy(
        update={"name": VARIANT, "variant_of": plain, "record": dict(settings)}
    )
    recording = study.model_copy(update={"allocators": [plain, recorded]})
    planned = study.plan[0].model_copy(update={"allocator": VARIANT})
    with tempfile.TemporaryDirectory(dir=file.parent, prefix="recording-") as aside:
        attempt = Attempt(recording, planned, sources, folder=Path(aside), data=data)
        with closing(attempt):
            attempt.run()
        made = Path(aside) / RECORDINGS
        files = made.iterdir() if made.exists() else []
        written = _by_use(list(files))
        kept = []
        for number, each in enumerate(written if all_processes else written[:1]):
            kept.append(each.replace(f"{file}.{number}" if number else file))
        return RecordedRun(kept, attempt.sources, _failure(attempt))


def _failure(attempt: Attempt) -> str:
    try:
        attempt.check_exit()
    except outcome.Rejected as rejected:
        return f"{rejected.reason}{outcome.it_says(attempt.stderr_tail())}"
    return ""
