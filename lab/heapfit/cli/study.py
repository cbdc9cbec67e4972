"""`heapfit study`: many workloads or designed experiments under the same allocators."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heapfit import catalogue
from heapfit.cli import answer
from heapfit.cli.arguments import AsJson, Install, Mix, On, Out, Seed, command_line, split_list
from heapfit.cli.commands import Group, new_app
from heapfit.cli.output import messages, print_json, results, say, table, warn
from heapfit.cli.progress import ManyProgress, kept_on_interrupt
from heapfit.cli.provide import (
    join_cluster,
    named_allocators,
    provide_allocators,
    provide_programs,
    results_folder,
    started_programs,
    warn_of_malloc,
    with_baseline,
)
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.host.program import STARTERS, started_by
from heapfit.records import StudyDefinition, Workload
from heapfit.study import (
    DEFAULT_SEED,
    ChosenExperiment,
    SeriesPlan,
    execute,
    execute_series,
    plan_series,
    shaped,
)

if TYPE_CHECKING:
    from heapfit.study.cluster import Cluster

app = new_app(cls=Group, epilog="Example:  heapfit study run core --quick")


@app.callback(invoke_without_command=True)
def study(context: typer.Context, as_json: AsJson = False) -> None:
    """Studies of many workloads or of designed experiments: list them, run one."""
    if context.invoked_subcommand is None:
        list_studies(as_json)


@app.command("list", epilog="Example:  heapfit study list")
def list_studies(as_json: AsJson = False) -> None:
    """List the studies that heapfit comes with, and what each asks."""
    known = catalogue.load_studies().values()
    if as_json:
        print_json(list(known))
        return
    rows = table("study", "parts", "allocators", "what it asks")
    for each in known:
        rows.add_row(each.name, _size(each), str(len(each.allocators)), each.question)
    results.print(rows)


def _size(definition: StudyDefinition) -> str:
    """Say how many of each kind of part a study has."""
    counts = {
        "workload": len(definition.workloads),
        "probe": len(definition.probes),
        "experiment": len({each.family or each.name for each in definition.experiments}),
    }
    return ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in counts.items() if n)


@app.command("run", epilog="Example:  heapfit study run core --allocators glibc,heapfit,jemalloc")
def run(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A study of heapfit's, or a TOML file.")
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="Few replicates, no warm-ups, no probes: a first look.")
    ] = False,
    allocators: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Names, heapfit:decay_ms=100, mine=./lib.so, or `installed`. Default: the "
            "study's.",
        ),
    ] = None,
    workloads: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Run only these of the study's parts (workloads, probes, experiments).",
        ),
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Measured runs of each allocator, at each setting, including in probes.",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of cores. Default: the experiment's, else all, one fewer for a server.",
        ),
    ] = None,
    probes: Annotated[
        bool | None,
        typer.Option(
            "--probes/--no-probes",
            help="Also run the probes. Default: yes, unless --quick is given.",
        ),
    ] = None,
    seed: Seed = DEFAULT_SEED,
    out: Out = None,
    on: On = None,
    mix: Mix = False,
    install: Install = False,
    as_json: AsJson = False,
) -> None:
    """Run a study. Print ratios to the best peer, and write a page per workload and one for all.

    For designed experiments, the analysis is shown. If it was interrupted, the same command
    continues where it stopped; more replicates or parts extend it. A part that fails is reported at
    the end and does not stop the others.
    """
    definition = _shaped(catalogue.resolve_study(name), quick, replicates)
    with_probes = not quick if probes is None else probes
    parts = _chosen(definition, workloads, with_probes)
    every = catalogue.allocators_of(definition)
    compared = parts.compared(every)
    usual = catalogue.libraries_of(definition, compared)
    named = with_baseline(named_allocators(allocators, usual, installed=False), definition.baseline)
    # Where each part compares its own, the names that these parts need are not those of the others.
    spelt_out = [] if allocators is None and compared != every else named
    libraries = catalogue.libraries_of(definition, named)
    provided = provide_allocators(list(dict.fromkeys(libraries.values())), install=install)
    installed = catalogue.with_variants(definition, libraries, provided)
    if workloads is None:
        parts, others = parts.comparing([each.name for each in installed])
        for each in others:
            warn(f"note: {each} is left out: it compares none of the allocators named")
    for each in [] if allocators is None else parts.ignored([each.name for each in installed]):
        warn(f"note: {each} is compared by none of these parts{' in the quick form' * quick}")
    cluster = join_cluster(on, install=install)
    if cluster is None:
        provide_programs(parts.programs, install=install)
    plan = plan_series(
        definition,
        parts.workloads,
        parts.probes,
        parts.experiments,
        installed,
        cores=cores,
        seed=seed,
        command=_command_line(context.params, spelt_out),
    )
    if cluster:
        plan = plan.with_studies(cluster.adopt(plan.studies))
    folder = out or results_folder(definition.name + ("-quick" if quick else ""), plan.done_in)
    for workload in parts.programs:
        started = filter(None, map(started_by, started_programs(workload)))
        warn_of_malloc(f"{each}" for each in started if each.name not in STARTERS)
    for note in plan.notes:
        warn(f"note: {note}")
    problems = _measure(plan, folder, parts.programs, cluster, mix)
    answer.show_series(folder, as_json=as_json)
    if problems:
        raise typer.Exit(HeapfitError.exit_code)


def _shaped(definition: StudyDefinition, quick: bool, replicates: int | None) -> StudyDefinition:
    """Return the study with as many replicates as are asked for, and its experiments made whole."""
    changed: dict[str, object] = {}
    if quick:
        changed = {"replicates": definition.quick_replicates, "warmups": 0}
    if replicates is not None:
        changed |= {"replicates": replicates, "probe_replicates": replicates}
    changed["experiments"] = [
        shaped(each, definition, quick=quick, replicates=replicates)
        for each in definition.experiments
        if not (quick and each.quick.workloads) or each.workload in each.quick.workloads
    ]
    return definition.model_copy(update=changed)


@dataclass(frozen=True)
class _Parts:
    """What of a study is to run."""

    workloads: list[Workload]
    probes: list[Workload]
    experiments: list[ChosenExperiment]

    @property
    def programs(self) -> list[Workload]:
        """The workloads of all parts, each once."""
        of_experiments = [each.workload for each in self.experiments]
        every = [*self.workloads, *self.probes, *of_experiments]
        return list({workload.name: workload for workload in every}.values())

    def compared(self, named: list[str]) -> list[str]:
        """Return those of the study's allocators that any part compares, as the study names them.

        What only others compare need not be installed.
        """
        if self.workloads or self.probes:
            return named
        wanted: set[str] = set()
        for each in self.experiments:
            wanted |= set(each.allocators or named)
        return [word for word in named if {word, catalogue.name_of(word)} & wanted]

    def ignored(self, allocators: list[str]) -> list[str]:
        """Return those of `allocators` that no part compares: the levels of all leave them out."""
        if self.workloads or self.probes or not all(each.allocators for each in self.experiments):
            return []
        wanted = {name for each in self.experiments for name in each.allocators}
        if wanted.isdisjoint(allocators):
            return []  # The plan says what is wrong.
        return [name for name in allocators if name not in wanted]

    def comparing(self, allocators: list[str]) -> tuple[_Parts, list[str]]:
        """Return these parts without the experiments that compare none of `allocators`, and the
        names of those."""
        kept: list[ChosenExperiment] = []
        others: list[ChosenExperiment] = []
        for each in self.experiments:
            levels = each.allocators or allocators
            (kept if set(levels) & set(allocators) else others).append(each)
        if not kept and not self.workloads and not self.probes:
            kept, others = others, []  # The plan says what is wrong.
        return replace(self, experiments=kept), [each.experiment.name for each in others]


def _chosen(definition: StudyDefinition, names: str | None, with_probes: bool) -> _Parts:
    """Return the parts to run. A workload's name is as the study writes it."""
    by_name = {each.name: each for each in definition.experiments}
    families = {each.family for each in definition.experiments if each.family}
    known = [*definition.workloads, *definition.probes, *by_name]
    wanted = split_list(names) if names is not None else known
    if names is None and not with_probes:
        wanted = [*definition.workloads, *by_name]
    for each in wanted:
        if each not in known and each not in families:
            raise unknown(f"workload of {definition.name}:", each, [*known, *families])
    if not wanted:
        raise UsageError("--workloads names none")
    workloads = [each for each in definition.workloads if each in wanted]
    probes = [each for each in definition.probes if each in wanted]
    experiments = [e for name, e in by_name.items() if name in wanted or e.family in wanted]
    of_experiments = [each.workload for each in experiments]
    found = iter(catalogue.workloads_of(definition, [*workloads, *probes, *of_experiments]))
    return _Parts(
        workloads=list(itertools.islice(found, len(workloads))),
        probes=list(itertools.islice(found, len(probes))),
        experiments=list(map(ChosenExperiment, experiments, found)),
    )


