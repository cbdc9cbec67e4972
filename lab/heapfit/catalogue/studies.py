"""The studies of many workloads: `*.toml` in the studies folder, and files that users write."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from heapfit import paths
from heapfit.catalogue.record_file import read_record
from heapfit.catalogue.workloads import FILE_NAME, load_workload, load_workloads
from heapfit.errors import UsageError, unknown
from heapfit.records import StudyDefinition, Workload


def load_studies() -> dict[str, StudyDefinition]:
    """Return heapfit's own studies by name."""
    read = (load_study(path) for path in sorted(paths.studies_dir().glob("*.toml")))
    return {study.name: study for study in read}


def load_study(path: Path) -> StudyDefinition:
    """Return the study that the TOML file `path` describes; UsageError for what makes no sense."""
    study = read_record(path, StudyDefinition, here=path.absolute().parent)
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
    return study


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
    split = (word.partition("=") for word in study.allocators)
    return [f"{name}={study.here / path}" if equals else name for name, equals, path in split]


def workloads_of(study: StudyDefinition, names: Iterable[str]) -> list[Workload]:
    """Return the workloads of these `names`, as `study` names them: heapfit's, or paths of its own.

    A path (`mine.toml`, `mine/`) is relative to the study's file. Raises UsageError for one that is
    unknown, and where two come to the same name.
    """
    known = load_workloads()
    resolved: dict[str, Workload] = {}
    for name in names:
        workload = _workload(study, name, known)
        if workload.name in resolved:
            raise UsageError(f"{study.name}: two workloads are called {workload.name!r}")
        resolved[workload.name] = workload
    return list(resolved.values())


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
