"""What runs on each machine of a cluster, called there by a Dask worker.

Arguments and results are JSON, so that a machine with another version of heapfit can still say so.
A machine has its own copies of the allocators and of the workload: they are found here by name and
must be the same as where the study was planned.

Each trial runs in a process of its own, `python -m heapfit.study.machine_side`. The worker's own
process has threads and timers that would take processor time from the sampling of a trial, and it
cannot interrupt a thread of its own, whereas another process can be ended.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType

from pydantic import BaseModel

import heapfit
from heapfit import catalogue
from heapfit.errors import HeapfitError
from heapfit.host import machine
from heapfit.records import InstalledAllocator, Machine, PlannedTrial, Study, Trial, Workload
from heapfit.study.identity import Watch, identify
from heapfit.text import join_words
from heapfit.trial import run_trial, unavailable_metrics
from heapfit.trial.cores import split_cores

# The catalogue's name for the C library's own allocator, with which nothing is preloaded.
_SYSTEM = "glibc"

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PR_SET_PDEATHSIG = 1

# For `stop`: the processes that run trials now, and how often it was called, for a trial that is
# just being started.
_running: set[subprocess.Popen[str]] = set()
_stops = 0
_lock = threading.Lock()


class Inspection(BaseModel):
    """A machine's report before anything runs on it."""

    machine: Machine
    boot: str
    problems: list[str]
    notes: list[str]


class _Request(BaseModel):
    """A trial to run. The study is as this machine has it, without its plan."""

    study: Study
    planned: PlannedTrial
    reference: Trial | None
    data: Path | None
    workspace: Path
    parent: int


class _Answer(BaseModel):
    """A trial that was run, or why there is none."""

    trial: Trial | None = None
    error: str | None = None


def version() -> str:
    """Return the version of heapfit that this machine has."""
    return heapfit.__version__


def inspect(studies: list[str], install: bool) -> str:
    """Return an `Inspection` for these studies; with `install`, get what is missing first."""
    problems: list[str] = []
    for study in map(Study.model_validate_json, studies):
        problems += [each for each in _problems(study, install) if each not in problems]
    inspection = Inspection(
        machine=machine.describe(),
        boot=_BOOT.read_text().strip(),
        problems=problems,
        notes=_notes(),
    )
    return inspection.model_dump_json()


def prepare(study: str) -> str:
    """Make the data of the study's workload on this machine, unless it is there; return the
    `Identity` of what is measured here."""
    for kept in (_local, _watch):  # An earlier command may have measured something else.
        kept.cache_clear()
    return _watch(study).identity.model_dump_json()


def run(study: str, planned: str, reference: str | None) -> str:
    """Run a trial here and return it. Raises HeapfitError when this machine cannot do its work."""
    stops_before = _stops
    local, data = _local(study)
    request = _Request(
        study=local,
        planned=PlannedTrial.model_validate_json(planned),
        reference=Trial.model_validate_json(reference) if reference else None,
        data=data,
        workspace=_workspace(),
        parent=os.getpid(),
    )
    answer = _Answer.model_validate_json(_answer(request.model_dump_json(), stops_before))
    if answer.trial is None:
        raise HeapfitError(answer.error or "a trial gave no answer")
    if changed := _watch(study).changed():
        _watch.cache_clear()  # What is there now is what the same command measures.
        raise HeapfitError(f"{join_words(changed)} while it was being measured")
    return answer.trial.model_dump_json()


def stop() -> None:
    """End what runs here now, at once."""
    global _stops
    with _lock:
        _stops += 1
        for process in _running:
            process.send_signal(signal.SIGTERM)


# ------------------------------------------------------------------- running


