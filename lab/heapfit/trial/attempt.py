"""One run of a trial's program under its allocator: start it, observe it, judge the outcome.

With a server, the server gets the allocator and the trial's cores; the client that drives it runs
without the allocator, on the other cores where there are any. Wall time is then the client's, and
resources are the server's from its start to its end on SIGTERM, nothing subtracted; memory is
sampled while it serves.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from heapfit.host.program import why_not_preloadable
from heapfit.records import InstalledAllocator, PlannedTrial, Study, TrialStatus
from heapfit.trial import outcome, preload
from heapfit.trial.cores import lab_runs_on, split_cores
from heapfit.trial.launcher import CouldNotStart, Ended, Running, find_launcher
from heapfit.trial.observe import observe, ready_port, stop_server, wait_until_ready
from heapfit.trial.own_libraries import RECORDINGS
from heapfit.trial.placeholders import Levels, Placeholders
from heapfit.trial.preload import PreloadWatch
from heapfit.trial.resources import Memory
from heapfit.trial.source import Source

STDERR_TAIL_BYTES = 2048

# A study asks of the same program in every trial, and the file may be large.
_obstacle = cache(why_not_preloadable)


class Attempt:
    """One run, and what is known about it so far. To be closed."""

    def __init__(
        self,
        study: Study,
        planned: PlannedTrial,
        sources: Sequence[type[Source]],
        *,
        folder: Path,
        data: Path | None,
        timeout_s: float | None = None,
        witnessed: bool = False,
    ) -> None:
        """Make ready in `folder`, which exists and is empty; the time-out defaults to the study's.

        A run that is `witnessed` is slower; it records which processes did the work, and whether
        the allocator served them.
        """
        self.workload = study.workload
        self.allocator = study.allocator(planned.allocator)
        self.is_reference = planned.allocator == study.reference_of(planned.allocator)
        self.launcher = find_launcher()
        self.folder = folder
        self.timeout_s = study.timeout_s if timeout_s is None else timeout_s
        self.split = split_cores(planned.cores)
        self.levels = Levels.of(study, planned.allocator, planned.levels)
        scratch = folder / "scratch"
        scratch.mkdir()
        (folder / RECORDINGS).mkdir()
        self.placeholders = Placeholders(
            study.workload, scratch.resolve(), planned.cores, data, self.levels.parameters
        )
        # A tool in between has a memory map of its own, and the timed run has been watched already.
        is_watched = not any(source.own_run for source in sources)
        libraries = preload.preloaded_libraries(self.allocator) if is_watched else []
        program = self.placeholders.expand((self.workload.server or self.workload.run).command[0])
        obstacle = _obstacle(program) if libraries else None
        self.watch = PreloadWatch(libraries, obstacle=obstacle)
        self.library = libraries[0] if libraries else None
        self.witness = folder / "witness" if libraries and witnessed else None
        self.sources = [source() for source in sources]
        self.used: Ended | None = None
        self.digest: str | None = None

    @property
    def stdout(self) -> Path:
        """What the program prints; with a server, what its client prints."""
        return self.folder / "program.out"

    @property
    def exit_code(self) -> int | None:
        return self.used.exit_code if self.used else None

    @property
    def patience(self) -> float:
        """How many times as long as usual a server may take to start and to end."""
        return max((source.slowdown for source in self.sources), default=1.0)

    def close(self) -> None:
        for source in self.sources:
            source.close()

    # ------------------------------------------------------------------- run

    def run(self) -> None:
        """Run the program to its end; raise `Rejected` if it has to be ended, or cannot run."""
        try:
            with lab_runs_on(self.split.others):
                ended, used = self._run_server() if self.workload.server else self._run_program()
        except CouldNotStart as error:
            raise outcome.Rejected(TrialStatus.FAILED, str(error)) from error
        self.used = replace(used, status=ended.status, wall_s=ended.wall_s)

    def _run_program(self) -> tuple[Ended, Ended]:
        command = self.workload.run.command
        with self._start("program", command, self.allocator, self.split.program) as program:
            ended = observe(program, [*self.sources, self.watch], self.timeout_s)
        return ended, ended

    def _run_server(self) -> tuple[Ended, Ended]:
        wanted = self.workload.server
        assert wanted is not None
        port = ready_port(self.placeholders.expand(wanted.ready))
        with self._start("server", wanted.command, self.allocator, self.split.program) as serving:
            if port is not None:
                wait_until_ready(serving, port, wanted.ready_timeout_s * self.patience)
            with self._start(
                "program", self.workload.run.command, None, self.split.others
            ) as client:
                sources = [*self.sources, self.watch]
                ended = observe(client, sources, self.timeout_s, serving)
            return ended, stop_server(serving, self._to_signal(serving.pid), self.patience)

    def _to_signal(self, program: int) -> int:
        for source in self.sources:
            program = source.to_signal(program)
        return program

    def _start(
        self, name: str, command: list[str], allocator: InstalledAllocator | None, cpus: list[int]
    ) -> Running:
        run = self.workload.run
        expand = self.placeholders.expand
        here = self.workload.here.resolve()
        wrapper = allocator.wrapper if allocator else []
        words = self.placeholders.expand_all([*wrapper, *command])
        # A program without the allocator (a server's client) is not observed.
        observers = self.sources if allocator else []
        for source in observers:
            words = source.wrap(words, self.folder)
        return Running(
            self.launcher,
            words,
            cpus=cpus,
            directory=here,
            environment=preload.clean_environment(self.levels),
            changes=preload.of_one_size(
                preload.environment_changes(
                    allocator, self.environment, self.levels, (self.folder / RECORDINGS).resolve()
                )
            ),
            stdin=here / expand(run.stdin) if run.stdin and name == "program" else None,
            stdout=self.folder / f"{name}.out",
            stderr=self.folder / f"{name}.err",
            attach=self._attach if any(source.is_attached() for source in observers) else None,
            witness=self.witness if allocator else None,
        )

    def _attach(self, launcher: int) -> None:
        for source in self.sources:
            source.attach(launcher)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the workload sets."""
        wanted = self.workload.run.environment
        return {name: self.placeholders.expand(value) for name, value in wanted.items()}

    # ----------------------------------------------------------------- judge

    def judge(self) -> dict[str, float]:
        """Check the ended program and return all figures; raise `Rejected` where a check fails.

        The caller compares its output with the reference's, by `digest`.
        """
        assert self.used is not None, "run() comes first"
        # First, since no failure of such a run is the allocator's.
        if self.witness and self.library:
            why = preload.why_not_served(self.witness, self.library)
            if why is not None:
                raise preload.without_allocator(why)
        self.check_exit()
        check = self.workload.check
        under_allocator = "server" if self.workload.server else "program"
        self.watch.check(self.folder / f"{under_allocator}.err")
        printed = outcome.figures(self.workload, self.stdout)
        compared = [self.stdout] if check.stdout == "same" else []
        self.digest = outcome.digest([*compared, *map(self._scratch_file, check.files)])
        measured = [source.figures(self.used) for source in self.sources]
        return {name: figure for each in [*measured, printed] for name, figure in each.items()}

    def check_exit(self) -> None:
        """Reject a run that ended otherwise than the workload says."""
        assert self.used is not None, "run() comes first"
        program, is_load = Path(self.workload.run.command[0]).name, self.workload.server is not None
        expected = self.workload.check.exit_code
        outcome.check_exit(self.used.exit_code, expected, program, is_load=is_load)

    @property
    def most_threads(self) -> int | None:
        """The most threads that one process was seen to have at once; None: nothing was seen."""
        return next((each.most_threads for each in self.sources if isinstance(each, Memory)), None)

    def stderr_tail(self) -> str:
        """The last words of the program, and of the server if there is one."""
        files = [self.folder / "server.err", self.folder / "program.err"]
        words = b"".join(outcome.tail(file, STDERR_TAIL_BYTES) for file in files)
        return words.decode(errors="replace")

    def _scratch_file(self, name: str) -> Path:
        """A file to check: a bare name is in `{scratch}`, a placeholder may lead elsewhere."""
        return self.placeholders.scratch / self.placeholders.expand(name)
