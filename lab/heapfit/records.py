"""The records that the lab's parts exchange and keep on disk.

A workload comes from a TOML file, an allocator from the catalogue's TOML files; a study's plan
is `study.json` and each finished trial is one line of `trials.jsonl` in the study's folder.
Everything here is plain data: it knows how to check itself and nothing else. Sizes are bytes,
times are seconds unless the name says otherwise.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all records: an unknown key is an error, so that a typo in a TOML file is seen."""

    # JSON has no infinite numbers; a bound that is none is written as a word, and read again.
    model_config = ConfigDict(
        extra="forbid", frozen=True, ser_json_inf_nan="strings", defer_build=True
    )


# ------------------------------------------------------------------ allocators


class AllocatorBuild(Record):
    """How a library is made from a package's source. `{source}` in the commands is the unpacked
    package, `{project}` a Cargo project that depends on it, `{here}` the folder of the catalogue's
    TOML files, `{library}` the file to make."""

    debian: list[str] = []  # packages that the commands need
    commands: list[list[str]]  # run in turn, in an empty folder
    # By machine (as `uname -m` says): words that replace the word `{machine}`.
    machine_arguments: dict[str, list[str]] = {}


class AllocatorSource(Record):
    """Where an allocator's shared library comes from. Exactly one kind of source; `by-hand` is one
    that no registry has and that its note says how to add."""

    kind: Literal["system", "heapfit", "debian", "pypi", "crate", "file", "by-hand"]
    package: str | None = None
    version: str | None = None
    # Name (or glob) of the library within the package; None: nothing is preloaded. `{machine}`
    # stands for the machine as `uname -m` says it.
    library: str | None = None
    build: AllocatorBuild | None = None


class AllocatorSetting(Record):
    """Something that an allocator's manual lets one set, and that `heapfit fit` tries.

    `when` are conditions on what the program does (`fit.facts`), all of which must hold for the
    setting to be worth a try."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    gives: Literal["time", "memory", "both"]  # what it may save
    trades: str  # what that costs, half a sentence
    why: str  # one sentence
    when: list[str] = []
    environment: dict[str, str] = {}
    options: dict[str, str] = {}  # options of heapfit's


class Allocator(Record):
    """An entry of the catalogue, before anything is known about this machine."""

    name: str
    title: str
    homepage: str | None = None
    source: AllocatorSource
    environment: dict[str, str] = {}
    note: str = ""
    settings: list[AllocatorSetting] = []
    by_call_site: bool = False  # it goes by who allocates, which a replay does not have
    when_named: bool = False  # it has another purpose than speed: compared only where it is named


class InstalledAllocator(Record):
    """An allocator that can be used on this machine, or a study's variant of one.

    A variant has a name and a title of its own, and the library of the allocator that it is of.
    What it sets goes before what the workload has by default.
    """

    name: str
    title: str
    version: str
    library: Path | None  # goes into LD_PRELOAD; None for the system's own
    sha256: str | None = None
    environment: dict[str, str] = {}
    # The allocator as it is without what a variant sets.
    variant_of: InstalledAllocator | None = None
    program: str | None = None  # of several builds that are compared, the name of this one
    parameters: dict[str, str] = {}  # of the workload, those that a variant sets
    options: dict[str, str] = {}  # options of heapfit's, likewise
    # The recorder's settings, likewise; None: nothing is recorded.
    record: dict[str, str] | None = None
    wrapper: list[str] = []  # words before the program's own, likewise: a tool that starts it


# ------------------------------------------------------------------- workloads


class WorkloadInstall(Record):
    debian: list[str] = []
    programs: list[str] = []  # commands that must be on PATH once installed
    large: bool = False  # takes gigabytes: heapfit's own tests use it only where it is installed


class WorkloadPrepare(Record):
    """Made once per version and kept in the data folder. `{data}`, `{here}` are substituted."""

    command: list[str]
    version: int = 1


class WorkloadServer(Record):
    """A server that runs under the allocator while `run.command` drives it from outside."""

    command: list[str]
    # `tcp:PORT`: ready when it accepts; `started`: at once, of a program that needs no load.
    ready: str = "tcp:{port}"
    ready_timeout_s: float = 20.0


class WorkloadRun(Record):
    """What is timed. Placeholders: `{data}` prepared data, `{here}` the TOML's folder, `{scratch}`
    an empty folder per trial, `{port}` a free port on loopback, `{cores}` this trial's cores, and
    the name of each of the workload's parameters."""

    command: list[str]
    environment: dict[str, str] = {}
    stdin: str | None = None  # a file fed to standard input
    timeout_s: float = 300.0


