"""`heapfit fit`: from a program to the lines that deploy the allocator that fits it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from heapfit import catalogue
from heapfit.cli.arguments import (
    Allocators,
    AsJson,
    Baseline,
    Out,
    OutputCheck,
    Timeout,
    command_line,
    process_number,
    time_span,
)
from heapfit.cli.commands import new_app
from heapfit.cli.failures import INTERRUPTED
from heapfit.cli.gate import decides
from heapfit.cli.output import messages, print_facts, print_json, results, say, table, warn
from heapfit.cli.progress import StudyProgress, kept_on_interrupt, told_on_interrupt
from heapfit.cli.provide import (
    named_allocators,
    plan_of,
    provide_allocators,
    provide_programs,
    results_folder,
    subject,
    warn_of_input,
    with_baseline,
)
from heapfit.doctor import examine, examine_objects, examine_program
from heapfit.errors import AnotherStudy, HeapfitError, UsageError
from heapfit.files import RECORDING_SUFFIX, check_folder, check_name
from heapfit.host import proc
from heapfit.host.machine import inherited_settings
from heapfit.records import InstalledAllocator, Study, Trial, TrialStatus
from heapfit.study import default_cores, execute, load, note_look, set_aside
from heapfit.text import bytes_text, counted, duration, join_words, shell_word, visible

if TYPE_CHECKING:
    from heapfit.fit.answer import Answer
    from heapfit.fit.candidates import Candidate
    from heapfit.fit.facts import Facts
    from heapfit.fit.search import Setup
    from heapfit.fit.state import Request, State
    from heapfit.report import Reading

app = new_app()

# What of a machine's findings a fit's figures suffer from.
_TOPICS = {"cores", "cpu quota", "load now", "cpu governor", "memory", "swap", "noise"}


@app.command(epilog="Example:  heapfit fit --goal memory --keep 'wall_s<=1.02' -- ./my-program")
@decides()
@told_on_interrupt()
def fit(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKLOAD | TRACE | -- CMD",
            help="A workload, a TOML file, a recording, or a command.",
        ),
    ] = None,
    pid: Annotated[
        str | None,
        typer.Option(
            metavar="PID",
            help="Record a running service that heapfit record has started, and fit that "
            "recording.",
        ),
    ] = None,
    goal: Annotated[
        str,
        typer.Option(
            metavar="memory|mean|time|balance|'peak<=2g'",
            help="Minimise peak memory, mean memory, time, both (balance), or time within a "
            "limit of the peak or the mean ('mean<=500m').",
        ),
    ] = "balance",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC<=BOUND",
            help="Reject candidates whose ratio to the baseline is not shown to meet this bound: "
            "'wall_s<=1.02' is at most 2 % slower. docs/method.md (A trial) lists the metrics; <= "
            "or >=; repeatable.",
        ),
    ] = None,
    time: Annotated[
        str,
        typer.Option(
            metavar="15m",
            help="Time limit for all trials together: 90s, 15m, 2h. Recording and analysis take "
            "some 10 to 30 s more.",
        ),
    ] = "15m",
    allocators: Allocators = None,
    baseline: Baseline = "glibc",
    timeout: Timeout = None,
    output: OutputCheck = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Print the plan and the candidates without running anything."
        ),
    ] = False,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Find the allocator and the settings that fit a program, and write the files that deploy them.

    It examines the program, screens candidates in rounds with fewer candidates and more trials
    each, measures the finalists again, and chooses by the verdict or advises no change. For a
    recording, or a running service, candidates are compared by replaying its calls. If it was
    interrupted, the same command continues where it stopped.

    Exit codes:

    - 0: a choice, or the advice to stay
    - 1: nothing meets the limit, or everything better is shown to break a bound of --keep
    - 3: inconclusive; more --time may settle it
    - 4: nothing could be measured
    """
    from heapfit.fit import candidates, look, search, state  # SciPy takes a while to load.
    from heapfit.fit import goal as goals
    from heapfit.replay import replay_workload

    wanted = goals.parse(goal)
    time_s = time_span(time, "--time")
    conditions = search.conditions(keep or [])
    _check_subject(name, pid, context.obj, explain=explain)
    if out is not None:
        check_folder(out)
    usual = {each: each for each in catalogue.load_allocators()}
    words = with_baseline(named_allocators(allocators, usual, installed=True), baseline)
    command = command_line(
        *("fit", *filter(None, [name])), pid=pid, goal=goal, keep=keep, time=time,
        baseline=baseline, allocators=",".join(words), timeout=timeout, output=output,
        program=context.obj,
    )  # fmt: skip
    process_began = proc.began(process_number(pid)) if pid is not None else 0
    request = state.Request(command=command, goal=goal, process_began=process_began)

    def comparing(allocators: str, blocks: int) -> str:
        again = partial(command_line, allocators=allocators, baseline=baseline, replicates=blocks)
        if trace is not None:
            return again("replay", str(trace))
        what = filter(None, [name])
        return again("compare", *what, timeout=timeout, output=output, program=context.obj)

    def folder_for(what: str) -> Path:
        return out or results_folder(f"fit-{what}", partial(state.load, request=request))

    trace = _trace(name)
    if pid is not None:
        folder = folder_for(f"pid-{pid}")
        trace = _recorded(process_number(pid), folder, request, time_s)
    if trace is not None:
        workload = replay_workload(plan_of(trace))
    else:
        workload = subject("fit", name, context.obj, output)
        look.refuse(workload)
        if context.obj:
            warn_of_input("fit")
    installed = provide_allocators(words, install=False)
    if trace is None:
        provide_programs([workload], install=False)
    setup = search.Setup(
        workload=workload,
        baseline=next(each for each in installed if each.name == catalogue.name_of(baseline)),
        cores=default_cores(workload),
        goal=wanted,
        keep=conditions,
        time_s=time_s,
        timeout_s=min(workload.run.timeout_s, time_s) if timeout is None else timeout,
        is_timeout_given=timeout is not None,
        command=command,
        compare=comparing,
        is_replay=trace is not None,
    )
    folder = folder if pid is not None else folder_for(workload.name)
    kept = state.load(folder, request)
    facts = kept.facts or (
        look.by_trace(trace, setup.cores)[0] if trace else look.by_file(workload, setup.cores)
    )
    if setup.is_replay:
        look.check_goal(facts, wanted)
    found = _considered(setup, installed, facts)
    search.check(setup, candidates.tried_of(found))
    if explain:
        _explain(facts, found, time_s, as_json=as_json)
        return
    _Fit(setup, installed, folder, kept, trace, quiet=as_json).run(facts)


