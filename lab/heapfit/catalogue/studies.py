"""The studies, of many workloads or of designed experiments.

They are `*.toml` in the studies folder, and files that users write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from heapfit import paths
from heapfit.catalogue.record_file import read_record
from heapfit.catalogue.variants import check_variants, library_word
from heapfit.catalogue.workloads import FILE_NAME, load_workload, load_workloads
from heapfit.errors import UsageError, unknown
from heapfit.records import ALLOCATOR, CORES, Experiment, StudyDefinition, Workload


def load_studies() -> dict[str, StudyDefinition]:
    """Return heapfit's own studies by name."""
    read = (load_study(path) for path in sorted(paths.studies_dir().glob("*.toml")))
    return {study.name: study for study in read}


def load_study(path: Path) -> StudyDefinition:
    """Return the study that the TOML file `path` describes; UsageError for what makes no sense."""
    study = read_record(path, StudyDefinition, here=path.absolute().parent)
    _refuse_twice(path, "variants", [variant.name for variant in study.variants])
    check_variants(path, study)
    for what in ("workloads", "probes", "allocators", "metrics"):
        _refuse_twice(path, what, getattr(study, what))
    _refuse_twice(path, "figures", [figure.name for figure in study.figures])
    both = set(study.workloads) & set(study.probes)
    if both:
        raise UsageError(f"{path}: {min(both)!r} is both a workload and a probe")
    names = [word.partition("=")[0] for word in study.allocators]
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
    return study


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
        return load_study(Path(name).expanduser())
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
        raise UsageError(f"{path}: {min(twice)!r} stands twice in '{what}'")
