"""Find out what is known of a program before anything is tried: from its file, from some runs under
what it has today, and from a recording of one more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from heapfit.catalogue.command import filled
from heapfit.doctor.program import C_LIBRARY, c_library, libraries_of, linked_allocator
from heapfit.errors import HeapfitError, UsageError
from heapfit.fit.facts import Facts
from heapfit.fit.goal import Goal
from heapfit.host import machine
from heapfit.host.interpreters import hiding, language_of
from heapfit.host.program import started_by, why_not_replaced
from heapfit.meaning import NO_IDLE_TIME
from heapfit.profile.advice.memory import grower
from heapfit.profile.analyse import profile as profiled
from heapfit.profile.files import count_file
from heapfit.profile.model import Course, Profile
from heapfit.profile.tally import Tally
from heapfit.record import check_room, examine
from heapfit.records import InstalledAllocator, Study, Trial, TrialStatus, Workload
from heapfit.text import percent, shell_word
from heapfit.trial import preload
from heapfit.trial.cores import allowed_cpus
from heapfit.trial.outcome import Rejected
from heapfit.trial.run import recorded_run
from heapfit.trial.source import Source
from heapfit.trial.tree import PAGE_SIZE, ProcessTree

# A program that computes for less than that is mostly its own start, whatever its allocator.
SHORTEST_S = 0.02

# Of a program that runs for so long one allocation in so many bytes is recorded; of the longest,
# in the last row, so few that its recording is read within seconds.
_SAMPLES = ((0.5, "0"), (5.0, "16k"), (60.0, "128k"))
_SAMPLE_OF_LONG = "1m"

# The recorded run, in the folder of the fit: `heapfit profile` opens it.
RECORDING = "recording.hft"
# The folder of a recording of every call, where one was made.
FULL = "recording-in-full"

_LATE = "the recording began in a running process"
# A process of which less is in use on average keeps what it does not need.
_LITTLE_IN_USE = 0.5
# One that computes for less of its time is idle for most of it, which a replay leaves out.
_MOSTLY_IDLE = 0.5
_RECORDER = b"libheapfit-record"
_INSTEAD = (
    "fit the service itself, by the file that this writes: heapfit workloads new --for 30s -- CMD"
)

_HUGE_PAGES = {"always": 2.0, "madvise": 1.0}


def refuse(workload: Workload) -> None:
    """Raise an error where no allocator can be put into the program, or where one is already."""
    started = _program(workload)
    if started and (why := why_not_replaced(started)):
        raise HeapfitError(f"no allocator can be tried in {started}: {why}")
    for where, pinned in (
        ("this shell", os.environ.get(preload.VARIABLE)),
        ("the workload", workload.run.environment.get(preload.VARIABLE)),
    ):
        # A workload puts the C library before an allocator that its program is linked with.
        if pinned and (where == "this shell" or not _is_c_library_alone(pinned)):
            raise UsageError(
                f"{where} sets {preload.VARIABLE}={pinned}, which fit has to set itself; unset it, "
                f"and to measure against it write --baseline today={pinned}"
            )


def _is_c_library_alone(preloaded: str) -> bool:
    """
    >>> _is_c_library_alone("libc.so.6"), _is_c_library_alone("libc.so.6:/tmp/libmine.so")
    (True, False)
    """
    return all(Path(each).name.startswith(C_LIBRARY) for each in preload.names_in(preloaded))


def own_allocator(workload: Workload, baseline: InstalledAllocator) -> Path | None:
    """Return the allocator that the program is linked with, and that the baseline stands for."""
    replaced = workload.run.environment.get(preload.VARIABLE)
    return None if replaced else _linked(workload, baseline)


def _linked(workload: Workload, baseline: InstalledAllocator) -> Path | None:
    """Return what the program is linked with, where the baseline preloads nothing before it."""
    started = _program(workload)
    if started is None or baseline.library is not None:
        return None
    return linked_allocator(libraries_of(started))


def today(workload: Workload, baseline: InstalledAllocator) -> str | None:
    """Return what the baseline stands for, where the program is linked with an allocator."""
    started, linked = _program(workload), _linked(workload, baseline)
    if linked is None or started is None:
        return None
    brings = f"{started.name} is linked with {linked.name}"
    if workload.run.environment.get(preload.VARIABLE):
        return (
            f"{brings}, which the workload replaces by the C library's malloc: that is what "
            f"{baseline.name} stands for, and not what {started.name} has by itself; to compare "
            f"with that, write --baseline today={linked}"
        )
    libc = c_library(libraries_of(started))
    return (
        f"{brings}: that is what {baseline.name} stands for below, since it preloads nothing; to "
        f"compare with the C library's malloc, write --baseline libc={libc}"
    )


def by_file(workload: Workload, cores: int) -> Facts:
    """Return the facts that are there without running the program."""
    started = _program(workload)
    environment = {**os.environ, **workload.run.environment}
    return _of_program(Facts(cores=cores, python=0, huge_pages=_huge_pages()), started, environment)


def _of_program(facts: Facts, program: Path | None, environment: Mapping[str, str]) -> Facts:
    """Add which interpreter runs the program, if it has settings of its own or hides objects."""
    path = str(program.resolve()) if program else ""
    found = {each: float(language_of(path) == each) for each in ("python", "php", "ruby")}
    hidden = hiding(path, environment)
    told = {each: max(value, getattr(facts, each)) for each, value in found.items()}
    return facts.model_copy(update={**told, "hidden": hidden.keeps if hidden else ""})


def _huge_pages() -> float | None:
    return _HUGE_PAGES.get(machine.describe().huge_pages or "")


def _program(workload: Workload) -> Path | None:
    word = (workload.server or workload.run).command[0]
    return started_by(filled(word, {"here": workload.here}))


def by_runs(facts: Facts, trials: list[Trial]) -> Facts:
    """Return `facts` with those of the program's `trials` under what it has today.

    Raises HeapfitError for a program that does too little for any allocator to matter.
    """
    figures = {
        name: median(each.metrics[name] for each in trials)
        for name in ("wall_s", "user_s", "system_s", "minor_faults", "peak_rss_bytes")
    }
    processor_s, wall_s = figures["user_s"] + figures["system_s"], figures["wall_s"]
    if processor_s < SHORTEST_S:
        raise HeapfitError(
            f"the program computes for {1000 * processor_s:.1f} ms, most of which is its own "
            f"start; give it more to do: more than {1000 * SHORTEST_S:.0f} ms, better a second"
        )
    return facts.model_copy(
        update={
            "wall_s": wall_s,
            "processor_share": processor_s / wall_s,
            # Each page has a first one, whatever is done with it then; see _with_faults.
            "faults_per_s": (figures["minor_faults"] - figures["peak_rss_bytes"] / PAGE_SIZE)
            / wall_s,
            "peak_rss_bytes": figures["peak_rss_bytes"],
        }
    )


def without_client(workload: Workload, cores: int) -> list[str]:
    """A note where a service is measured on fewer cores than there are."""
    usable = len(allowed_cpus())
    if workload.server is None or cores >= usable:
        return []
    return [f"{cores} of {usable} cores: the other is left for the client."]


class _Witness(Source):
    """Looks at the process of the program that is largest when it is: its threads, its libraries,
    and what it has been told to preload."""

    def __init__(self) -> None:
        self.maps = self.environment = b""
        self.program = Path()
        self._tree = ProcessTree(0)
        self._pages = self._of_files = 0

    def begin(self, root: int) -> None:
        self._tree = ProcessTree(root)

    def sample(self, now_s: float) -> None:
        for _, process in self._tree.processes():
            try:
                self._look(Path(f"/proc/{process}"))
            except (OSError, IndexError):  # It has ended.
                continue

    def _look(self, process: Path) -> None:
        _, pages, of_files, *_ = map(int, (process / "statm").read_text().split())
        if pages > self._pages:
            maps, environment = ((process / each).read_bytes() for each in ("maps", "environ"))
            if not preload.is_loading(maps):
                self._pages, self._of_files = pages, of_files
                self.maps, self.environment = maps, environment
                self.program = (process / "exe").readlink()

    @property
    def is_recorded(self) -> bool:
        return _RECORDER in self.maps

    @property
    def threads(self) -> int:
        """At the same time at most, without that of the recorder."""
        return max(1, self._tree.most_threads - self.is_recorded)

    @property
    def resident_bytes(self) -> int:
        return self._pages * PAGE_SIZE

    @property
    def file_bytes(self) -> int:
        """Of what is resident, code and libraries."""
        return self._of_files * PAGE_SIZE


def repeats(trials: list[Trial]) -> bool:
    """Tell whether a program whose first run succeeds does so again."""
    first, *others = [each.status is TrialStatus.OK for each in trials]
    return not first or not others or any(others)


def check_repeats(trials: list[Trial]) -> None:
    """Raise HeapfitError for a program that runs once and never again."""
    if not repeats(trials):
        others = trials[1:]
        said = others[0].stderr_tail.strip().splitlines()
        raise HeapfitError(
            "the first run succeeds and the next one fails: "
            f"{others[0].reason}{f' (it says: {said[-1].strip()})' if said else ''}; it leaves "
            "something behind that is in the way of the next run, such as a file: have a "
            "script remove that first, or write into {scratch}, a workload's empty folder"
        )


def check_foreground(workload: Workload, trials: list[Trial]) -> None:
    """Raise HeapfitError for a program that mostly leaves processes running, as a daemon does."""
    left = sum(each.left_running > 0 for each in trials)
    if workload.server is None and 2 * left > len(trials):  # Now and then one is about to end.
        raise HeapfitError(
            "the program ends and leaves a process running in the background, which cannot be "
            "measured; keep it in the foreground, or, if it is a server, describe it and what "
            "drives it: heapfit workloads new --port N -- CMD; of a service that needs no load, "
            "write --for 30s in place of --port N"
        )


def by_recording(
    facts: Facts, study: Study, folder: Path, data: Path | None
) -> tuple[Facts, list[str]]:
    """Return `facts` with those of a recorded run of `study`'s program, and notes on that. The
    recording is kept in `folder`.

    Raises HeapfitError where what does the work is not reached by a preload.
    """
    wall_s = facts.wall_s or 0.0
    sample = next((size for longest, size in _SAMPLES if wall_s < longest), _SAMPLE_OF_LONG)
    try:
        seen = record(study, folder, data, sample)
    except Rejected as error:
        return _with_faults(facts, 0), [f"It could not be recorded: {error.reason}."]
    facts = _with_faults(facts, seen.file_bytes)
    facts = facts.model_copy(update={"threads": float(seen.threads)})
    return _with_recording(facts, folder / RECORDING, seen.resident_bytes, seen.file_bytes)


def _with_faults(facts: Facts, of_files: int) -> Facts:
    """Return `facts` with the faults beyond the first of each page, of which `of_files` bytes are
    files': the kernel maps several of their pages at a time. Not known where first faults may have
    been of huge pages."""
    if facts.faults_per_s is None or not facts.wall_s:
        return facts
    repeated = facts.faults_per_s + of_files / PAGE_SIZE / facts.wall_s
    unknown = repeated < 0 or facts.huge_pages == _HUGE_PAGES["always"]
    return facts.model_copy(update={"faults_per_s": None if unknown else repeated})


def by_trace(trace: Path, cores: int) -> tuple[Facts, list[str]]:
    """Return the facts that a recording alone tells, and notes on that."""
    facts, notes = _with_recording(Facts(cores=cores, python=0, huge_pages=_huge_pages()), trace)
    if facts.mean_live_share is None or facts.mean_live_share >= _LITTLE_IN_USE:
        return facts, notes
    return facts, [
        *notes,
        f"The process keeps memory that it does not need. {NO_IDLE_TIME}, so it cannot tell what "
        f"returns that: {_INSTEAD}.",
    ]


def is_of_idle_time(facts: Facts, goal: Goal) -> bool:
    """Whether a goal is over time, most of which is in no replay."""
    busy = 1.0 if facts.processor_share is None else facts.processor_share
    return goal.is_of_mean and busy < _MOSTLY_IDLE


def check_goal(facts: Facts, goal: Goal) -> None:
    """Raise HeapfitError for a goal of which no replay tells."""
    if is_of_idle_time(facts, goal):
        idle = 1 - (facts.processor_share or 0.0)
        raise HeapfitError(
            f"the recorded process was idle for {percent(idle)} of the time. {NO_IDLE_TIME}, "
            f"so it cannot tell mean memory: {_INSTEAD}"
        )


def forget(folder: Path) -> None:
    """Remove the recordings of a program that has changed since."""
    (folder / RECORDING).unlink(missing_ok=True)
    shutil.rmtree(folder / FULL, ignore_errors=True)


def record(study: Study, folder: Path, data: Path | None, sample: str) -> _Witness:
    """Record one run of `study`'s program into `folder`; of several processes, the one is kept
    that has recorded most.

    Raises HeapfitError where no preload reaches it, Rejected where it failed.
    """
    settings = {"sample": sample, "children": "on"}
    [seen] = recorded_run(study, folder / RECORDING, data, settings, [_Witness]).sources
    assert isinstance(seen, _Witness)
    _check_reached(seen)
    check_room(folder / RECORDING)
    return seen


def _check_reached(seen: _Witness) -> None:
    if not seen.maps or seen.is_recorded:
        return
    if why := why_not_replaced(seen.program):
        raise HeapfitError(f"no allocator reaches {seen.program.name}, which does the work: {why}")
    start = f"{preload.VARIABLE}=".encode()
    told = [word for word in seen.environment.split(b"\0") if word.startswith(start)]
    has = told[0].decode(errors="replace") if told else f"no {preload.VARIABLE}"
    raise HeapfitError(
        f"no allocator reaches {seen.program.name}, which does the work: it runs with {has}, set "
        "by the program or a script that starts it; take that out, or name the command itself"
    )


def _with_recording(
    facts: Facts, main: Path, resident: int = 0, of_files: int = 0
) -> tuple[Facts, list[str]]:
    """Add what the recording says of a process of which so much was `resident`, so much of it
    pages `of_files`: by the recording itself where nobody looked.

    That is with the recorder's own memory: where the size without it is known, that counts.
    """
    written = examine(main) if main.exists() else None
    trouble = written.trouble if written else ""
    if written is None or not written.events:
        return facts, [f"Nothing was recorded: {trouble or 'it hardly uses malloc'}."]
    tally = Tally()
    tally.include(count_file(main))
    found = profiled(tally)
    [recording] = found.recordings
    program = Path(recording.program) if recording.program else None
    facts = _of_program(facts, program, recording.environment)
    resident = max(recording.resident_most or 0, resident, 1)
    alone = min(facts.peak_rss_bytes or resident, resident)
    heap = alone - (of_files or _of_files(recording.course))
    # What is live of it is no part of what was resident before.
    unknown = facts.hidden or (_LATE if recording.began_late else "")
    totals, live = found.totals, recording.peak.bytes
    update = {
        "allocating_threads": float(sum(each.threads for each in found.sizes.threads)),
        "allocations": float(totals.allocations.objects),
        "allocations_per_s": totals.per_second,
        "live_bytes": float(live),
        "large_share": totals.large.bytes / max(totals.allocations.bytes, 1),
        "remote_share": found.sharing.remote_share or 0.0,
    }
    if not unknown:
        update["live_share"] = live / max(heap, live, 1)
        update["mean_live_share"] = _mean_live_share(recording.course, resident - alone)
    if facts.threads is None:
        update |= {"threads": float(recording.threads), "peak_rss_bytes": float(resident)}
        if recording.processor_ns is not None:
            update["processor_share"] = recording.processor_ns / max(recording.duration_ns, 1)
    part = [f"Only the beginning was recorded: {trouble}."] if trouble else []
    said = [f"How much of the heap is in use is not known: {unknown}."] if unknown else []
    grows = _growth(found, main)
    notes = [*part, *said, *filter(None, [grows])]
    return facts.model_copy(update={**update, "grows": grows}), notes


def _mean_live_share(course: Course, of_recorder: float) -> float | None:
    """Return the share of the anonymous memory, without the recorder's own, that was live over
    time. Between two looks at the memory it is as at the first."""
    live, held, last = 0, 0.0, None
    for own, seen in zip(course.live_bytes, course.resident_anonymous, strict=True):
        last = seen or last
        if last is not None:
            live += own
            held += max(last - of_recorder, own)
    return live / held if held else None


def _of_files(course: Course) -> int:
    both = zip(course.resident, course.resident_anonymous, strict=True)
    seen = [(resident, own) for resident, own in both if resident and own]
    most, own = max(seen, default=(0, 0))
    return most - own


# Less of what is live at the peak is no reason to look at the program before its allocator.
_MOSTLY = 0.5


def _growth(profile: Profile, trace: Path) -> str:
    growing = grower(profile)
    if growing is None or growing.amount.bytes < _MOSTLY * profile.peak.amount.bytes:
        return ""
    return (
        f"{growing.name} keeps growing as the program works. In a service, that is a leak or an "
        f"unbounded cache, which no allocator fixes: heapfit profile {shell_word(trace)}"
    )