def _considered(setup: Setup, installed: list[InstalledAllocator], facts: Facts) -> list[Candidate]:
    from heapfit.fit import candidates, look

    own = None if setup.is_replay else look.own_allocator(setup.workload, setup.baseline)
    return candidates.candidates(
        installed, setup.baseline.name, facts, setup.goal, is_replay=setup.is_replay, own=own
    )


def _check_subject(
    name: str | None, pid: str | None, program: list[str] | None, *, explain: bool
) -> None:
    """Raise UsageError for a process together with something else, or what cannot be explained."""
    if pid is not None and (name or program):
        raise UsageError("--pid already names the program; leave out what else is named")
    if pid is not None and explain:
        raise UsageError(
            f"--explain runs nothing, and nothing is known about process {pid} before it is "
            "recorded"
        )


def _trace(name: str | None) -> Path | None:
    """Return the recording that is named, if one is."""
    if name is None or not name.endswith(RECORDING_SUFFIX):
        return None
    if not Path(name).is_file():
        raise UsageError(f"there is no recording {name}; check its path")
    check_name(Path(name))
    return Path(name)


def _recorded(pid: int, folder: Path, request: Request, time_s: float) -> Path:
    """Return the recording of a running process, made now unless the folder has it."""
    from heapfit.fit import look, running, state

    kept = state.load(folder, request)
    trace = folder / look.RECORDING
    if not trace.exists():
        recorder = running.recorder_of(pid)
        state.save(folder, kept)
        for_s = running.seconds(time_s)
        say(f"recording process {pid} for {duration(for_s)}; it should be doing its usual work")
        running.record(recorder, trace, for_s)
        try:
            plan_of(trace)
        except HeapfitError as error:
            trace.unlink(missing_ok=True)
            why = str(error).removeprefix(f"{trace}: ")
            raise HeapfitError(
                f"the recording of process {pid} is of no use: {why}. Repeat this while it does "
                "its usual work, or record for longer with more --time"
            ) from error
    else:
        made = running.recorded_on(trace)
        say(f"this goes on with the recording of {made}; for a new one, use another --out")
    return trace


