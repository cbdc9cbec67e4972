"""Plan a study of many parts: workloads, probes, and experiments.

An experiment is one workload under a full factorial design. What its file leaves open is filled in
here: the allocators and replicates are the study's, the cores what suits the workload. `--quick`
puts the smaller levels in place of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import heapfit
from heapfit.errors import UsageError, unknown
from heapfit.records import (
    ALLOCATOR,
    CORES,
    PRIMARY,
    Experiment,
    Factor,
    InstalledAllocator,
    Series,
    Study,
    StudyDefinition,
    Trial,
    Workload,
)
from heapfit.study.journal import check_takes
from heapfit.study.plan import default_cores, plan, remarks
from heapfit.trial import METRIC_NAMES, find_metric, unavailable_metrics
from heapfit.trial.cores import allowed_cpus

# As TOML has them.
Level = str | int | float


@dataclass(frozen=True)
class ChosenExperiment:
    """An experiment of a study, with the workload that it names."""

    experiment: Experiment
    workload: Workload

    @property
    def allocators(self) -> list[str]:
        """The names of the allocators that it compares; empty where these are the study's."""
        return _texts(self.experiment.factors.get(ALLOCATOR, []))


@dataclass(frozen=True)
class SeriesPlan:
    """What to run: the studies in their order, and the record that goes into the folder.

    `notes` say what of the study's file this machine cannot give."""

    series: Series
    studies: list[Study]
    notes: list[str]

    def with_studies(self, studies: list[Study]) -> SeriesPlan:
        """Return this plan for the machine that `studies`, the same otherwise, are to run on."""
        series = self.series.model_copy(update={"machine": studies[0].machine})
        return replace(self, series=series, studies=studies)

    def done_in(self, folder: Path) -> dict[str, list[Trial]]:
        """Return the trials that `folder` already has, by part; UsageError if it holds another
        study. Changes nothing on disk."""
        return {study.name: check_takes(folder / study.name, study) for study in self.studies}


def plan_series(
    definition: StudyDefinition,
    workloads: Sequence[Workload],
    probes: Sequence[Workload],
    experiments: Sequence[ChosenExperiment],
    allocators: Sequence[InstalledAllocator],
    *,
    cores: int | None,
    seed: int,
    command: str,
) -> SeriesPlan:
    """Return the plan of `definition`, of these `workloads`, `probes` and `experiments` alone.

    `cores` defaults to what suits each workload, or to an experiment's own levels. `command` is the
    command line that repeats the study, up to the choice of parts. The experiments are as `shaped`
    returns them. Raises `UsageError` for what makes no sense, `HeapfitError` for a figure that this
    machine cannot give.
    """
    _check(definition, allocators)
    studies = [
        plan(
            workload,
            allocators,
            baseline=definition.baseline,
            cores=[cores or default_cores(workload)],
            replicates=definition.probe_replicates if is_probe else definition.replicates,
            warmups=0 if is_probe else definition.warmups,
            seed=seed,
            reproduce=f"{command} --workloads {workload.name}",
            measured=[*_figure_metrics(definition), *definition.metrics],
        )
        for is_probe, those in ((False, workloads), (True, probes))
        for workload in those
    ]
    notes = []
    for chosen in experiments:
        study = _plan_experiment(
            chosen, definition, allocators, cores=cores, seed=seed, command=command
        )
        studies.append(study)
        notes += [f"{study.name}: {note}" for note in (*_left_out(chosen, study), *remarks(study))]
    names = [study.name for study in studies]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:  # Each part has a folder of its name.
        raise UsageError(f"two parts of the study are called {twice!r}")
    series = Series(
        heapfit_version=heapfit.__version__,
        created=datetime.now(UTC),
        definition=definition,
        workloads=[workload.name for workload in workloads],
        probes=[probe.name for probe in probes],
        experiments=[chosen.experiment.name for chosen in experiments],
        allocators=list(allocators),
        machine=studies[0].machine,
        command=command,
    )
    return SeriesPlan(series, studies, notes)


def _check(definition: StudyDefinition, allocators: Sequence[InstalledAllocator]) -> None:
    if all(allocator.name == definition.subject for allocator in allocators):
        raise UsageError(f"{definition.subject} alone has no peers; name another allocator too")
    for name in _figure_metrics(definition):
        find_metric(name)  # An error where there is none, or not on this machine.
    for name in definition.metrics:
        if name not in METRIC_NAMES:
            raise unknown("metric", name, METRIC_NAMES)


def _figure_metrics(definition: StudyDefinition) -> list[str]:
    """Return the metrics of the figures of the workloads, without each workload's own."""
    return [
        figure.metric
        for figure in definition.figures
        if figure.metric != PRIMARY and not figure.experiments
    ]


# ----------------------------------------------------------------- experiments


