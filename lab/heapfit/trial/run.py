"""Run one planned trial: start its program under its allocator, observe it, judge it, clean up.

With a server, the allocator and the trial's cores are the server's; the client that drives it runs
without, on the other cores where there are any. Wall time is then the client's, and resources are
the server's from its start to its end on SIGTERM, nothing subtracted; memory is sampled while it
serves.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.records import InstalledAllocator, PlannedTrial, Study, Trial, TrialStatus, Workload
from heapfit.trial import output, preload, server, verdict
from heapfit.trial.cores import CoreSplit, lab_runs_on, split_cores
from heapfit.trial.launcher import CouldNotStart, Ended, Running, find_launcher
from heapfit.trial.levels import Levels
from heapfit.trial.memory import Memory
from heapfit.trial.observe import TimedOut, observe
from heapfit.trial.placeholders import Placeholders
from heapfit.trial.preload import PreloadWatch
from heapfit.trial.resources import Resources
from heapfit.trial.source import Source

SOURCES: tuple[type[Source], ...] = (Resources, Memory)
BUILTIN_METRICS = [metric for source in SOURCES for metric in source.metrics]


def unavailable_metrics() -> dict[str, str]:
    """Return the built-in metrics that this machine cannot give, each with the reason."""
    reasons = ((source, source.unavailable()) for source in SOURCES)
    return {m.name: reason for source, reason in reasons if reason for m in source.metrics}


STDERR_TAIL_BYTES = 2048

# A program that fails with less than this left on its disk has probably failed for that reason.
LITTLE_SPACE_BYTES = 1 << 20


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
        attempt = _Attempt.prepare(study, planned, workspace, folder, data)
        try:
            attempt.run()
            attempt.judge(reference)
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
            exit_code=attempt.exit_code,
            metrics=attempt.metrics if status is TrialStatus.OK else {},
            output_sha256=attempt.digest,
            stderr_tail=attempt.stderr_tail(),
        )


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


@dataclass
class _Attempt:
    """One run of one program, and what is known about it so far."""

    study: Study
    allocator: InstalledAllocator
    is_baseline: bool
    launcher: Path
    folder: Path
    split: CoreSplit
    levels: Levels
    placeholders: Placeholders
    watch: PreloadWatch
    sources: list[Source]
    exit_code: int | None = None
    digest: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls, study: Study, planned: PlannedTrial, workspace: Path, folder: Path, data: Path | None
    ) -> _Attempt:
        allocator = next(each for each in study.allocators if each.name == planned.allocator)
        scratch = folder / "scratch"
        scratch.mkdir()
        levels = Levels.of(study, planned)
        return cls(
            study=study,
            allocator=allocator,
            is_baseline=planned.allocator == study.baseline,
            launcher=find_launcher(workspace),
            folder=folder,
            split=split_cores(planned.cores),
            levels=levels,
            placeholders=Placeholders(
                study.workload, scratch.resolve(), planned.cores, data, levels.parameters
            ),
            watch=PreloadWatch(allocator.library),
            sources=[source() for source in SOURCES if source.unavailable() is None],
        )

    @property
    def workload(self) -> Workload:
        return self.study.workload

    # ------------------------------------------------------------------- run

    def run(self) -> None:
        """Run the program and take the built-in figures; raise `Rejected` if it had to be ended."""
        try:
            with lab_runs_on(self.split.others):
                ended, used = self._run_server() if self.workload.server else self._run_program()
        except CouldNotStart as error:
            raise verdict.Rejected(TrialStatus.FAILED, str(error)) from error
        except server.ServerFailed as error:
            raise verdict.Rejected(TrialStatus.FAILED, str(error)) from error
        except TimedOut as error:
            raise verdict.Rejected(TrialStatus.TIMEOUT, str(error)) from error
        self.exit_code = ended.exit_code
        for source in self.sources:
            self.metrics |= source.figures(replace(used, wall_s=ended.wall_s))

    def _run_program(self) -> tuple[Ended, Ended]:
        command = self.workload.run.command
        with self._start("program", command, self.allocator, self.split.program) as program:
            ended = observe(program, [*self.sources, self.watch], self.study.timeout_s)
        return ended, ended

    def _run_server(self) -> tuple[Ended, Ended]:
        wanted = self.workload.server
        assert wanted is not None
        port = server.ready_port(self.placeholders.expand(wanted.ready))
        with self._start("server", wanted.command, self.allocator, self.split.program) as serving:
            server.wait_until_ready(serving, port, wanted.ready_timeout_s)
            with self._start(
                "program", self.workload.run.command, None, self.split.others
            ) as client:
                sources = [*self.sources, self.watch]
                ended = observe(client, sources, self.study.timeout_s, serving)
            return ended, server.stop(serving)

    def _start(
        self, name: str, command: list[str], allocator: InstalledAllocator | None, cpus: list[int]
    ) -> Running:
        run = self.workload.run
        expand = self.placeholders.expand
        here = self.workload.here.resolve()
        wanted = {key: expand(value) for key, value in run.environment.items()}
        return Running(
            self.launcher,
            self.placeholders.expand_all(command),
            cpus=cpus,
            directory=here,
            environment=preload.clean_environment(self.levels),
            changes=preload.environment_changes(allocator, wanted, self.levels),
            stdin=here / expand(run.stdin) if run.stdin and name == "program" else None,
            stdout=self.folder / f"{name}.out",
            stderr=self.folder / f"{name}.err",
        )

    # ----------------------------------------------------------------- judge

    def judge(self, reference: Trial | None) -> None:
        """Check the ended program and read its own figures; raise `Rejected` where it is wrong."""
        assert self.exit_code is not None
        check = self.workload.check
        stdout = self.folder / "program.out"
        verdict.check_exit(self.exit_code, check.exit_code)
        verdict.check_preload(self.watch, self._stderr_under_allocator())
        try:
            self.metrics |= output.figures(self.workload, stdout)
            compared = [stdout] if check.stdout == "same" else []
            self.digest = output.digest([*compared, *map(self._scratch_file, check.files)])
        except output.BadOutput as error:
            raise verdict.Rejected(TrialStatus.MISMATCH, str(error)) from error
        verdict.check_same_output(self.study, self.digest, reference, own=self.is_baseline)

    def stderr_tail(self) -> str:
        """The last words of the program, and of the server if there is one."""
        files = [self.folder / "server.err", self.folder / "program.err"]
        words = b"".join(output.tail(file, STDERR_TAIL_BYTES) for file in files)
        return words.decode(errors="replace")

    def _stderr_under_allocator(self) -> Path:
        return self.folder / ("server.err" if self.workload.server else "program.err")

    def _scratch_file(self, name: str) -> Path:
        """A file to check: a bare name is in `{scratch}`, a placeholder may lead elsewhere."""
        return self.placeholders.scratch / self.placeholders.expand(name)