class WorkloadCheck(Record):
    """How a trial's output is judged. `stdout` and `files` are compared with the baseline's."""

    stdout: Literal["same", "ignore"] = "same"
    files: list[str] = []
    must_match: str | None = None  # a regular expression that standard output must contain
    exit_code: int = 0


class WorkloadMetric(Record):
    """A figure read from the standard output of `run.command` by `pattern`'s first group.

    Where the pattern matches more than once, `combine` says what becomes of the figures."""

    name: str
    label: str
    unit: str
    pattern: str
    better: Literal["lower", "higher"]
    combine: Literal["sum", "mean", "geometric-mean", "last"] = "mean"
    optional: bool = False  # may be missing: not every machine, or parameter, gives it


class CommandMetric(Record):
    """A figure that a command prints, run when the trial's program has ended. The command has the
    placeholders of `WorkloadRun`, and `{stdout}`, the file with the program's standard output."""

    name: str
    label: str
    unit: str
    command: list[str]
    better: Literal["lower", "higher"]


class Workload(Record):
    """A program to compare allocators on."""

    name: str
    title: str
    question: str  # what this workload asks of an allocator, one sentence
    install: WorkloadInstall = WorkloadInstall()
    prepare: WorkloadPrepare | None = None
    server: WorkloadServer | None = None
    run: WorkloadRun
    check: WorkloadCheck = WorkloadCheck()
    parameters: dict[str, str] = {}  # what a study may vary (threads, sizes): name to default value
    metrics: list[WorkloadMetric] = []
    command_metrics: list[CommandMetric] = []
    primary_metric: str = "wall_s"
    here: Path = Path(".")  # folder of the TOML file; set by the loader

    @property
    def fixes_duration(self) -> bool:
        """Whether a trial runs the server for as long as a sleep takes: it has no client, and wall
        time says nothing of it."""
        return self.server is not None and Path(self.run.command[0]).name == "sleep"


# -------------------------------------------------------------- metrics, trials


class Metric(Record):
    """What a figure of a trial means."""

    name: str
    label: str
    unit: Literal["s", "bytes", "count", "1/s"] | str
    better: Literal["lower", "higher"]
    source: str  # how it is measured, for the report


# These may be nil for a program, and then have no ratio, so that of them the difference is the
# subject throughout: a ratio here and a difference there could not be compared.
CAN_BE_ZERO = frozenset(
    {
        "system_s",
        "minor_faults",
        "major_faults",
        "voluntary_switches",
        "involuntary_switches",
        "fragmentation_events",
    }
)


class TrialStatus(StrEnum):
    OK = "ok"
    FAILED = "failed"  # wrong exit code, killed by a signal, could not start
    TIMEOUT = "timeout"
    MISMATCH = "mismatch"  # printed something else than its reference


# The factors that every study has; `Factor` says what others there may be.
ALLOCATOR = "allocator"
CORES = "cores"

# How the names of those factors begin that are no parameter of the workload.
OPTION_PREFIX = "option."
ENVIRONMENT_PREFIX = "env."

