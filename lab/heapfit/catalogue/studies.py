"""The studies, of many workloads or of designed experiments.

They are `*.toml` in the studies folder, and files that users write.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from heapfit import paths
from heapfit.catalogue.record_file import read_record
from heapfit.catalogue.variants import check_variants, library_word, name_of
from heapfit.catalogue.workloads import FILE_NAME, load_workload, load_workloads
from heapfit.errors import UsageError, unknown
from heapfit.records import (
    ALLOCATOR,
    CORES,
    PRIMARY,
    Experiment,
    FigureDefinition,
    StudyDefinition,
    Workload,
)
from heapfit.trial.metrics import BUILTIN_METRIC_NAMES


def load_studies() -> dict[str, StudyDefinition]:
    """Return heapfit's own studies by name."""
    read = (load_study(path) for path in sorted(paths.studies_dir().glob("*.toml")))
    return {study.name: study for study in read}


def load_study(path: Path) -> StudyDefinition:
    """Return the study that the TOML file `path` describes; UsageError for what makes no sense."""
    study = read_record(path, StudyDefinition, here=path.absolute().parent)
    written = [each.name for each in study.experiments]
    _refuse_twice(path, "experiments", written)
    study = _expanded(path, study)
    _refuse_twice(path, "variants", [variant.name for variant in study.variants])
    check_variants(path, study)
    for what in ("workloads", "probes", "allocators", "metrics"):
        _refuse_twice(path, what, getattr(study, what))
    _refuse_twice(path, "figures", [figure.name for figure in study.figures])
    both = set(study.workloads) & set(study.probes)
    if both:
        raise UsageError(f"{path}: {min(both)!r} is both a workload and a probe")
    names = [name_of(word) for word in study.allocators]
    for what in ("baseline", "subject"):
        if getattr(study, what) not in names:
            raise UsageError(f"{path}: the {what} {getattr(study, what)!r} is not in 'allocators'")
    if not study.workloads and not study.experiments:
        raise UsageError(f"{path}: there is nothing to run: give 'workloads' or [[experiments]]")
    if study.weights and (min(study.weights.values()) < 0 or not any(study.weights.values())):
        raise UsageError(f"{path}: 'weights' must not be negative, nor all of them 0")
    _refuse_twice(path, "experiments", [each.name for each in study.experiments])
    for experiment in study.experiments:
        _check_experiment(path, experiment, names)
    for figure in study.figures:
        _check_figure(path, figure, study, written)
    return study


def _expanded(path: Path, study: StudyDefinition) -> StudyDefinition:
    """Return `study` with a part for each workload of an experiment that names several."""
    parts: list[Experiment] = []
    for each in study.experiments:
        where = f"{path}: experiment {each.name!r}"
        if bool(each.workload) == bool(each.workloads):
            raise UsageError(f"{where} needs 'workload' or 'workloads', and not both")
        _refuse_twice(path, f"workloads of experiment {each.name!r}", each.workloads)
        beyond = [name for name in each.quick.workloads if name not in each.workloads]
        if beyond:
            raise UsageError(f"{where}: {unknown('workload of quick:', beyond[0], each.workloads)}")
        parts += [_part(each, name) for name in each.workloads] or [each]
    return study.model_copy(update={"experiments": parts})


def _part(experiment: Experiment, workload: str) -> Experiment:
    """Return what an experiment with several workloads is of one of them.

    Of a path the last folder or file names the part, since that is the name of a folder too.
    """
    path = Path(workload)
    label = path.parent.name if path.name == FILE_NAME else path.name.removesuffix(".toml")
    update = {
        "name": f"{experiment.name}.{label}",
        "title": f"{experiment.title}: {label}" if experiment.title else "",
        "workload": workload,
        "workloads": [],
        "family": experiment.name,
    }
    return experiment.model_copy(update=update)


def _check_figure(
    path: Path, figure: FigureDefinition, study: StudyDefinition, experiments: Sequence[str]
) -> None:
    """Raise UsageError for a figure of what the study has not."""
    where = f"{path}: figure {figure.name!r}"
    names = [name_of(word) for word in study.allocators]
    for name in [study.subject_of(figure), *figure.peers]:
        if name not in names:
            raise UsageError(f"{where}: {unknown('allocator', name, names)}")
    for name in figure.experiments:
        if name not in experiments:
            raise UsageError(f"{where}: {unknown('experiment', name, experiments)}")
    for part in study.experiments_of(figure):
        if figure.metric not in (PRIMARY, *BUILTIN_METRIC_NAMES, *part.metrics):
            raise UsageError(f"{where}: {figure.metric!r} is not a metric of {part.name}")
        if varied := _varied(part):
            raise UsageError(
                f"{where}: {part.name} varies {varied}, and a figure has one ratio of each part; "
                "write an experiment for each level"
            )


def _varied(experiment: Experiment) -> str | None:
    """Return a factor beside the allocator of which an experiment has several levels, if any."""
    factors = (*experiment.factors.items(), *experiment.quick.factors.items())
    return next((n for n, levels in factors if n != ALLOCATOR and len(levels) > 1), None)


def _check_experiment(path: Path, experiment: Experiment, allocators: Sequence[str]) -> None:
    """Raise UsageError for what makes no sense whatever the workload and the machine are."""
    where = f"experiment {experiment.name!r}"
    _refuse_twice(path, f"metrics of {where}", experiment.metrics)
    known = [ALLOCATOR, CORES, *experiment.factors]
    for name in experiment.quick.factors:
        if name not in known:
            raise UsageError(f"{path}: {where}: {unknown('factor of quick:', name, known)}")
    for what, factors in (("", experiment.factors), ("quick.", experiment.quick.factors)):
        for name, levels in factors.items():
            texts = [str(level) for level in levels]
            _refuse_twice(path, f"{what}factors.{name} of {where}", texts)
            if not texts:
                raise UsageError(f"{path}: '{what}factors.{name}' of {where} has no levels")
        for level in factors.get(ALLOCATOR, []):
            if level not in allocators:
                raise UsageError(f"{path}: {where}: {unknown('allocator', str(level), allocators)}")


def resolve_study(name: str) -> StudyDefinition:
    """Return the study that a user named: one of heapfit's, or a TOML file."""
    if name.endswith(".toml") or "/" in name:
        return load_study(paths.expanded(name))
    known = load_studies()
    if name not in known:
        raise unknown("study", name, known)
    return known[name]


def allocators_of(study: StudyDefinition) -> list[str]:
    """Return the study's allocators such that they mean the same in any folder."""
    return [library_word(study, word) for word in study.allocators]


def workloads_of(study: StudyDefinition, names: Iterable[str]) -> list[Workload]:
    """Return the workload of each of `names`, as `study` names them: heapfit's, or its own paths.

    A path (`mine.toml`, `mine/`) is relative to the study's file. Raises UsageError for one that is
    unknown, and where two have the same name, which is that of their data too.
    """
    known = load_workloads()
    found = [_workload(study, name, known) for name in names]
    by_name = {workload.name: workload for workload in found}
    for workload in found:
        if workload != by_name[workload.name]:
            raise UsageError(f"{study.name}: two workloads are called {workload.name!r}")
    return found


def _workload(study: StudyDefinition, name: str, known: dict[str, Workload]) -> Workload:
    if name.endswith(".toml"):
        return load_workload(study.here / name)
    if "/" in name:
        return load_workload(study.here / name / FILE_NAME)
    if name not in known:
        raise unknown("workload", name, known)
    return known[name]


def _refuse_twice(path: Path, what: str, names: list[str]) -> None:
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(f"{path}: {min(twice)!r} occurs twice in '{what}'")
