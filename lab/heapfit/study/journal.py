"""A study's folder on disk: its plan in `study.json`, a line per finished trial in `trials.jsonl`,
a line in `looks.jsonl` for each time that a verdict on more of them was shown.

A trial is safe as soon as `append` returns. When the study continues, a last line that a kill, a
power cut or a full disk cut short is removed; everything before it stays. Trials that measured
something else than the command would measure now are moved, all together, into a folder below.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from heapfit.errors import AnotherStudy, FolderBusy, HeapfitError, UsageError
from heapfit.files import is_forbidden, write_durably
from heapfit.records import Identity, InstalledAllocator, Record, Session, Study, Trial
from heapfit.study.identity import differences, sentences, without_output
from heapfit.study.plan import extended
from heapfit.study.stopping import Cell, cell_of
from heapfit.text import counted, join_words, shell_word

STUDY_FILE = "study.json"
TRIALS_FILE = "trials.jsonl"
LOOKS_FILE = "looks.jsonl"
# The folder below a study's with what it held before its program or its machine changed.
EARLIER = "earlier"
# The page and its companions, whatever their endings.
_PAGES = "report"

_MOST_NAMED = 3

# What says how a study is shown, or how long it continues, and not what it measures: the present
# command's values replace the earlier ones.
_PRESENTED = ("title", "shown", "weights", "published", "rule", "primary_metric")
# Likewise, unless the present command asks for fewer replicates than the study keeps.
_REPEATING = ("reproduce", "directory")

# Returns what is measured now, given what was found before, which need not be read again.
Identify = Callable[[Identity | None], Identity]


# ---------------------------------------------------------------------- reading


def load(folder: Path) -> tuple[Study, list[Trial]]:
    """Read a study's folder, finished or not, without changing it."""
    study = _read_study(folder)
    if study is None:
        raise UsageError(_no_study(folder))
    return study, _read_trials(folder)


def check_takes(folder: Path, study: Study) -> list[Trial]:
    """Raise `UsageError` if `folder` holds another study; return the trials it has of this one.

    Changes nothing on disk.
    """
    return _read_trials(folder) if _earlier_in(folder, study) else []