# One combination of the levels of all factors but the allocator: the cores, then each further
# factor with its level. Trials are compared within a setting.
Setting = tuple[int, tuple[tuple[str, str], ...]]


class Factor(Record):
    """Something that a study varies. `name` is one of

    - `allocator`, `cores`,
    - a parameter of the workload: its placeholder becomes the level,
    - `option.NAME`: an option of heapfit's (the trials of other allocators ignore it),
    - `env.NAME`: an environment variable of the program; an empty level leaves it unset.
    """

    name: str
    levels: list[str] = Field(min_length=1)


class PlannedTrial(Record):
    """One cell of a study at one replicate. `index` is its place in the random order."""

    index: int
    block: int  # every cell runs once within a block, in random order
    replicate: int
    allocator: str
    cores: int
    levels: dict[str, str] = {}  # of each further factor, its level
    warmup: bool = False

    def level(self, factor: str) -> str:
        """Return the level of `factor` in this trial."""
        if factor == ALLOCATOR:
            return self.allocator
        return str(self.cores) if factor == CORES else self.levels[factor]

    @cached_property
    def setting(self) -> Setting:
        """What this trial has in common with those that its figures are compared with."""
        return self.cores, tuple(self.levels.items())


class Trial(Record):
    """A finished trial: one line of `trials.jsonl`."""

    planned: PlannedTrial
    status: TrialStatus
    reason: str = ""
    started: datetime
    exit_code: int | None = None
    metrics: dict[str, float] = {}
    output_sha256: str | None = None
    stderr_tail: str = ""
    threads: int | None = None  # of one process, the most that were seen at the same time
    left_running: int = 0  # processes of the program that outlived it
    machine: str | None = None  # the machine of a study on many; it is a block of the analysis
    took_s: float | None = None  # the whole trial, with what goes before and after the program

    @property
    def block(self) -> tuple[str | None, int]:
        """What this trial shares with those that its figures are set against: machine and time.

        A machine that is lost in the middle of a block leaves the rest of it to another.
        """
        return self.machine, self.planned.block


# --------------------------------------------------------------------- studies


class Machine(Record):
    """The machine that a study ran on, as far as it matters to its figures."""

    hostname: str
    cpu: str
    cores: int
    memory_bytes: int
    kernel: str
    distribution: str
    libc: str
    governor: str | None = None
    virtual: str | None = None
    huge_pages: str | None = None
    swap_bytes: int = 0
    notes: list[str] = []


# What a recommendation weighs where weights are given.
Weighed = Literal["time", "memory", "fragmentation", "mean-memory"]


class StoppingRule(Record):
    """When a study has replicates enough, in place of their number; both: whichever comes first."""

    precision: float | None = None  # how far intervals may reach to either side, 0.02 for 2 %
    max_time_s: float | None = None  # of all trials together


class MeasuredFile(Record):
    """A file that is part of what is measured, as it was found."""

    of: str  # the program or the allocator that it belongs to, by name
    # `file`: named on the command line, and neither program nor script.
    role: Literal["program", "client", "interpreter", "script", "file", "library", "allocator"]
    path: Path
    sha256: str | None  # None: too large to be read, or unreadable
    # Inode, size, times of content and of status in ns: all alike, it is the same.
    stamp: tuple[int, ...]


class Identity(Record):
    """What trials measured beyond what the command line says.

    A treatment is a program under an allocator: each has its files by name, so that a study may
    have several of either. The rest is common to all.
    """

    files: list[MeasuredFile]
    environment: dict[str, str]  # inherited variables that steer an allocator
    system: dict[str, str]  # kernel, huge pages and the like, by name
    # By program: a library that it is linked with and that brings a malloc, and so is what runs
    # where nothing is preloaded.
    linked_allocators: dict[str, Path] = {}


class Session(Record):
    """Trials that measured one and the same thing, from the one with number `first` on."""

    began: datetime
    first: int  # how many trials the journal had before
    machine: str | None = None  # of a study on many machines
    identity: Identity


