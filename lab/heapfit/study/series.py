"""A study of many parts (workloads, probes, experiments): its folder, and its course.

A series is one `Study` for each part, run one after the other under the same allocators. Its folder
holds `series.json`, and each study in a folder of the workload's or the experiment's name. So
everything that holds for one study (what is measured is safe, the same command continues, another
study is refused) holds for each of them. A part that fails does not stop the rest.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from heapfit.errors import FolderBusy, HeapfitError, StudyStopped, UsageError
from heapfit.files import write_durably
from heapfit.records import PlannedTrial, Series, Study, Trial
from heapfit.study.execute import Progress, execute
from heapfit.study.journal import STUDY_FILE, cannot_write, load, lock, refuse_pages
from heapfit.study.series_plan import SeriesPlan
from heapfit.study.stopping import RemainingTime

SERIES_FILE = "series.json"
PROBLEMS_FILE = "problems.json"

# Runs the missing trials of a study in its folder; see `execute`.
Run = Callable[[Study, Path, Progress, Path | None], None]


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
        merged = series
        if is_series(folder):
            merged = _merged(series, load_series(folder)[0])
        else:
            refuse_pages(folder)
        write_durably(folder / SERIES_FILE, merged.model_dump_json(indent=1).encode())
    except OSError as error:
        raise cannot_write(folder, error) from error
    return merged


def _merged(series: Series, earlier: Series) -> Series:
    """Return `series` with the parts and allocators of `earlier`, in the definition's order."""
    definition = series.definition
    experiments = [each.name for each in definition.experiments]
    allocators = {each.name: each for each in (*earlier.allocators, *series.allocators)}
    return series.model_copy(
        update={
            "created": earlier.created,
            "allocators": list(allocators.values()),
            "workloads": _in_order(definition.workloads, series.workloads, earlier.workloads),
            "probes": _in_order(definition.probes, series.probes, earlier.probes),
            "experiments": _in_order(experiments, series.experiments, earlier.experiments),
        }
    )


def _in_order(order: list[str], *several: list[str]) -> list[str]:
    """Return the names in any of the lists, those of `order` first and in that order."""
    together = dict.fromkeys(name for names in several for name in names)
    place = {name: at for at, name in enumerate(order)}
    return sorted(together, key=lambda name: place.get(name, len(place)))


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
        write_durably(folder / PROBLEMS_FILE, json.dumps(problems, indent=1).encode())
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
        lock(held, folder)
        yield
    finally:
        os.close(held)


# ------------------------------------------------------------------- running


class SeriesProgress(Progress):
    """Receives the events of a series' execution. The time left is that of the whole series."""

    def abandoned(self, study: Study, undone: int, problem: str) -> None:
        """The part `study` cannot be measured; `undone` of its trials will not run."""


def execute_series(
    plan: SeriesPlan,
    folder: Path,
    progress: SeriesProgress,
    data: Mapping[str, Path],
    unprepared: Mapping[str, str],
    run: Run = execute,
) -> dict[str, str]:
    """Run the missing trials of `plan` in `folder`; return why parts failed, by name.

    `data` has the data folders of the workloads that have one, `unprepared` what went wrong with
    the preparation of others, which are not run. `run` runs one study: `execute` does here.
    Raises `UsageError` if the folder holds another study, `FolderBusy` if it is being run there by
    another process, `HeapfitError` if it cannot be written to, and lets `KeyboardInterrupt` and
    `StudyStopped` through.
    """
    problems: dict[str, str] = {}
    with running_in(folder):
        clock = _Clock(plan.studies, plan.done_in(folder))
        save_series(plan.series, folder)
        for study in plan.studies:
            workload = study.workload.name
            display = _Display(study, progress, clock)
            try:
                if workload in unprepared:
                    raise HeapfitError(unprepared[workload])
                run(study, folder / study.name, display, data.get(workload))
            except StudyStopped:
                raise
            except HeapfitError as problem:
                problems[study.name] = str(problem)
                progress.abandoned(study, len(clock.missing[study.name]), str(problem))
                is_lasting = not isinstance(problem, FolderBusy)
                if is_lasting:  # Another is true now, and not when a report is read.
                    save_problem(folder, study.name, str(problem))
            else:
                save_problem(folder, study.name, None)
            clock.over(study)
    return problems


class _Clock:
    """Estimates the time left of all studies, including those that have not begun."""

    def __init__(self, studies: Sequence[Study], done: Mapping[str, list[Trial]]) -> None:
        self.missing = {study.name: _missing(study, done[study.name]) for study in studies}
        self._times = {study.name: RemainingTime(done[study.name]) for study in studies}
        self._durations: list[float] = []

    def begin(self, study: Study, done: Sequence[Trial]) -> None:
        """Count again what is missing: a study whose program has changed starts anew."""
        self.missing[study.name] = _missing(study, done)

    def ran(self, study: Study, planned: PlannedTrial, duration_s: float) -> None:
        self.missing[study.name].pop(planned.index, None)
        self._durations.append(duration_s)

    def over(self, study: Study) -> None:
        self.missing[study.name].clear()

    def after(self, study: Study) -> float:
        """Return the seconds that the studies other than `study` will still take.

        By their own earlier trials where there are any, else by the median of all trials so far.
        """
        typical = median(self._durations) if self._durations else 0.0
        left = 0.0
        for name, missing in self.missing.items():
            if name != study.name and missing:
                own = self._times[name].of(missing.values())
                left += typical * len(missing) if own is None else own
        return left


def _missing(study: Study, done: Sequence[Trial]) -> dict[int, PlannedTrial]:
    indexes = {trial.planned.index for trial in done}
    return {planned.index: planned for planned in study.plan if planned.index not in indexes}


class _Display(Progress):
    """Passes on the events of one study, and adds the time of the other studies."""

    def __init__(self, study: Study, series: SeriesProgress, clock: _Clock) -> None:
        self._study = study
        self._series = series
        self._clock = clock
        self._started_s = 0.0

    def begin(self, study: Study, done: list[Trial]) -> None:
        self._clock.begin(study, done)
        self._series.begin(study, done)

    def noticed(self, sentence: str) -> None:
        self._series.noticed(f"{self._study.name}: {sentence}")

    def disturbed(self, sentence: str) -> None:
        self._series.disturbed(sentence)

    def started(self, planned: PlannedTrial, remaining_s: float | None) -> None:
        self._started_s = time.monotonic()
        self._series.started(planned, self._whole(remaining_s))

    def finished(self, trial: Trial, remaining_s: float | None) -> None:
        duration_s = time.monotonic() - self._started_s
        self._clock.ran(self._study, trial.planned, duration_s)
        self._series.finished(trial, self._whole(remaining_s))

    def _whole(self, own_s: float | None) -> float | None:
        return None if own_s is None else own_s + self._clock.after(self._study)