class _Fit:
    """The steps, one after the other, and what is said between them."""

    def __init__(
        self,
        setup: Setup,
        installed: list[InstalledAllocator],
        folder: Path,
        state: State,
        trace: Path | None,
        *,
        quiet: bool,
    ) -> None:
        """`trace` is the recording that is replayed, if that is what is fitted."""
        self.setup = replace(setup, run=self._run)
        self.installed, self.folder, self.state, self.trace = installed, folder, state, trace
        self.quiet, self.console = quiet, messages if quiet else results
        self.found: list[Candidate] = []
        self.told: Mapping[str, str] = {}  # of those that a replay was tried with
        workload = setup.workload
        self.data = catalogue.prepare_workload(workload, say) if workload.prepare else None

    def run(self, facts: Facts) -> None:
        """Go through all steps; between studies, too, Ctrl-C says what is kept."""
        try:
            self._steps(facts)
        except KeyboardInterrupt:
            if not (self.folder / "look").exists():
                raise
            warn(
                f"interrupted: completed trials are kept in {self.folder}; the same command "
                "continues from there"
            )
            raise typer.Exit(INTERRUPTED) from None

    def _steps(self, facts: Facts) -> None:
        from heapfit.fit import answer, look, page, search
        from heapfit.report import write_reading

        facts, trial_s = self._look(facts)
        left, waiting = self._candidates(facts, trial_s)
        self.setup = search.with_timeout(self.setup, trial_s)
        if search.rounds_of(len(left), trial_s, self.setup.time_s):
            self._heading("Screening", "rounds of fewer candidates and more blocks")
        screened = search.screen(self.setup, left, self.folder, trial_s, waiting)
        screened.enough_s = search.enough_s(len(left) + len(waiting), trial_s)
        self._consider([*(each.name for each in left), *screened.joined], so_far=False)
        search.limit_finalists(self.setup, screened, self.folder)
        names = ", ".join(each.name for each in screened.left) or "nobody"
        self._heading("Verdict", f"{names}, and {self.setup.baseline.name}, measured again")
        where = search.confirm(self.setup, screened, self.folder)
        setup = self.setup
        today = None if self.trace else look.today(setup.workload, setup.baseline)
        found, reading = answer.answered(setup, where, screened, today)
        if self.state.facts and self.state.facts.grows:
            found = found.model_copy(update={"why": [self.state.facts.grows, *found.why]})
        if where and reading:
            note_look(where, reading.blocks)
            write_reading(reading, where)
        is_new = found != self.state.answer
        self._keep(answer=found)
        files = self._deploy(found, reading, is_new=is_new)
        shown = page.write(self.state, reading, files, self.folder)
        if self.quiet:
            more = {"folder": self.folder, "deploy": files, "page": shown}
            print_json({**self.state.model_dump(mode="json"), **more})
        else:
            _show(found, files)
            results.print(f"The page: {shown}", soft_wrap=True)
        if found.exit_code:
            raise typer.Exit(found.exit_code)

    def _look(self, facts: Facts) -> tuple[Facts, float]:
        """Return the facts, and how long a trial takes."""
        from heapfit.fit import look, search
        from heapfit.fit.facts import labelled

        what = "its recording" if self.trace else "the program as it is, and a recording of it"
        self._heading("Look", f"the machine, {what}")
        self._warn()
        self._keep()
        study = self.setup.study("as it is", [], search.LOOK_BLOCKS, 1, 0)
        self._run(study, self.folder / "look", self.setup.time_s)
        began = search.began(self.folder / "look")
        if self.state.facts and self.state.looked != began:
            self._keep(facts=None, notes=[], answer=None)
            if not self.trace:
                facts = look.by_file(self.setup.workload, self.setup.cores)
                look.forget(self.folder)
        if not look.repeats(load(self.folder / "look")[1]):  # It may fail now and then.
            longer = self.setup.study("as it is", [], 2 * search.LOOK_BLOCKS, 1, 0)
            self._run(longer, self.folder / "look", self.setup.time_s)
        trials = load(self.folder / "look")[1]
        look.check_repeats(trials)
        good = [each for each in trials if each.status is TrialStatus.OK]
        look.check_foreground(self.setup.workload, good)
        if self.state.facts is None:
            if self.trace:
                facts, notes = look.by_trace(self.trace, self.setup.cores)
            else:
                say("recording one run")
                facts = look.by_runs(facts, good)
                facts, notes = look.by_recording(facts, study, self.folder, self.data)
                notes = [*look.without_client(self.setup.workload, self.setup.cores), *notes]
            self._keep(looked=began, facts=facts, notes=notes)
        if not self.quiet:
            print_facts(labelled(facts))
            if (self.folder / look.RECORDING).exists():
                say(f"more of it: heapfit profile {shell_word(self.folder / look.RECORDING)}")
        for note in self.state.notes:
            warn(f"note: {note}")
        limit, live = self.setup.goal.limit, facts.live_bytes or 0
        if limit is not None and limit.what == "peak" and live > limit.size:
            warn(
                f"note: the program itself had {bytes_text(round(live))} in use at its peak; no "
                f"allocator is likely to keep it within {bytes_text(limit.size)}"
            )
        return facts, search.median_s(good)

    def _warn(self) -> None:
        """Of what makes figures wrong or unsteady."""
        workload = self.setup.workload
        command = (workload.server or workload.run).command
        own = [] if self.trace else [examine_program(command), examine_objects(command)]
        for each in [*own, *(found for found in examine() if found.topic in _TOPICS)]:
            if each is not None and not each.ok:
                warn(f"warning: {each.topic}: {each.state}; {each.advice}")
        for name, value in inherited_settings().items():
            if not name.startswith("LD_"):
                warn(
                    f"warning: {name}={value} is set here and so in every run, but not in what is "
                    "deployed; unset it, or set it for the service, too"
                )

    def _candidates(
        self, facts: Facts, trial_s: float
    ) -> tuple[list[InstalledAllocator], list[InstalledAllocator]]:
        """Return the candidates that are tried, and those that wait: there is no time for them, or
        only if their allocator does well."""
        from heapfit.fit import candidates, search

        setup = self.setup
        found = _considered(setup, self.installed, facts)
        count = len(candidates.tried_of(found))
        room = search.room(count, trial_s, setup.time_s)
        if room < count and not setup.is_replay:
            found, self.told = self._foretold(found, facts, room)
        self.found, wanted = found, candidates.tried_of(found)
        at_once = sum(each.tried and not each.waits for each in found)  # They come first.
        if room < count and 0 < at_once < count:
            room = search.first_round(at_once, trial_s, setup.time_s)
        shown = self._consider([each.name for each in wanted[:room]], so_far=True)
        self._heading("Candidates", f"{len(wanted[:room])} of {len(shown)} are tried")
        if not self.quiet:
            results.print(_rows(shown))
        return wanted[:room], wanted[room:]

    def _consider(self, names: list[str], *, so_far: bool) -> list[Candidate]:
        """Keep and return the candidates, of which those of these names alone are tried."""
        from heapfit.fit import candidates
        from heapfit.fit.state import Considered

        shown = candidates.only(self.found, names, self.told, so_far=so_far)
        self._keep(candidates=[Considered.of(each) for each in shown])
        return shown

    def _foretold(
        self, found: list[Candidate], facts: Facts, room: int
    ) -> tuple[list[Candidate], Mapping[str, str]]:
        """Put in order by a replay what there is no time for, with what it tells of each."""
        from heapfit.fit import foretold

        judged = foretold.contenders(found, room)
        if not judged:
            return found, {}
        why_not = foretold.why_not(self.setup, facts, len(judged))
        if why_not is None:
            what = counted(len(judged), "candidate")
            self._heading("First round", f"{what} on a replay of the recording")
            try:
                made = foretold.recorded_in_full(self.setup, self.folder, self.data)
                return foretold.in_order(self.setup, found, judged, made, self.folder)
            except HeapfitError as error:
                why_not = str(error)
        warn(f"note: the order of the candidates does not come from a replay: {why_not}")
        return found, {}

    def _run(self, study: Study, where: Path, limit_s: float | None = None) -> None:
        from heapfit.fit.search import outdated

        progress = _StepProgress(limit_s)
        with kept_on_interrupt(progress, self.folder):
            try:
                execute(study, where, progress, self.data)
            except AnotherStudy:  # The workload's file has been edited.
                self._set_aside([where])
                execute(study, where, progress, self.data)
            if old := outdated(self.folder):
                self._set_aside(old)

    def _set_aside(self, studies: list[Path]) -> None:
        kept = set_aside(studies, self.folder)
        names = join_words([each.name for each in studies])
        say(f"{names} of before the change: kept in {kept}")

    def _keep(self, **update: object) -> None:
        from heapfit.fit.state import save

        self.state = self.state.model_copy(update=update)
        save(self.folder, self.state)

    def _deploy(self, answer: Answer, reading: Reading | None, *, is_new: bool) -> list[Path]:
        """Write the files that deploy a choice; those of an answer that is there may have been
        edited since, and stay."""
        from heapfit.fit import deploy

        if answer.choice is None or reading is None:
            deploy.move_away(self.folder / "deploy")
            return []
        chosen = reading.study.allocator(answer.choice)
        why = [each for each in answer.why if each != answer.late]
        evidence = "\n".join([*why, f"The trials: heapfit report {shell_word(answer.study)}"])
        promise = deploy.promise(answer, reading.summary, self.setup.workload, evidence)
        return deploy.write(chosen, promise, self.folder / "deploy", is_new=is_new)

    def _heading(self, title: str, what: str) -> None:
        self.console.print(Text.assemble("\n", (title, "bold"), f": {what}"))


