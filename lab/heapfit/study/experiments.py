"""Plan the experiments of a study: each is one workload under a full factorial design.

What a study's file leaves open is filled in here: the allocators and replicates are the study's,
the cores what suits the workload. `--quick` puts the smaller levels in place of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heapfit.errors import UsageError
from heapfit.records import (
    ALLOCATOR,
    CORES,
    Experiment,
    Factor,
    InstalledAllocator,
    Study,
    StudyDefinition,
    Workload,
)
from heapfit.study.plan import default_cores, plan
from heapfit.trial import unavailable_metrics
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
        """The names of those that it compares; none: the study's."""
        return _texts(self.experiment.factors.get(ALLOCATOR, []))


def shaped(
    experiment: Experiment, study: StudyDefinition, *, quick: bool, replicates: int | None
) -> Experiment:
    """Return `experiment` as it is to run: with all that it leaves to `study`, and made quick.

    `replicates` goes before all that the file says.
    """
    shorter = experiment.quick
    if not quick:
        own = experiment.replicates or study.replicates
        warmups = study.warmups if experiment.warmups is None else experiment.warmups
        changed: dict[str, object] = {"replicates": own, "warmups": warmups}
    else:
        changed = {
            "replicates": shorter.replicates or study.quick_replicates,
            "warmups": 0,
            "factors": {**experiment.factors, **shorter.factors},
            "parameters": {**experiment.parameters, **shorter.parameters},
        }
    if replicates is not None:
        changed["replicates"] = replicates
    return experiment.model_copy(update=changed)


def plan_experiment(
    chosen: ChosenExperiment,
    definition: StudyDefinition,
    allocators: Sequence[InstalledAllocator],
    *,
    cores: int | None,
    seed: int,
    reproduce: str,
) -> Study:
    """Return the study of one experiment, which `shaped` made whole.

    `cores` goes before the levels of the file. Raises `UsageError` for what makes no sense on this
    machine or with these allocators; the message names the experiment.
    """
    experiment, workload = chosen.experiment, chosen.workload
    levels = {name: _texts(levels) for name, levels in experiment.factors.items()}
    try:
        compared = _allocators(levels.pop(ALLOCATOR, None), allocators)
        wanted = [str(cores)] if cores else levels.get(CORES, [str(default_cores(workload))])
        levels.pop(CORES, None)
        usable, note = _usable_cores(wanted)
        study = plan(
            workload,
            compared,
            baseline=_baseline(definition, compared),
            cores=usable,
            replicates=experiment.replicates or definition.replicates,
            warmups=definition.warmups if experiment.warmups is None else experiment.warmups,
            seed=seed,
            timeout_s=experiment.timeout_s,
            primary_metric=experiment.primary_metric,
            reproduce=reproduce,
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


def left_out(chosen: ChosenExperiment, study: Study) -> list[str]:
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


def _allocators(
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


def _baseline(definition: StudyDefinition, compared: Sequence[InstalledAllocator]) -> str:
    """The study's baseline, or the first of an experiment that leaves it out."""
    names = [allocator.name for allocator in compared]
    return definition.baseline if definition.baseline in names else names[0]


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
