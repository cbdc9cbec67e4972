"""A study's folder on disk: its plan in `study.json`, a line per finished trial in `trials.jsonl`,
a line in `looks.jsonl` for each time that a verdict on more of them was shown.

What is measured is safe as soon as `append` returns. A line cut short by a kill, a power cut or a
full disk is removed when the study goes on; everything before it stays. Trials that measured
something else than the command would measure now are put aside, whole, into a folder below.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import BinaryIO, Self

from pydantic import ValidationError

from heapfit.errors import FolderBusy, HeapfitError, UsageError
from heapfit.files import is_forbidden, write_durably
from heapfit.records import Identity, InstalledAllocator, Record, Session, Study, Trial
from heapfit.study.identity import continued, differences, told
from heapfit.study.plan import extended
from heapfit.study.stopping import Cell, cell_of
from heapfit.text import counted, join_words

STUDY_FILE = "study.json"
TRIALS_FILE = "trials.jsonl"
LOOKS_FILE = "looks.jsonl"
# The folder below a study's with what it held before its program or its machine changed.
EARLIER = "earlier"

# Returns what is measured now; it is given what was found before, which need not be read again.
Identify = Callable[[Identity | None], Identity]


def load(folder: Path) -> tuple[Study, list[Trial]]:
    """Read a study's folder, finished or not, without changing it."""
    study = _read_study(folder)
    if study is None:
        raise UsageError(_no_study(folder))
    return study, _trials_in(folder)


def _no_study(folder: Path) -> str:
    """Say why there is nothing to read, and which studies are near."""
    why = f"{folder} holds no study: there is no {STUDY_FILE} in it"
    if not folder.exists():
        why = f"there is no folder {str(folder)!r}"
    # A name without its digest, the folder of all results, or a file of a study.
    places = [*folder.parent.glob(f"{escape(folder.name)}*"), *folder.glob("*"), folder.parent]
    near = sorted({str(each) for each in places if (each / STUDY_FILE).is_file()})
    if not near:
        return why
    more = [f"{len(near) - _MOST_NAMED} more"] if len(near) > _MOST_NAMED else []
    return f"{why}; studies are in {join_words([*near[:_MOST_NAMED], *more])}"


def is_running(folder: Path) -> bool:
    """Return whether a process measures the study, of many parts or not, in `folder` now."""
    trials = folder / TRIALS_FILE
    locked = os.open(trials if trials.exists() else folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(locked, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(locked)
    return False


def looks(folder: Path) -> list[int]:
    """Return after how many blocks verdicts on the study in `folder` were shown, in order."""
    try:
        lines = (folder / LOOKS_FILE).read_text(encoding="utf-8").splitlines()
        return sorted({int(json.loads(line)["blocks"]) for line in lines})
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeapfitError(
            f"{folder / LOOKS_FILE} is damaged, so how often verdicts were shown is not known; "
            "use another --out"
        ) from error


def note_look(folder: Path, blocks: int) -> None:
    """Keep that a verdict on so many blocks was shown, unless that is known.

    Whoever adds trials after seeing a verdict has one more chance to see a difference.
    """
    try:
        with (folder / LOOKS_FILE).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # others may report on the same study
            if blocks not in looks(folder):
                _append_look(file, blocks)
    except OSError as error:
        # Where nobody may write nobody adds trials either; what the page says of it suffices.
        if not is_forbidden(error):
            raise cannot_write(folder, error) from error


def _append_look(file: BinaryIO, blocks: int) -> None:
    line = json.dumps({"blocks": blocks, "at": datetime.now(UTC).isoformat()}) + "\n"
    end = file.seek(0, os.SEEK_END)
    try:
        _write_all(file.fileno(), line.encode())
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), end)
        raise


def check_takes(folder: Path, study: Study) -> list[Trial]:
    """Raise `UsageError` if `folder` holds another study; return the trials it has of this one.

    Changes nothing on disk.
    """
    return _trials_in(folder) if _earlier_in(folder, study) else []


_MOST_NAMED = 3

# What says how a study is shown, or how long it goes on, and not what it measures: the latest word
# counts.
_PRESENTED = ("title", "shown", "weights", "published", "rule")