class PublishedTable(Record):
    """A table of a paper, shown beside our own figures of `metric`."""

    title: str
    source: str  # the paper and its table or figure
    metric: str
    columns: list[str]
    rows: list[list[str]]  # as printed; a row's first cell names it
    note: str = ""  # why ours may differ: machines, versions, years


MOST_COMPARED_SETTINGS = 100


class Study(Record):
    """A study's plan: `study.json`. Everything needed to resume or to repeat it."""

    schema_version: Literal[1] = 1
    heapfit_version: str
    created: datetime
    name: str
    title: str
    command: list[str]  # the command under study (of the workload, unexpanded)
    workload: Workload
    allocators: list[InstalledAllocator]
    baseline: str
    cores: list[int]
    factors: list[Factor] = []  # beyond the allocators and the cores
    # What is set and not varied, by name as of a `Factor`; a parameter of the workload that is not
    # named here has its default.
    parameters: dict[str, str] = {}
    replicates: int  # with a stopping rule those that are planned so far
    rule: StoppingRule | None = None
    # Whether figures said at some earlier time when it had enough, though it now has a number.
    was_stopped: bool = False
    warmups: int
    seed: int
    timeout_s: float
    metrics: list[Metric]
    primary_metric: str
    shown: list[str] = []  # names of the metrics to show and analyse; none: the primary one
    weights: dict[str, float] = {}  # what counts how much in the recommendation; none: all the same
    machine: Machine
    # What was measured. More than one of a machine: it has changed on the way, and `--mix` went on.
    # None: nothing is measured yet.
    sessions: list[Session] = []
    plan: list[PlannedTrial]
    reproduce: str  # the command line that repeats this study ...
    directory: str = ""  # ... in this folder, which its paths count from
    published: list[PublishedTable] = []

    def allocator(self, name: str) -> InstalledAllocator:
        """Return the allocator of this name, which the study has."""
        return next(each for each in self.allocators if each.name == name)

    @cached_property
    def programs(self) -> list[str]:
        """The builds that are compared, by name; none where allocators are."""
        return list(dict.fromkeys(each.program for each in self.allocators if each.program))

    @property
    def stops_by_figures(self) -> bool:
        """Whether figures say, or have said, when it has enough: verdicts are adjusted for that."""
        return self.was_stopped or (self.rule is not None and self.rule.precision is not None)

    @property
    def control(self) -> str | None:
        """The treatment whose comparisons with the others are a family of their own; None: none."""
        return self.baseline

    @property
    def noun(self) -> str:
        """What a treatment is, in a word."""
        allocators = {each.variant_of.name for each in self.allocators if each.variant_of}
        if not self.programs:
            return "allocator"
        return "program" if len(allocators) == 1 else "combination"

    def reference_of(self, treatment: str) -> str:
        """Return whose output is the right one: the baseline's, or of several builds, each of which
        may print something else, the same one's under the first allocator."""
        program = self.allocator(treatment).program
        same = (each.name for each in self.allocators if each.program == program)
        return self.baseline if program is None else next(same)

    def design(self) -> list[Factor]:
        """Return every factor with its levels, `allocator` and `cores` first."""
        allocators = [allocator.name for allocator in self.allocators]
        return [
            Factor(name=ALLOCATOR, levels=allocators),
            Factor(name=CORES, levels=[str(cores) for cores in self.cores]),
            *self.factors,
        ]

    @cached_property
    def planned(self) -> Counter[tuple[str, Setting, bool]]:
        """How many trials of each cell (allocator, setting, whether a warm-up) the plan has."""
        # Not `setting`: keeping it in a hundred thousand trials takes longer than counting them.
        return Counter(
            (each.allocator, (each.cores, tuple(each.levels.items())), each.warmup)
            for each in self.plan
        )

    @property
    def is_of_one(self) -> bool:
        """Whether one allocator alone is measured in several settings, which are then compared.

        Of hundreds of settings the pairs would be too many to read, and to adjust for.
        """
        return len(self.allocators) == 1 and 1 < len(self.settings()) <= MOST_COMPARED_SETTINGS

    def settings(self) -> list[Setting]:
        """Return every setting of the design, in the order of a table."""
        names = [factor.name for factor in self.factors]
        combinations = list(product(*(factor.levels for factor in self.factors)))
        return [
            (cores, tuple(zip(names, levels, strict=True)))
            for cores in self.cores
            for levels in combinations
        ]