def _answer(request: str, stops_before: int) -> str:
    command = [sys.executable, "-m", "heapfit.study.machine_side"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        with _lock:
            _running.add(process)
            if _stops != stops_before:
                process.send_signal(signal.SIGTERM)
        try:
            answer, said = process.communicate(request)
        finally:
            with _lock:
                _running.discard(process)
    if process.returncode != 0:
        words = said.strip().splitlines()
        raise HeapfitError(f"a trial was ended from outside ({words[-1] if words else 'killed'})")
    return answer


def _answer_request() -> None:
    """Run the trial that standard input asks for, and print the answer."""
    signal.signal(signal.SIGTERM, _end)
    request = _Request.model_validate_json(sys.stdin.read())
    # End when the worker does: nobody would take the answer.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != request.parent:  # It died before the line above could take effect.
        sys.exit(1)
    try:
        trial = run_trial(
            request.study, request.planned, request.workspace, request.reference, request.data
        )
    except HeapfitError as error:
        answer = _Answer(error=str(error))
    else:
        answer = _Answer(trial=trial)
    sys.stdout.write(answer.model_dump_json())


def _end(number: int, frame: FrameType | None) -> None:
    """End, and on the way out the program that runs."""
    sys.exit(128 + number)


@lru_cache(maxsize=1)
def _workspace() -> Path:
    """Return this worker's folder for trials, for as long as the worker runs."""
    return Path(tempfile.mkdtemp(prefix="heapfit-trials-"))


@lru_cache(maxsize=64)
def _local(study: str) -> tuple[Study, Path | None]:
    """Return the study as this machine has it, and its workload's data, made if it is missing."""
    planned = Study.model_validate_json(study)
    workload = _local_workload(planned.workload)
    allocators = [_local_allocator(each) for each in planned.allocators]
    local = planned.model_copy(update={"workload": workload, "allocators": allocators})
    return local, catalogue.prepare_workload(workload, _say_nothing) if workload.prepare else None


@lru_cache(maxsize=64)
def _watch(study: str) -> Watch:
    """Return the watch on the files that the study measures on this machine."""
    return Watch(identify(*_local(study)), is_new=True)


# ------------------------------------------------------------------ checking


def _problems(study: Study, install: bool) -> list[str]:
    """Return why this machine cannot run `study`, one line each."""
    checks: list[Callable[[], object]] = [
        partial(_check_workload, study.workload, install),
        *(partial(split_cores, cores) for cores in study.cores),
        partial(_check_metrics, study),
        *(partial(_check_allocator, each, install) for each in study.allocators),
    ]
    return [problem for problem in map(_failure, checks) if problem]


def _failure(check: Callable[[], object]) -> str | None:
    try:
        check()
    except HeapfitError as error:
        return str(error)
    return None


def _check_workload(workload: Workload, install: bool) -> None:
    local = _local_workload(workload)
    if install:
        catalogue.install_workload(local, _say_nothing)
    missing = catalogue.missing_for(local)
    if missing:
        raise HeapfitError(f"{workload.name} needs {', '.join(missing)}; add --install")


def _check_allocator(allocator: InstalledAllocator, install: bool) -> None:
    allocator = allocator.variant_of or allocator
    entry = catalogue.load_allocators().get(allocator.name)
    if install and entry is not None and catalogue.find_installed(entry) is None:
        catalogue.install_allocator(entry, _say_nothing)
    catalogue.check_loads(_local_allocator(allocator))


def _check_metrics(study: Study) -> None:
    missing = unavailable_metrics()
    for metric in study.metrics:
        if metric.name in missing:
            raise HeapfitError(f"{metric.name} cannot be measured: {missing[metric.name]}")


def _notes() -> list[str]:
    """Return notes about settings of the worker that disturb measurements."""
    try:
        import dask
    except ImportError:  # Called without a worker.
        return []
    if dask.config.get("distributed.worker.profile.enabled", True):
        return ["its worker profiles itself; DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False"]
    return []


# ------------------------------------------------------------- what is here


def _local_workload(workload: Workload) -> Workload:
    """Return this machine's copy of `workload`: heapfit's own, or in the same folder as there."""
    own = catalogue.load_workloads().get(workload.name)
    if own is not None and own.model_copy(update={"here": workload.here}) == workload:
        return own
    if not workload.here.is_dir():
        raise HeapfitError(
            f"the workload {workload.name} lies in {workload.here}, which is not there; "
            "copy that folder, or share it"
        )
    return workload


def _local_allocator(wanted: InstalledAllocator) -> InstalledAllocator:
    """Return this machine's copy of an allocator; HeapfitError unless it is the same one.

    Of a variant, all but the library is as the study says.
    """
    if wanted.variant_of is not None:
        behind = _local_allocator(wanted.variant_of)
        build = wanted.parameters.get(catalogue.PROGRAM) if wanted.program else None
        if build is not None and not Path(build).is_file():
            raise HeapfitError(f"{wanted.program}: there is no {build} here; copy or share it")
        return wanted.model_copy(update={"library": behind.library, "variant_of": behind})
    if wanted.library is None:
        [system] = catalogue.resolve_allocators([_SYSTEM])
        _same_version(system, wanted)
        return wanted
    entry = catalogue.entry_of(wanted)
    if entry is not None:
        found_here = catalogue.find_installed(entry)
        if found_here is not None:
            # Compilers write paths and versions of theirs into what they make.
            same = _same_version if entry.source.kind == "crate" else _same_content
            return same(found_here, wanted)
    if not wanted.library.is_file():
        raise HeapfitError(
            f"{wanted.name} is not installed (no {wanted.library}); add --install, "
            "or copy the library there"
        )
    [found] = catalogue.resolve_allocators([f"{wanted.name}={wanted.library}"])
    _same_content(found, wanted)
    return found.model_copy(update={"title": wanted.title, "environment": wanted.environment})


def _same_version(found: InstalledAllocator, wanted: InstalledAllocator) -> InstalledAllocator:
    if found.version != wanted.version:
        raise HeapfitError(
            f"{wanted.name} is {found.version} here and {wanted.version} where the study was "
            "planned; install the same version"
        )
    return found


def _same_content(found: InstalledAllocator, wanted: InstalledAllocator) -> InstalledAllocator:
    if found.sha256 != wanted.sha256:
        raise HeapfitError(
            f"{wanted.name} is another library here ({found.version}, {found.library}) than where "
            f"the study was planned ({wanted.version}); install the same build"
        )
    return found


def _say_nothing(line: str) -> None:
    """Nobody reads messages on this machine."""


if __name__ == "__main__":
    _answer_request()