def is_running(folder: Path) -> bool:
    """Tell whether a process runs the study, of one part or many, in `folder` now."""
    trials = folder / TRIALS_FILE
    locked = os.open(trials if trials.exists() else folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(locked, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(locked)
    return False


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


def _read_trials(folder: Path) -> list[Trial]:
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


# ------------------------------------------------------------------------ looks
#
# Adding trials after seeing a verdict gives one more chance to see a difference, so a report says
# how often verdicts were shown.


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
    """Record that a verdict on so many blocks was shown, unless that is known."""
    line = json.dumps({"blocks": blocks, "at": datetime.now(UTC).isoformat()})
    try:
        with (folder / LOOKS_FILE).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # others may report on the same study
            if blocks not in looks(folder):
                _append_line(file.fileno(), line)
    except OSError as error:
        # Where the folder cannot be written no trials are added, so the page's own note suffices.
        if not is_forbidden(error):
            raise cannot_write(folder, error) from error


# ---------------------------------------------------------------------- writing


class Journal:
    """The open folder of a study that runs. Only one process can have it open."""

    def __init__(
        self,
        folder: Path,
        study: Study,
        identify: Identify | None = None,
        *,
        mix: bool | None = None,
    ) -> None:
        """Open or make `folder` for `study`, and continue an earlier run of the same study.

        Where the earlier run measured something else than `identify` says is measured now, its
        trials are moved aside, unless `mix` is set; `notices` say so, and name --mix unless it is
        None. Raises `UsageError` if the folder holds another study, `HeapfitError` if it cannot be
        written.
        """
        self.folder = folder
        self.notices: list[str] = []
        if not (folder / STUDY_FILE).exists():
            refuse_pages(folder)  # before anything is written to what may be a folder of others
        self._open()
        try:
            earlier = _earlier_in(folder, study)
            self.trials = self._recover()
            if identify is not None:
                earlier, study = self._begin_session(earlier, study, identify, mix)
            self.study = self._continued(earlier, study)
            if self.study != earlier:
                self._keep(self.study)
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
            # The process that had it until now may have moved it aside, and with it this lock.
            if not (path.exists() and os.path.samestat(os.fstat(fd), path.stat())):
                raise FolderBusy(self.folder)
        except FolderBusy:
            os.close(fd)
            raise
        self._fd = fd

    def _recover(self) -> list[Trial]:
        """Return the trials on disk and cut off a torn last line."""
        path = self.folder / TRIALS_FILE
        content = path.read_bytes()
        trials, size = _parse(path, content)
        if size < len(content):
            os.ftruncate(self._fd, size)
        return trials

    def append(self, trial: Trial) -> None:
        """Add a finished trial; it is on disk when this returns.

        On a full disk raises `HeapfitError` and leaves the trials before this one as they were.
        """
        try:
            _append_line(self._fd, trial.model_dump_json())
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        self.trials.append(trial)

    def extend(self, replicates: int) -> None:
        """Continue the study's plan to `replicates`."""
        self._keep(extended(self.study, replicates))

    def cut(self) -> None:
        """Remove from the plan all trials that have not run."""
        done = {trial.planned.index for trial in self.trials}
        plan = [planned for planned in self.study.plan if planned.index in done]
        replicates = max((p.replicate for p in plan if not p.warmup), default=1)
        self._update(plan=plan, replicates=replicates)

    def leave_out(self, cells: Collection[Cell]) -> bool:
        """Remove from the plan the trials of `cells` that have not run; return whether there was
        any."""
        done = {trial.planned.index for trial in self.trials}
        plan = [p for p in self.study.plan if p.index in done or cell_of(p) not in cells]
        is_shorter = len(plan) < len(self.study.plan)
        if is_shorter:
            self._update(plan=plan)
        return is_shorter

    def close(self) -> None:
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _continued(self, earlier: Study | None, study: Study) -> Study:
        """Return the study that this folder is about: `study`, or its earlier, longer, self."""
        if earlier is None:
            return study
        if study.replicates < earlier.replicates and len(self.trials) < len(earlier.plan):
            self.notices.append(
                f"This study was begun with {earlier.replicates} replicates, and continues "
                f"up to these: asking for {study.replicates} takes none away. Another "
                "--out begins another study."
            )
        is_longer = study.replicates > earlier.replicates
        is_whole = study.rule is not None or study.replicates >= earlier.replicates
        present = {each.name: each for each in study.allocators}
        return (extended(earlier, study.replicates) if is_longer else earlier).model_copy(
            update={
                **{n: getattr(study, n) for n in (*_PRESENTED, *(_REPEATING if is_whole else ()))},
                # As they are now, in their earlier order, by which the trials are shuffled.
                "allocators": [present[each.name] for each in earlier.allocators],
                "sessions": study.sessions or earlier.sessions,
                "was_stopped": earlier.stops_by_figures,
            }
        )

    def _update(self, **fields: object) -> None:
        self._keep(self.study.model_copy(update=fields))

    def _keep(self, study: Study) -> None:
        try:
            write_durably(self.folder / STUDY_FILE, study.model_dump_json(indent=1).encode())
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        self.study = study

    # ----------------------------------------------------------------- sessions
    #
    # A session is a run of trials that all measured the same.

    def _begin_session(
        self, earlier: Study | None, study: Study, identify: Identify, mix: bool | None
    ) -> tuple[Study | None, Study]:
        """Compare what is measured now with what the folder's trials measured.

        Return the earlier study, None when it was moved aside, and `study` with its sessions.
        """
        sessions = earlier.sessions if earlier and self.trials else []
        last = next((each for each in reversed(sessions) if each.machine is None), None)
        now = identify(last.identity if last else None)
        # Trials without a session of this machine were made on a cluster.
        other = ["the machine has changed"] if self.trials else []
        changed = differences(last.identity, now) if last else other
        if last is not None and not changed:
            same = last.model_copy(update={"identity": without_output(now, last.identity)})
            sessions = [same if each is last else each for each in sessions]
            return earlier, study.model_copy(update={"sessions": sessions})
        if earlier is not None and changed:
            self.notices = sentences(changed, _when(self.trials, last))
            if mix:
                self.notices.append("The study continues all the same (--mix).")
            else:
                kept = self._move_aside(last.began if last else earlier.created)
                self.notices.append(
                    "So it starts over. The earlier trials are kept: heapfit report "
                    f"{shell_word(kept)}."
                    f"{'' if mix is None else ' With --mix the study would have continued.'}"
                )
                earlier, sessions = None, []
        sessions = [*sessions, _session(now, first=len(self.trials))]
        return earlier, study.model_copy(update={"sessions": sessions})

    def _move_aside(self, began: datetime) -> Path:
        """Move the folder's study and trials to a folder below it, which is returned.

        The plan is copied before the trials are moved, so that at each moment one of the two
        folders has both.
        """
        name = f"{began.astimezone():%Y-%m-%dT%H.%M.%S}"
        try:
            kept = _make_folder(self.folder / EARLIER, name)
            shutil.copy2(self.folder / STUDY_FILE, kept)
            (self.folder / TRIALS_FILE).rename(kept / TRIALS_FILE)
            for file in (*self.folder.glob(LOOKS_FILE), *self.folder.glob(f"{_PAGES}.*")):
                file.rename(kept / file.name)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        held = self._fd
        self._open()
        os.close(held)
        self.trials = []
        return kept

    def add_machine(self, machine: str, now: Identity, *, mix: bool) -> None:
        """Record that a machine of a cluster measures `now`; raise `HeapfitError` if that is not
        what it measured before, unless `mix` is set."""
        own = [each for each in self.study.sessions if each.machine == machine]
        trials = [each for each in self.trials if each.machine == machine]
        if own:
            changed = differences(own[-1].identity, now)
            if not changed:
                return
            if not mix:
                raise HeapfitError(
                    f"{' '.join(sentences(changed, _when(trials, own[-1])))} Start over with "
                    "--out, or continue with --mix"
                )
        self._add_session(_session(now, first=len(trials), machine=machine))

    def change_to(self, now: Identity) -> None:
        """Record that what is measured has changed, and that the study continues with `now`."""
        self._add_session(_session(now, first=len(self.trials)))

    def _add_session(self, session: Session) -> None:
        self._update(sessions=[*self.study.sessions, session])

    def correct_session(self, identity: Identity) -> None:
        """Replace what the present session measures: files turned out to be no part of it."""
        *before, last = self.study.sessions
        self._update(sessions=[*before, last.model_copy(update={"identity": identity})])


def _session(identity: Identity, *, first: int, machine: str | None = None) -> Session:
    return Session(began=datetime.now(UTC), first=first, machine=machine, identity=identity)


def _when(trials: Sequence[Trial], session: Session | None) -> str:
    """Name the trials of a session: how many, and when they began."""
    count = len(trials) - (session.first if session else 0)
    began = (session.began if session else trials[0].started).astimezone()
    is_today = began.date() == datetime.now().astimezone().date()
    when = f"{began:%H:%M}" if is_today else f"{began:%-d %B %Y, %H:%M}"
    return f"the {counted(count, 'trial')} of {when}" if count else f"{when}, before any trial"


def set_aside(studies: Sequence[Path], folder: Path) -> Path:
    """Move the folders of studies below `folder` to a new folder there, which is returned."""
    try:
        kept = _make_folder(folder / EARLIER, f"{datetime.now():%Y-%m-%dT%H.%M.%S}")
        for each in studies:
            each.rename(kept / each.name)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return kept


def _make_folder(parent: Path, name: str) -> Path:
    """Make and return a new folder of this name, with a number behind it if it is taken."""
    parent.mkdir(exist_ok=True)
    folder, number = parent / name, 2
    while folder.exists():
        folder, number = parent / f"{name}-{number}", number + 1
    folder.mkdir()
    return folder


def _append_line(fd: int, line: str) -> None:
    """Append a line to an open file, on disk when this returns; on failure, nothing of it stays."""
    end = os.lseek(fd, 0, os.SEEK_END)
    content = line.encode() + b"\n"
    try:
        while content:
            content = content[os.write(fd, content) :]
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, end)
        raise


def lock(fd: int, folder: Path) -> None:
    """Lock the open file or folder `fd` until it is closed; FolderBusy if another process has."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise FolderBusy(folder) from error


def cannot_write(folder: Path, error: OSError) -> HeapfitError:
    """Return the error for a study's folder that cannot be written."""
    reason = (error.strerror or str(error)).lower()
    is_no_folder = isinstance(error, (FileNotFoundError, FileExistsError, NotADirectoryError))
    remedy = "make room or mend it and repeat the same command"
    if is_forbidden(error) or is_no_folder:
        remedy = (
            "nothing can be kept there, so choose another place with --out, or make it writable "
            "and repeat the same command"
        )
    elif any(each.stat().st_size for each in folder.glob(f"**/{TRIALS_FILE}")):
        remedy += ": completed trials are kept"
    return HeapfitError(f"cannot write to {folder}: {reason}; {remedy}")


# -------------------------------------------------------- the same study or another


def _earlier_in(folder: Path, study: Study) -> Study | None:
    """Return the study that the folder holds, if any, which must be the same as `study`."""
    earlier = _read_study(folder)
    trials = folder / TRIALS_FILE
    if earlier is not None:
        _refuse_another(folder, earlier, study)
    elif trials.exists() and trials.stat().st_size:
        raise UsageError(f"{folder} has trials but no {STUDY_FILE}; use another --out")
    else:
        refuse_pages(folder)
    return earlier


def refuse_pages(folder: Path) -> None:
    """Raise `UsageError` where a folder without a study has files that its report would replace."""
    for name in (f"{_PAGES}.{ending}" for ending in ("html", "md", "json")):
        if (folder / name).exists():
            raise UsageError(
                f"{folder / name} is of no study and would be replaced; use another --out"
            )


def _refuse_another(folder: Path, earlier: Study, wanted: Study) -> None:
    before, after = _asked_for(earlier), _asked_for(wanted)
    differing = [name for name in before if before[name] != after[name]]
    if differing:
        again = f" (go on with it by: {_command_from_here(earlier)})" if earlier.reproduce else ""
        verb = "differ" if differing[0].endswith("s") or len(differing) > 1 else "differs"
        if "workload" in differing:
            parts = join_words([*_differing_keys(earlier.workload, wanted.workload)])
            differing[differing.index("workload")] = f"workload ({parts})"
        raise AnotherStudy(
            f"{folder} holds another study: {join_words(differing)} {verb}{again}; "
            "use another --out"
        )


def _asked_for(study: Study) -> dict[str, object]:
    """Return what the command line says, by names for the user, except the replicates.

    What that stands for on this machine, and may change, is in `identity.py`.
    """
    return {
        "workload": study.workload,
        "allocators": sorted(map(_allocator_asked_for, study.allocators)),
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


def _allocator_asked_for(allocator: InstalledAllocator) -> tuple[object, ...]:
    sets = (allocator.environment, allocator.parameters, allocator.options, allocator.record or {})
    watched = (allocator.record is not None, *allocator.wrapper)
    items = (sorted(each.items()) for each in sets)
    return allocator.name, allocator.library is not None, *items, watched


def _differing_keys(before: Record, after: Record, within: str = "") -> Iterator[str]:
    """Yield what differs of two records, as the keys of its TOML file: `run.command`."""
    for key, old in before:
        new = getattr(after, key)
        if isinstance(old, Record) and isinstance(new, Record):
            yield from _differing_keys(old, new, f"{within}{key}.")
        elif old != new:
            yield f"{within}{key}"


def _command_from_here(study: Study) -> str:
    """Return the command that repeats `study`, whose paths count from where it was given."""
    if study.directory in ("", f"{Path.cwd()}"):
        return study.reproduce
    return f"cd {shell_word(study.directory)} && {study.reproduce}"