# ------------------------------------------------------- studies of many workloads


# In place of a metric's name: each workload's own primary metric.
PRIMARY = "primary"


class FigureDefinition(Record):
    """How parts of a study become one number for each allocator.

    Each allocator's cost on a part is set against that of the best of its `peers` there; where one
    peer is named, that is the reference everywhere.
    """

    name: str
    title: str
    metric: str  # a metric's name, or `primary`: each part's own
    experiments: list[str] = []  # those that it is about; none: the study's `workloads`
    subject: str | None = None  # None: the study's
    peers: list[str] = []  # None: all but the subject
    reference: Literal["best-peer"]
    combine: Literal["geometric-mean"]
    goal: float | None = None  # bounds the subject's combined ratio
    best_goal: float | None = None  # bounds its best single part
    worst_goal: float | None = None  # bounds its worst single part
    published: list[PublishedTable] = []


# Names of studies and of their parts are names of folders too.
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Quick(Record):
    """What `--quick` changes of an experiment."""

    # Fewer levels of factors that the experiment has.
    factors: dict[str, list[str | int | float]] = {}
    parameters: dict[str, str | int | float] = {}
    replicates: int | None = Field(default=None, ge=1)
    workloads: list[str] = []  # of an experiment with several, these; none: all


class Experiment(Record):
    """One workload under a full factorial design: a part of a study.

    A file may name several `workloads` instead. Then each is a part, called `NAME.WORKLOAD`.
    """

    name: str = Field(pattern=_NAME)
    title: str = ""
    workload: str = ""  # a name of heapfit's, or a path from the study's folder
    workloads: list[str] = []
    family: str = ""  # the experiment that this is one workload's part of; by the loader
    # By name (see `Factor`), in the order of the report. `allocator` is the study's allocators and
    # `cores` what suits the workload unless they are given.
    factors: dict[str, list[str | int | float]] = {}
    # What is set and not varied, by name as of a factor.
    parameters: dict[str, str | int | float] = {}
    metrics: list[str] = []  # shown and analysed; none: the primary one
    primary_metric: str | None = None
    replicates: int | None = Field(default=None, ge=1)  # None: the study's
    warmups: int | None = Field(default=None, ge=0)
    timeout_s: float | None = Field(default=None, gt=0)
    quick: Quick = Quick()
    published: list[PublishedTable] = []


class Variant(Record):
    """A treatment that is more than a library: an allocator together with what the program is told.

    Its name stands wherever a study names allocators, and is a level of the factor `allocator`.
    """

    name: str = Field(pattern=_NAME)
    title: str  # what it is, for the reports
    allocator: str  # named as in the study's `allocators`
    environment: dict[str, str] = {}  # variables of the program that runs under the allocator
    parameters: dict[str, str | int | float] = {}  # of the workload, by name
    # Options of heapfit's, which must be the allocator then.
    options: dict[str, str | int | float] = {}
    # The program runs under heapfit's recorder with these settings of HEAPFIT_RECORD_OPTIONS; an
    # empty table: with its defaults.
    record: dict[str, str | int] | None = None
    # A tool that starts the program, as words before the program's own. `{study}` is the folder of
    # the study's file; the workload's placeholders are known.
    wrapper: list[str] = []