class _StepProgress(StudyProgress):
    """Shows one step; the first run of the program tells whether there is time for any."""

    def __init__(self, limit_s: float | None) -> None:
        """Show nothing until the step begins."""
        super().__init__(messages)
        self._limit_s = limit_s

    def begin(self, study: Study, done: list[Trial]) -> None:
        """Show how long the step is and what an earlier run has already done."""
        self.done, self.planned = len(done), len(study.plan)
        if done:
            self.console.print(f"{self.done} of {self.planned} trials are already done")
        self._begin(study, done)

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        """Count a trial."""
        from heapfit.fit.search import check_time

        super().finished(trial, remaining_s)
        if self._limit_s is not None and trial.status is TrialStatus.OK:
            check_time(trial.took_s or 0.0, self._limit_s, is_first=trial.planned.warmup)


def _explain(facts: Facts, found: list[Candidate], time_s: float, *, as_json: bool) -> None:
    """Print the plan. What depends on a run of the program is open yet, and would be tried."""
    from heapfit.fit import search
    from heapfit.fit.state import Considered

    rounds = search.sizes(sum(each.tried for each in found))
    steps = [
        f"look: {search.LOOK_BLOCKS + 1} runs, and a recorded one",
        *(f"screening: at most {n} candidates against today's" for n in rounds),
        f"verdict: at most {search.FINALISTS} against today's, in new blocks",
    ]
    if as_json:
        considered = [Considered.of(each) for each in found]
        print_json({"time_s": time_s, "steps": steps, "facts": facts, "candidates": considered})
        return
    most_s = time_s / search.FEWEST_RUNS
    results.print(f"In {duration(time_s)}, of which one run may take {most_s:.1f} s at most:")
    for step in steps:
        results.print(f"  {step}")
    results.print("\nThe look decides which of these apply.")
    results.print(_rows(found))