class Journal:
    """The open folder of a study that runs. Only one process can have it open."""

    def __init__(
        self, folder: Path, study: Study, identify: Identify | None = None, *, mix: bool = False
    ) -> None:
        """Open or make `folder` for `study`; an earlier run of the same study is gone on with.

        That is, if it measured what `identify` says is measured now, or with `mix`; else what is
        there is put aside. `notices` then say so. Raises `UsageError` if the folder holds another
        study, `HeapfitError` if it cannot be written.
        """
        self.folder = folder
        self.notices: list[str] = []
        self._open()
        try:
            earlier = _earlier_in(folder, study)
            self.trials = self._recover()
            if identify is not None:
                earlier, study = self._enter(earlier, study, identify, mix)
            self.study = self._agree(earlier, study)
        except BaseException:
            os.close(self._fd)
            raise

    def _open(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / TRIALS_FILE
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        try:
            lock(fd, self.folder)
            # Who had it until now may have put it aside: what is locked is then an earlier study's.
            if not (path.exists() and os.path.samestat(os.fstat(fd), path.stat())):
                raise FolderBusy(self.folder)
        except FolderBusy:
            os.close(fd)
            raise
        self._fd = fd

    def append(self, trial: Trial) -> None:
        """Add a finished trial; it is on disk when this returns.

        On a full disk raises `HeapfitError` and leaves the trials before this one as they were.
        """
        line = trial.model_dump_json().encode() + b"\n"
        try:
            _write_all(self._fd, line)
            os.fsync(self._fd)
        except OSError as error:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            raise cannot_write(self.folder, error) from error
        self._size += len(line)
        self.trials.append(trial)

    def extend(self, replicates: int) -> None:
        """Continue the study's plan to `replicates`."""
        self._keep(extended(self.study, replicates))

    def cut(self) -> None:
        """Leave out of the plan what has not run and shall not."""
        done = {trial.planned.index for trial in self.trials}
        plan = [planned for planned in self.study.plan if planned.index in done]
        replicates = max((p.replicate for p in plan if not p.warmup), default=1)
        self._keep(self.study.model_copy(update={"plan": plan, "replicates": replicates}))

    def leave_out(self, cells: Collection[Cell]) -> bool:
        """Leave out of the plan what has not run of these treatments in their settings; return
        whether there was any."""
        done = {trial.planned.index for trial in self.trials}
        plan = [p for p in self.study.plan if p.index in done or cell_of(p) not in cells]
        is_shorter = len(plan) < len(self.study.plan)
        if is_shorter:
            self._keep(self.study.model_copy(update={"plan": plan}))
        return is_shorter

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _agree(self, earlier: Study | None, study: Study) -> Study:
        """Return the study that this folder is about: `study`, or its earlier, longer, self."""
        agreed = study
        if earlier is not None:
            longer = study.replicates > earlier.replicates
            if study.replicates < earlier.replicates and len(self.trials) < len(earlier.plan):
                self.notices.append(
                    f"This study was begun with {earlier.replicates} replicates, and continues "
                    f"up to these: asking for {study.replicates} takes none away. Another "
                    "--out begins another study."
                )
            agreed = extended(earlier, study.replicates) if longer else earlier
            present = {each.name: each for each in study.allocators}
            agreed = agreed.model_copy(
                update={
                    **{name: getattr(study, name) for name in _PRESENTED},
                    # In their order, by which the trials are shuffled, as they are now.
                    "allocators": [present[each.name] for each in earlier.allocators],
                    "sessions": study.sessions or earlier.sessions,
                    "was_stopped": earlier.stops_by_figures,
                }
            )
        if agreed != earlier:
            self._write(agreed)
        return agreed

    def _keep(self, study: Study) -> None:
        self._write(study)
        self.study = study

    def _write(self, study: Study) -> None:
        try:
            write_durably(self.folder / STUDY_FILE, study.model_dump_json(indent=1).encode())
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    # ------------------------------------------------------- what is measured

    def _enter(
        self, earlier: Study | None, study: Study, identify: Identify, mix: bool
    ) -> tuple[Study | None, Study]:
        """Set what is measured now against what the folder's trials measured.

        Return the earlier study, None when it has been put aside, and `study` with its sessions.
        """
        sessions = earlier.sessions if earlier and self.trials else []
        last = next((each for each in reversed(sessions) if each.machine is None), None)
        now = identify(last.identity if last else None)
        changed = differences(last.identity, now) if last else [_UNKNOWN] if self.trials else []
        if last is not None and not changed:
            same = last.model_copy(update={"identity": continued(last.identity, now)})
            sessions = [same if each is last else each for each in sessions]
            return earlier, study.model_copy(update={"sessions": sessions})
        if earlier is not None and changed:
            self.notices = told(changed, _of_trials(self.trials, last))
            if mix:
                self.notices.append("The study continues all the same (--mix).")
            else:
                kept = self._put_aside(last.began if last else earlier.created)
                self.notices.append(
                    "So it starts anew. What was measured before is kept: heapfit report "
                    f"{kept}. With --mix the study would have continued."
                )
                earlier, sessions = None, []
        study = study.model_copy(update={"sessions": sessions})
        return earlier, _with_session(study, now, first=len(self.trials))

    def _put_aside(self, began: datetime) -> Path:
        """Move the folder's study and trials to a folder below it, which is returned.

        The plan is copied before the trials are moved, so that at each moment one of the two
        folders has both.
        """
        name = f"{began.astimezone():%Y-%m-%dT%H.%M.%S}"
        try:
            kept = _unused(self.folder / EARLIER, name)
            shutil.copy2(self.folder / STUDY_FILE, kept)
            (self.folder / TRIALS_FILE).rename(kept / TRIALS_FILE)
            for file in (*self.folder.glob(LOOKS_FILE), *self.folder.glob(f"{_PAGES}.*")):
                file.rename(kept / file.name)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        held = self._fd
        self._open()
        os.close(held)
        self.trials, self._size = [], 0
        return kept

    def joined(self, machine: str, now: Identity, *, mix: bool) -> None:
        """A machine of several takes part, which measures `now`; `HeapfitError` if that is not what
        it measured before, unless `mix`."""
        own = [each for each in self.study.sessions if each.machine == machine]
        if own:
            changed = differences(own[-1].identity, now)
            if not changed:
                return
            if not mix:
                since = _of_trials([t for t in self.trials if t.machine == machine], own[-1])
                raise HeapfitError(
                    f"{' '.join(told(changed, since))} Begin anew with --out, or continue with "
                    "--mix"
                )
        count = sum(each.machine == machine for each in self.trials)
        self._keep(_with_session(self.study, now, first=count, machine=machine))

    def goes_on_with(self, now: Identity) -> None:
        """What is measured has changed in the course of a trial, and is measured all the same."""
        self._keep(_with_session(self.study, now, first=len(self.trials)))

    def measures(self, identity: Identity) -> None:
        """Replace what the present session measures: files turned out to be no part of it."""
        *before, last = self.study.sessions
        sessions = [*before, last.model_copy(update={"identity": identity})]
        self._keep(self.study.model_copy(update={"sessions": sessions}))

    def _recover(self) -> list[Trial]:
        """Return the trials on disk and cut off a torn last line."""
        path = self.folder / TRIALS_FILE
        content = path.read_bytes()
        trials, self._size = _parse(path, content)
        if self._size < len(content):  # else it would be newer than its report
            os.ftruncate(self._fd, self._size)
        os.lseek(self._fd, self._size, os.SEEK_SET)
        return trials


def _with_session(
    study: Study, measured: Identity, *, first: int, machine: str | None = None
) -> Study:
    """Return `study` with one more session, which begins now."""
    session = Session(began=datetime.now(UTC), first=first, machine=machine, identity=measured)
    return study.model_copy(update={"sessions": [*study.sessions, session]})


def _read_study(folder: Path) -> Study | None:
    path = folder / STUDY_FILE
    if not path.exists():
        return None
    try:
        return Study.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UsageError(
            f"{path} is not a study that this version can read ({where}: {first['msg']}); "
            "use another --out"
        ) from error


def _earlier_in(folder: Path, study: Study) -> Study | None:
    """Return the study that the folder holds, if any, which must be the same as `study`."""
    earlier = _read_study(folder)
    trials = folder / TRIALS_FILE
    if earlier is not None:
        _refuse_another(folder, earlier, study)
    elif trials.exists() and trials.stat().st_size:
        raise UsageError(f"{folder} has trials but no {STUDY_FILE}; use another --out")
    return earlier


def _trials_in(folder: Path) -> list[Trial]:
    path = folder / TRIALS_FILE
    return _parse(path, path.read_bytes())[0] if path.exists() else []


def _parse(path: Path, content: bytes) -> tuple[list[Trial], int]:
    """Return the trials in `content` and the size of its sound part.

    Only the last line may be unsound: that is what an interrupted write leaves. An unsound line
    before others means that something else wrote there, which is not ours to throw away.
    """
    trials: list[Trial] = []
    sound = 0
    for number, line in enumerate(content.splitlines(keepends=True), start=1):
        try:
            trials.append(Trial.model_validate_json(line))
        except ValidationError as error:
            if sound + len(line) < len(content):
                raise HeapfitError(
                    f"{path}, line {number} is damaged; remove that line to go on with the rest"
                ) from error
            break
        if not line.endswith(b"\n"):  # all there but its end; run it again rather than guess
            trials.pop()
            break
        sound += len(line)
    return trials, sound


def _refuse_another(folder: Path, earlier: Study, wanted: Study) -> None:
    before, after = _identity(earlier), _identity(wanted)
    differing = [name for name in before if before[name] != after[name]]
    if differing:
        again = f" (go on with it by: {_command_from_here(earlier)})" if earlier.reproduce else ""
        verb = "differ" if differing[0].endswith("s") or len(differing) > 1 else "differs"
        if "workload" in differing:
            parts = join_words([*_differing_keys(earlier.workload, wanted.workload)])
            differing[differing.index("workload")] = f"workload ({parts})"
        raise UsageError(
            f"{folder} holds another study: {join_words(differing)} {verb}{again}; "
            "use another --out"
        )


def _command_from_here(study: Study) -> str:
    """Return the command that repeats `study`, whose paths count from where it was given."""
    if study.directory in ("", f"{Path.cwd()}"):
        return study.reproduce
    return f"cd {shlex.quote(study.directory)} && {study.reproduce}"


def _differing_keys(before: Record, after: Record, within: str = "") -> Iterator[str]:
    """Yield what differs of two records, as the keys of its TOML file: `run.command`."""
    for key, old in before:
        new = getattr(after, key)
        if isinstance(old, Record) and isinstance(new, Record):
            yield from _differing_keys(old, new, f"{within}{key}.")
        elif old != new:
            yield f"{within}{key}"


_UNKNOWN = "what is measured may have changed, since it was not recorded then,"

# The page and its companions, whatever their endings.
_PAGES = "report"


def _of_trials(trials: list[Trial], session: Session | None) -> str:
    """Name the trials of a session: how many, and when they began."""
    count = len(trials) - (session.first if session else 0)
    began = (session.began if session else trials[0].started).astimezone()
    is_today = began.date() == datetime.now().astimezone().date()
    when = f"{began:%H:%M}" if is_today else f"{began:%-d %B %Y, %H:%M}"
    return f"the {counted(count, 'trial')} of {when}" if count else f"{when}, before any trial"


def _unused(parent: Path, name: str) -> Path:
    """Make and return a new folder of this name, or one like it."""
    parent.mkdir(exist_ok=True)
    folder, number = parent / name, 2
    while folder.exists():
        folder, number = parent / f"{name}-{number}", number + 1
    folder.mkdir()
    return folder


def _identity(study: Study) -> dict[str, object]:
    """What the command line says, by names for the user; replicates are not part of it.

    What that stands for on this machine, and may change, is in `identity.py`.
    """
    return {
        "workload": study.workload,
        "allocators": sorted(map(_allocator_identity, study.allocators)),
        "baseline": study.baseline,
        "cores": study.cores,
        "factors": study.factors,
        "parameters": study.parameters,
        "warm-ups": study.warmups,
        "seed": study.seed,
        "metrics": sorted(metric.name for metric in study.metrics),
        "time-out": study.timeout_s,
        "schema": study.schema_version,
    }


def _allocator_identity(allocator: InstalledAllocator) -> tuple[object, ...]:
    sets = (allocator.environment, allocator.parameters, allocator.options, allocator.record or {})
    watched = (allocator.record is not None, *allocator.wrapper)
    items = (sorted(each.items()) for each in sets)
    return allocator.name, allocator.library is not None, *items, watched


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def lock(fd: int, folder: Path) -> None:
    """Lock the open file or folder `fd` until it is closed; FolderBusy if another process has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderBusy(folder) from error


def cannot_write(folder: Path, error: OSError) -> HeapfitError:
    """Return the error for a study's folder that cannot be written."""
    reason = (error.strerror or str(error)).lower()
    remedy = (
        "nothing can be kept there, so choose another place with --out, or make it writable and "
        "repeat the same command"
        if is_forbidden(error)
        else "make room or mend it and repeat the same command: what is measured is kept"
    )
    return HeapfitError(f"cannot write to {folder}: {reason}; {remedy}")