def shaped(
    experiment: Experiment, study: StudyDefinition, *, quick: bool, replicates: int | None
) -> Experiment:
    """Return `experiment` with the number of replicates and warm-ups that it is to run, which the
    file may leave to `study`; with `quick`, in its quick form.

    `replicates` takes precedence over the file.
    """
    shorter = experiment.quick
    if quick:
        changed: dict[str, object] = {
            "replicates": shorter.replicates or study.quick_replicates,
            "warmups": 0,
            "factors": {**experiment.factors, **shorter.factors},
            "parameters": {**experiment.parameters, **shorter.parameters},
        }
    else:
        warmups = study.warmups if experiment.warmups is None else experiment.warmups
        changed = {"replicates": experiment.replicates or study.replicates, "warmups": warmups}
    if replicates is not None:
        changed["replicates"] = replicates
    return experiment.model_copy(update=changed)


def _plan_experiment(
    chosen: ChosenExperiment,
    definition: StudyDefinition,
    allocators: Sequence[InstalledAllocator],
    *,
    cores: int | None,
    seed: int,
    command: str,
) -> Study:
    """Return the study of one experiment; `cores` takes precedence over the levels of the file.

    Raises `UsageError` for what makes no sense on this machine or with these allocators; the
    message names the experiment.
    """
    experiment, workload = chosen.experiment, chosen.workload
    levels = {name: _texts(levels) for name, levels in experiment.factors.items()}
    try:
        compared = _compared(levels.pop(ALLOCATOR, None), allocators)
        names = [allocator.name for allocator in compared]
        own_cores = levels.pop(CORES, [str(default_cores(workload))])
        usable, note = _usable_cores([str(cores)] if cores else own_cores)
        study = plan(
            workload,
            compared,
            baseline=definition.baseline if definition.baseline in names else names[0],
            cores=usable,
            replicates=experiment.replicates,
            warmups=experiment.warmups or 0,
            seed=seed,
            timeout_s=experiment.timeout_s,
            primary_metric=experiment.primary_metric,
            reproduce=f"{command} --workloads {experiment.name}",
            factors=[Factor(name=name, levels=texts) for name, texts in levels.items()],
            parameters={name: str(value) for name, value in experiment.parameters.items()},
            shown=experiment.metrics,
            name=experiment.name,
            title=experiment.title or workload.title,
            weights=dict(definition.weights.items()),
            published=experiment.published,
            notes=[note] if note else [],
        )
        _check_published(experiment, study)
    except UsageError as error:
        raise UsageError(f"experiment {experiment.name}: {error}") from error
    return study


def _left_out(chosen: ChosenExperiment, study: Study) -> list[str]:
    """Say what the experiment asks for and this machine cannot give, before anything runs."""
    missing = unavailable_metrics()
    experiment = chosen.experiment
    measured = {metric.name for metric in study.metrics}
    metrics = [
        f"{name} is left out: {missing[name]}"
        for name in experiment.metrics
        if name in missing and name not in measured
    ]
    asked = _texts(experiment.factors.get(CORES, []))
    _, note = _usable_cores(asked) if len(asked) > len(study.cores) else ([], "")
    return [*metrics, *([note] if note else [])]


def _texts(levels: Sequence[Level]) -> list[str]:
    return [str(level) for level in levels]


def _compared(
    named: Sequence[str] | None, allocators: Sequence[InstalledAllocator]
) -> list[InstalledAllocator]:
    """Return those of the study's allocators that the experiment compares, in its order."""
    if named is None:
        return list(allocators)
    known = {allocator.name: allocator for allocator in allocators}
    compared = [known[name] for name in named if name in known]
    if not compared:
        raise UsageError(f"compares only {', '.join(named)}, which --allocators does not name")
    return compared


def _usable_cores(levels: Sequence[str]) -> tuple[list[int], str]:
    """Return the numbers of cores that this machine has, and a note about the others, if any.

    Where it has none of them, all are returned: the plan refuses them with the reason.
    """
    wrong = next((level for level in levels if not level.isdecimal()), None)
    if wrong is not None:
        raise UsageError(f"the factor 'cores' takes whole numbers, not {wrong!r}")
    wanted = [int(level) for level in levels]
    has = len(allowed_cpus())
    usable = [count for count in wanted if count <= has]
    beyond = [str(count) for count in wanted if count > has]
    if not usable or not beyond:
        return wanted, ""
    return usable, f"cores {', '.join(beyond)} left out: this machine has {has} to use"


def _check_published(experiment: Experiment, study: Study) -> None:
    measured = [metric.name for metric in study.metrics]
    for table in experiment.published:
        if table.metric not in (*measured, *unavailable_metrics()):
            raise UsageError(
                f"the published table {table.title!r} is about {table.metric!r}, "
                f"which is none of the metrics {', '.join(measured)}"
            )
        if any(len(row) != len(table.rows[0]) for row in table.rows):
            raise UsageError(f"the rows of the published table {table.title!r} differ in length")