def _rows(found: list[Candidate]) -> Table:
    """Return the candidates, together where the reason is the same; of those that do not apply only
    the number."""
    rows = table("", "candidate", "why")
    applying = sorted((each for each in found if each.applies), key=lambda each: not each.tried)
    reasons = dict.fromkeys((each.tried, each.reason) for each in applying)
    for tried, reason in reasons:
        names = [e.name for e in applying if (e.tried, e.reason) == (tried, reason)]
        rows.add_row("try" if tried else "-", ", ".join(names), visible(reason))
    if others := len(found) - len(applying):
        rows.add_row("-", counted(others, "setting"), "not for this program; --json says why")
    return rows


def _show(answer: Answer, files: list[Path]) -> None:
    from heapfit.fit.answer import interval
    from heapfit.fit.deploy import installation, shell_line

    if answer.today:
        results.print(answer.today)
    rows = table(f"vs {answer.baseline}", answer.time_word, "peak memory", "mean memory")
    for each in answer.standings:
        rows.add_row(each.name, *map(interval, (each.time, each.memory, each.mean)))
    if answer.standings:
        results.print(rows)
        results.print("Ratios with 95 % intervals; ~ no difference is shown.", style="dim")
    for decision in answer.decisions:
        results.print(f"{decision.word}: {decision.name}: {decision.why}")
    if answer.not_chosen:
        results.print("\nWhat else was tried", style="bold")
        rows = table("candidate", "until", "why it is not chosen")
        for other in answer.not_chosen:
            rows.add_row(other.name, other.after, visible(other.reason))
        results.print(rows)
    results.print(Text.assemble("\n", (answer.headline, "bold"), f" (goal: {answer.goal})"))
    lines = [*answer.why]
    if answer.study:
        lines.append(f"The evidence: heapfit report {shell_word(answer.study)}")
    for line in lines:
        results.print(line)
    if files:
        results.print("\nDeploy", style="bold")
        for line in installation(files[0].parent):
            results.print(line, soft_wrap=True)
        results.print(shell_line(files[0]), soft_wrap=True)
        results.print(f"How to deploy it, and how to undo that: {files[-1]}", soft_wrap=True)
