"""A study of many parts (workloads, probes, experiments): its plan, and its folder.

A series is one `Study` for each part, run one after the other under the same allocators. Its folder
holds `series.json`, and each study in a folder of the workload's or the experiment's name. So
everything that holds for one study (what is measured is safe, the same command goes on, another
study is refused) holds for each of them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

import heapfit
from heapfit.errors import FolderBusy, HeapfitError, UsageError, unknown
from heapfit.records import (
    PRIMARY,
    InstalledAllocator,
    Series,
    Study,
    StudyDefinition,
    Trial,
    Workload,
)
from heapfit.study.experiments import ChosenExperiment, left_out, plan_experiment
from heapfit.study.factors import remarks
from heapfit.study.journal import STUDY_FILE, cannot_write, check_takes, load, write_atomically
from heapfit.study.plan import default_cores, plan
from heapfit.trial import BUILTIN_METRICS, OPTIONAL_METRIC_NAMES, unavailable_metrics

SERIES_FILE = "series.json"
PROBLEMS_FILE = "problems.json"


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
    command line that repeats the study, up to the choice of parts. Raises `UsageError` for what
    makes no sense, `HeapfitError` for a figure that this machine cannot give.
    """
    _check(definition, allocators)
    wanted = [*_figure_metrics(definition), *definition.metrics]
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
            measured=wanted,
        )
        for is_probe, those in ((False, workloads), (True, probes))
        for workload in those
    ]
    designed = [
        plan_experiment(
            chosen,
            definition,
            allocators,
            cores=cores,
            seed=seed,
            reproduce=f"{command} --workloads {chosen.experiment.name}",
        )
        for chosen in experiments
    ]
    studies += designed
    _refuse_same_names(studies)
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
    pairs = zip(experiments, designed, strict=True)
    notes = [
        f"{study.name}: {note}"
        for chosen, study in pairs
        for note in (*left_out(chosen, study), *remarks(study))
    ]
    return SeriesPlan(series, studies, notes)


def _refuse_same_names(studies: Sequence[Study]) -> None:
    """Each part has a folder of its name."""
    names = [study.name for study in studies]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two parts of the study are called {twice!r}")


def _check(definition: StudyDefinition, allocators: Sequence[InstalledAllocator]) -> None:
    if all(allocator.name == definition.subject for allocator in allocators):
        raise UsageError(f"{definition.subject} alone has no peers; name another allocator too")
    known = [*(metric.name for metric in BUILTIN_METRICS), *OPTIONAL_METRIC_NAMES]
    missing = unavailable_metrics()
    wanted = _figure_metrics(definition)
    for name in [*wanted, *definition.metrics]:
        if name not in known:
            raise unknown("metric", name, known)
        if name in missing and name in wanted:
            raise HeapfitError(f"{name} cannot be measured on this machine: {missing[name]}")


def _figure_metrics(definition: StudyDefinition) -> list[str]:
    """The metrics of figures of the workloads, but for each workload's own."""
    return [
        figure.metric
        for figure in definition.figures
        if figure.metric != PRIMARY and not figure.experiments
    ]


def command_line(series: Series) -> str:
    """Return the command line that repeats `series`, with its choice of parts."""
    definition = series.definition
    chosen = (series.workloads, series.experiments)
    if chosen == (definition.workloads, [each.name for each in definition.experiments]):
        if series.probes == definition.probes:
            return series.command
        if not series.probes:
            return f"{series.command} --no-probes"
    return f"{series.command} --workloads {','.join(parts_of(series))}"


def parts_of(series: Series) -> list[str]:
    """Return the names of all parts of `series`, each of which has a folder once it has begun."""
    return [*series.workloads, *series.probes, *series.experiments]


def is_series(folder: Path) -> bool:
    """Tell whether `folder` holds a study of many parts."""
    return (folder / SERIES_FILE).is_file()


def load_series(folder: Path) -> tuple[Series, dict[str, tuple[Study, list[Trial]]]]:
    """Read a series' folder, finished or not: the record, and each part that has begun."""
    path = folder / SERIES_FILE
    try:
        series = Series.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UsageError(f"{path} is not a study that this version can read") from error
    begun = [name for name in parts_of(series) if (folder / name / STUDY_FILE).is_file()]
    return series, {name: load(folder / name) for name in begun}


def save_series(series: Series, folder: Path) -> Series:
    """Put `series` into its folder and return it as it now stands there.

    Parts that an earlier command asked for stay in it, in the order of the definition.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        merged = _merged(series, load_series(folder)[0]) if is_series(folder) else series
        write_atomically(folder / SERIES_FILE, merged.model_dump_json(indent=1).encode())
    except OSError as error:
        raise cannot_write(folder, error) from error
    return merged


def load_problems(folder: Path) -> dict[str, str]:
    """Return why parts could not be measured, by name."""
    try:
        found: dict[str, str] = json.loads((folder / PROBLEMS_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def save_problem(folder: Path, part: str, problem: str | None) -> None:
    """Record why `part` could not be measured; with None, that now it could."""
    problems = load_problems(folder)
    problems.pop(part, None)
    if problem is not None:
        problems[part] = problem
    try:
        write_atomically(folder / PROBLEMS_FILE, json.dumps(problems, indent=1).encode())
    except OSError as error:
        raise cannot_write(folder, error) from error


@contextmanager
def running_in(folder: Path) -> Iterator[None]:
    """Keep other processes from running the series in `folder`, which is made unless it is there.

    Its parts have locks of their own, but a second run would pass from the locked part to the next
    and measure beside the first. Raises `FolderBusy` where another process runs it, `HeapfitError`
    where the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        _lock(held, folder)
        yield
    finally:
        os.close(held)


def _lock(held: int, folder: Path) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderBusy(folder) from error


def _merged(series: Series, earlier: Series) -> Series:
    definition = series.definition
    experiments = [each.name for each in definition.experiments]
    return series.model_copy(
        update={
            "created": earlier.created,
            "allocators": _together(earlier.allocators, series.allocators),
            "workloads": _in_order(definition.workloads, series.workloads, earlier.workloads),
            "probes": _in_order(definition.probes, series.probes, earlier.probes),
            "experiments": _in_order(experiments, series.experiments, earlier.experiments),
        }
    )


def _together(*several: Sequence[InstalledAllocator]) -> list[InstalledAllocator]:
    """Return all that any part compares: each may compare others."""
    return list({each.name: each for those in several for each in those}.values())


def _in_order(order: list[str], *several: list[str]) -> list[str]:
    """Return the names in any of the lists, those of `order` first and in that order."""
    together = list(dict.fromkeys(name for names in several for name in names))
    place = {name: at for at, name in enumerate(order)}
    return sorted(together, key=lambda name: place.get(name, len(place)))