class StudyDefinition(Record):
    """A study as its TOML file says: of many workloads (`studies/core.toml`), of designed
    experiments (`studies/trading.toml`), or of both. Those files explain the keys."""

    name: str = Field(pattern=_NAME)
    title: str
    question: str
    workloads: list[str] = []
    experiments: list[Experiment] = []
    probes: list[str] = []
    variants: list[Variant] = []
    allocators: list[str] = Field(min_length=2)  # those of variants among them
    baseline: str
    subject: str
    replicates: int = Field(ge=1)
    quick_replicates: int = Field(default=2, ge=1)
    probe_replicates: int = Field(default=1, ge=1)
    warmups: int = Field(default=1, ge=0)
    metrics: list[str] = []
    figures: list[FigureDefinition] = []
    # Weights of the recommendation, by goal.
    weights: dict[Weighed, float] = {}
    here: Path = Path(".")  # folder of the TOML file; set by the loader

    def subject_of(self, figure: FigureDefinition) -> str:
        """Return the allocator that `figure` is about."""
        return figure.subject or self.subject

    def experiments_of(self, figure: FigureDefinition) -> list[Experiment]:
        """Return the parts that `figure` is about where it names experiments."""
        return [
            each for each in self.experiments if (each.family or each.name) in figure.experiments
        ]


class Series(Record):
    """A study of many parts as it runs: `series.json`. Each workload, probe and experiment has a
    `Study` of its own in a folder of its name beside it."""

    schema_version: Literal[1] = 1
    heapfit_version: str
    created: datetime
    definition: StudyDefinition
    workloads: list[str]  # names of those asked for so far, in order
    probes: list[str]
    experiments: list[str] = []
    allocators: list[InstalledAllocator]
    machine: Machine
    command: str  # the command line that repeats this study, up to the choice of workloads


# --------------------------------------------------------------------- results


# A difference of which chance makes as much, or more, less often than that is shown.
SIGNIFICANT = 0.05


class Estimate(Record):
    """A median with its interval, of one metric in one cell of the design."""

    allocator: str
    cores: int
    levels: dict[str, str] = {}  # of each further factor, its level
    metric: str
    n: int
    median: float
    low: float
    high: float
    minimum: float
    maximum: float


# What is compared of two treatments: the ratio of their geometric means, or, of a metric that can
# be zero, the difference of their means.
Subject = Literal["ratio", "difference"]


class Verdict(Record):
    """What the trials show of two allocators in one metric: made by `statistics.verdict` alone.

    In a study of one allocator it is of two settings, which `first` and `second` then name. Marks,
    sentences, letters, recommendations and goals are read from verdicts.
    """

    metric: str
    first: str
    second: str
    at: dict[str, str]  # the levels of the setting, the cores among them; none: over all settings
    subject: Subject
    estimate: float  # ratio of first to second, or first less second
    # 95 % interval, simultaneous over the pair's family: the pairs with the baseline, or all pairs.
    # None: too few blocks.
    low: float | None
    high: float | None
    p: float | None  # adjusted for the same family, of the metric in the setting
    blocks: int  # those in which both have a figure
    absolute: float  # first less second in the metric's unit; over settings, the mean of theirs
    absolute_low: float | None  # the interval, in the metric's unit
    absolute_high: float | None
    trivial: bool  # whether all of the interval is too little to matter
    matters: bool  # whether none of the interval is too little to matter
    method: str

    @property
    def told(self) -> bool:
        """Whether there were blocks enough to say anything."""
        return self.p is not None

    @property
    def shown(self) -> bool:
        """Whether a difference is shown: the interval excludes equality."""
        return self.p is not None and self.p < SIGNIFICANT

    @property
    def counts(self) -> bool:
        """Whether a difference is shown that is also shown to matter."""
        return self.shown and self.matters

    @property
    def contradicts(self) -> bool:
        """Whether the ratio over the settings says the opposite of their differences."""
        is_opposite = self.subject == "ratio" and self.beyond * self.absolute < 0
        return self.shown and is_opposite and not self.trivial

    @property
    def beyond(self) -> float:
        """How far the estimate is from equality; below zero where first has the smaller figure."""
        return self.estimate - 1.0 if self.subject == "ratio" else self.estimate

    def turned(self) -> Verdict:
        """Return the same of second to first."""
        own = dict(self)
        own["first"], own["second"] = self.second, self.first
        own["estimate"] = self._turned(self.estimate)
        own["low"], own["high"] = self._turned(self.high), self._turned(self.low)
        own["absolute"] = -self.absolute
        own["absolute_low"] = self.absolute_high and -self.absolute_high
        own["absolute_high"] = self.absolute_low and -self.absolute_low
        # What is checked already is not checked again: a report turns a hundred thousand of them.
        return Verdict.model_construct(**own)

    def _turned(self, value: float | None) -> float | None:
        if value is None or self.subject == "difference":
            return value and -value
        return 1 / value if value else float("inf")