def _measure(
    plan: SeriesPlan,
    folder: Path,
    workloads: list[Workload],
    cluster: Cluster | None,
    mix: bool,
) -> dict[str, str]:
    """Prepare the data of all workloads, then run the study; return what went wrong, by name.

    The machines of a cluster make the data that they need.
    """
    planned = sum(len(each.plan) for each in plan.studies)
    done = {name: len(trials) for name, trials in plan.done_in(folder).items()}
    if any(done.values()):
        say(f"{sum(done.values())} of {planned} trials are already done")
    data, unprepared = _prepare([] if cluster else workloads)
    run = partial(cluster.execute if cluster else execute, mix=mix)
    progress = ManyProgress(messages, planned, done)
    with kept_on_interrupt(progress, folder):
        return execute_series(plan, folder, progress, data, unprepared, run)


def _prepare(workloads: list[Workload]) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the data folders, and of those that could not be made the reason."""
    data: dict[str, Path] = {}
    problems: dict[str, str] = {}
    for workload in workloads:
        try:
            if workload.prepare:
                data[workload.name] = catalogue.prepare_workload(workload, say)
        except HeapfitError as error:
            problems[workload.name] = str(error)
    return data, problems


def _command_line(given: Mapping[str, Any], named: list[str]) -> str:
    """Return the command line that repeats the study, of those that were `given`."""
    options = {each: given[each] for each in ("quick", "replicates", "seed", "cores", "out", "on")}
    return command_line("study", "run", given["name"], allocators=",".join(named), **options)