class MachineDifference(Record):
    """How what two allocators are to each other differs between two machines of a study."""

    metric: str
    first: str
    second: str
    subject: Subject
    on: dict[str, float]  # by machine: the ratio, or difference, there
    estimate: float  # the one as a ratio to the other, or less it
    low: float  # 95 % interval, simultaneous over pairs and machines
    high: float
    p: float

    @property
    def shown(self) -> bool:
        return self.p < SIGNIFICANT


class Precision(Record):
    """How far the widest of the intervals that matter reaches: of which pair, metric and place."""

    reached: float  # to either side of a ratio, 0.02 for 2 %; infinite: untold
    metric: str
    first: str
    second: str
    at: dict[str, str]
    blocks: int


class Summary(Record):
    """What a report shows: made from a study and its trials, never stored apart from them."""

    study: Study
    estimates: list[Estimate]
    # Setting by setting: of the metrics that are analysed, all pairs; of the others, each allocator
    # to the baseline.
    verdicts: list[Verdict]
    trials_done: int
    trials_planned: int
    problems: list[Trial]  # every trial that is not `ok`
    precision: Precision | None = None  # of a study that was to reach one; None: nothing to compare
    machines: list[MachineDifference] = []  # of what decides, where several machines took part
    looks: list[int] = []  # after how many blocks a verdict was shown, and is now
    other_output: list[str] = []  # of several programs, those that print other than the first
    trials_outlived: int = 0  # how many good trials left a process running in the background


class Combined(Record):
    """What an allocator's ratios over all workloads of a series come to."""

    geometric_mean: float
    low: float | None  # 95 % interval; None with too few replicates for one
    high: float | None
    best: float
    best_low: float | None  # the smallest lower bound of all its verdicts
    best_high: float | None  # the smallest upper bound
    best_workload: str
    worst: float
    worst_low: float | None  # the largest lower bound of all its verdicts
    worst_high: float | None  # the largest upper bound
    worst_workload: str


class PeerComparison(Record):
    """One figure of a series: each allocator's ratio to the best peer of each workload.

    Above 1 is worse. Unless the figure names its peers, a peer is every allocator but the subject,
    so only the subject can be below 1.
    """

    definition: FigureDefinition
    best_peer: dict[str, str]  # by workload
    ratios: dict[str, dict[str, float]]  # by workload, then by allocator
    # By allocator; only those that have a ratio on every workload of the figure.
    combined: dict[str, Combined]


class SeriesSummary(Record):
    """What the report of a series shows: made from its folder, never stored apart from it."""

    series: Series
    figures: list[PeerComparison]
    workloads: dict[str, Summary]  # of each workload measured, finished or not
    probes: dict[str, Summary]
    experiments: dict[str, Summary] = {}
    # Why a workload could not be measured, by its name. Failed trials of an allocator are in its
    # summary.
    problems: dict[str, str]
