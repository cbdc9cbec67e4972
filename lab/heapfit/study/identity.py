"""Record what a study measures beyond its command line: files, environment, kernel.

Programs are rebuilt, libraries upgraded and variables set between two runs of one command, and
their trials must not be mixed. A study therefore keeps an `Identity`: the checksums of all files,
and the settings of the machine. After every trial, a `Watch` looks at the inode, size and times of
the same files, which takes some microseconds each; it reads a file again only where these differ.

Not known: what a program loads or starts later by itself (plug-ins, modules of a script), and what
it reads without being told so on its command line.
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

import heapfit
from heapfit.doctor.program import libraries_of, linked_allocator
from heapfit.host.machine import inherited_settings, memory_settings
from heapfit.host.program import interpreter_of
from heapfit.record import options as record
from heapfit.records import Identity, MeasuredFile, Study
from heapfit.text import capitalised
from heapfit.trial.placeholders import Levels, Placeholders

# A larger file that is neither program nor library is known by size and time: a second to read it.
MOST_READ_BYTES = 1 << 28

# An interpreter's script needs neither a `#!` line nor the right to be executed.
_SCRIPT_SUFFIXES = (".R", ".awk", ".jar", ".jl", ".js", ".lua", ".mjs", ".php", ".pl", ".py", ".rb",
                    ".sh", ".sql", ".tcl")  # fmt: skip
# Placeholders that name no file which exists before the trial.
_OF_ONE_TRIAL = ("{scratch}", "{port}")
# Files that a command line names beside its program. One that is new is the program's output.
_ARGUMENTS = ("script", "file")
_MOST_TOLD = 5

Role = Literal["program", "client", "interpreter", "script", "file", "library", "allocator"]
Stamp = tuple[int, ...]
# The name of the program or allocator that a file belongs to, its role, its path.
NamedFile = tuple[str, Role, Path]


def identify(study: Study, data: Path | None, known: Identity | None = None) -> Identity:
    """Return what `study` measures now, on this machine; `data` is its workload's data folder.

    A file whose stamp is as in `known` is not read again.
    """
    read = {} if known is None else {(each.path, each.stamp): each for each in known.files}
    files: dict[tuple[str, Path], MeasuredFile] = {}
    linked: dict[str, Path] = {}
    for of, role, path in [*_program_files(study, data), *_allocator_files(study)]:
        if (of, path) in files:
            continue
        files[of, path] = _measured(of, role, path, read)
        if role == "program" and (library := linked_allocator(_libraries_behind(path))):
            linked.setdefault(of, library)
    return Identity(
        files=list(files.values()),
        environment=inherited_settings(),
        system={
            "processor": study.machine.cpu,
            "kernel": platform.release(),
            "C library": os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
            "version of heapfit": heapfit.__version__,
            **memory_settings(),
        },
        linked_allocators=linked,
    )


class Watch:
    """Checks after each trial whether the measured files are still the same."""

    def __init__(self, identity: Identity, *, is_new: bool) -> None:
        """Watch the files of `identity`; `is_new` says that no trial has run with it yet."""
        self.identity = identity
        self.touched = False  # whether the last check found a file with another stamp
        self._is_first = is_new

    def changed(self) -> list[str]:
        """Return what has changed since the last check, each as a clause.

        A file that is merely named on the command line and changes in the course of the first trial
        is the program's own output, and is watched no more.
        """
        touched = [each for each in self.identity.files if _stamp(each.path) != each.stamp]
        self.touched = bool(touched)
        output = [each for each in touched if self._is_first and each.role == "file"]
        self._is_first = False
        watched = [each for each in touched if each not in output]
        again = [_measured(each.of, each.role, each.path, {}) for each in watched]
        found = list(_differing_files(watched, again))
        if touched and not found:
            anew = {(each.of, each.path): each for each in again}
            files = [
                anew.get((each.of, each.path), each)
                for each in self.identity.files
                if each not in output
            ]
            self.identity = self.identity.model_copy(update={"files": files})
        return found


# ---------------------------------------------------------------------- files


def _program_files(study: Study, data: Path | None) -> Iterator[NamedFile]:
    """Yield the files of every command of the trials: its program, libraries, named files."""
    work = study.workload
    commands: list[tuple[Role, list[str]]] = [("program", work.run.command)]
    if work.server is not None:
        commands = [("program", work.server.command), ("client", work.run.command)]
    commands += [("client", each.wrapper) for each in study.allocators if each.wrapper]
    stdin = [work.run.stdin] if work.run.stdin else []
    for of, values in _values(study, data):
        for role, command in commands:
            known = [each for each in command if not any(name in each for name in _OF_ONE_TRIAL)]
            for own_role, path in _of_command(study, role, values.expand_all(known)):
                yield of, own_role, path
        for name in values.expand_all(stdin):
            yield of, "file", work.here.resolve() / name


def _values(study: Study, data: Path | None) -> Iterator[tuple[str, Placeholders]]:
    """Yield each combination of the placeholders' values once, with the program's name."""
    seen = set()
    for allocator in study.allocators:
        for cores, levels in study.settings():
            parameters = Levels.of(study, allocator.name, dict(levels)).parameters
            of = allocator.program or study.workload.name
            key = (of, cores, *sorted(parameters.items()))
            if key not in seen:
                seen.add(key)
                # Without a [prepare] step, the first trial reports the use of {data}.
                folder = data or Path("/nonexistent")
                yield of, Placeholders(study.workload, Path(), cores, folder, parameters)


def _of_command(study: Study, role: Role, words: Sequence[str]) -> Iterator[tuple[Role, Path]]:
    here = study.workload.here.resolve()
    path = study.workload.run.environment.get("PATH")
    found = _executable(words[0], here, path) if words else None
    if found is not None:
        yield role, found
        interpreter = interpreter_of(found)
        if interpreter != found:
            yield "interpreter", interpreter
        for library in _libraries_behind(found):
            yield "library", library
    for word in words[1:]:
        for name in (word, word.partition("=")[2]):  # `FILE`, `--input=FILE`, `if=FILE`
            if _is_file(here / name):
                yield "script" if _is_script(here / name) else "file", here / name


def _libraries_behind(program: Path) -> list[Path]:
    interpreter = interpreter_of(program)
    return _libraries(interpreter, _stamp(interpreter))


@lru_cache(maxsize=64)
def _libraries(program: Path, stamp: Stamp) -> list[Path]:
    """Ask the loader once per file for all settings of a study; `stamp` is for the cache."""
    return libraries_of(program)


def _executable(program: str, here: Path, path: str | None) -> Path | None:
    """Find a program as the launcher does, which runs in the folder `here`."""
    if "/" in program:
        return here / program
    found = shutil.which(program, path=path)
    return Path(found) if found else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # A word that is no path: too long, say.
        return False


def _is_script(path: Path) -> bool:
    if path.suffix in _SCRIPT_SUFFIXES or os.access(path, os.X_OK):
        return True
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _allocator_files(study: Study) -> Iterator[NamedFile]:
    for each in study.allocators:
        name = (each.variant_of or each).name
        if each.library is not None:
            yield name, "allocator", each.library
        if each.record is not None:
            yield name, "allocator", record.library()


def _measured(
    of: str, role: Role, path: Path, known: dict[tuple[Path, Stamp], MeasuredFile]
) -> MeasuredFile:
    stamp = _stamp(path)
    same = known.get((path, stamp))
    checksum = same.sha256 if same is not None else _checksum(path, role)
    return MeasuredFile(of=of, role=role, path=path, sha256=checksum, stamp=stamp)


def _stamp(path: Path) -> Stamp:
    """Return what changes with a file; nothing for one that does not exist."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _checksum(path: Path, role: Role) -> str | None:
    try:
        if role == "file" and path.stat().st_size > MOST_READ_BYTES:
            return None
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


# ---------------------------------------------------------------- differences


def differences(before: Identity, now: Identity) -> list[str]:
    """Return what has changed, each as a clause: "the program ./a has changed"."""
    clauses = (
        *_differing_files(before.files, now.files),
        *_differing_settings(before.environment, now.environment, "{}"),
        *_differing_settings(before.system, now.system, "the {}"),
    )
    return list(dict.fromkeys(clauses))  # Two programs may share a library.


def sentences(clauses: Sequence[str], since: str) -> list[str]:
    """Return sentences of what has changed `since` some trials, of the first few changes."""
    more = len(clauses) - _MOST_TOLD
    said = [f"{capitalised(each)} since {since}." for each in clauses[:_MOST_TOLD]]
    return [*said, f"{more} more of what was measured differ, too."] if more > 0 else said


def without_output(now: Identity, before: Identity) -> Identity:
    """Return `now`, which does not differ from `before`, without the files that `before` left out
    as the program's output."""
    kept = {each.path for each in before.files}
    files = [each for each in now.files if each.role not in _ARGUMENTS or each.path in kept]
    return now.model_copy(update={"files": files})


def _differing_files(before: Iterable[MeasuredFile], now: Iterable[MeasuredFile]) -> Iterator[str]:
    """Compare file by file. A file that has moved is paired with its namesake of the same role."""
    left = {(each.of, each.path): each for each in now}
    unpaired = []
    for each in before:
        other = left.pop((each.of, each.path), None)
        if other is None:
            unpaired.append(each)
        elif not _same(each, other):
            yield f"{_named(each)} has {'changed' if other.stamp else 'gone'}"
    for each in unpaired:
        moved = next((key for key, other in left.items() if _namesakes(each, other)), None)
        other = left.pop(moved) if moved else None
        if other is None and each.role != "file":
            yield f"{_named(each)} is no longer used"
        elif other is not None and not _same(each, other):
            yield f"{_named(each)} has changed, and is now {other.path}"
    for each in left.values():
        if each.role not in _ARGUMENTS:
            yield f"{_named(each)} has come to be used"


def _same(before: MeasuredFile, now: MeasuredFile) -> bool:
    if before.sha256 is None or now.sha256 is None:  # Compare size and time of content.
        return before.stamp[1:3] == now.stamp[1:3] and before.sha256 == now.sha256
    return before.sha256 == now.sha256


def _namesakes(before: MeasuredFile, now: MeasuredFile) -> bool:
    """Tell whether one file may have taken the other's place: a library of the same name in another
    folder; a program or an allocator, of which there is as a rule one."""
    if (before.of, before.role) != (now.of, now.role):
        return False
    return before.path.name == now.path.name or before.role in ("program", "allocator")


def _named(file: MeasuredFile) -> str:
    match file.role:
        case "library":
            return f"the library {file.path}, which the program uses,"
        case "allocator":
            return f"the library {file.path} of {file.of}"
        case "client":
            return f"the program {file.path}"
        case _:
            return f"the {file.role} {file.path}"


def _differing_settings(before: dict[str, str], now: dict[str, str], subject: str) -> Iterator[str]:
    for name in sorted({*before, *now}):
        old, new, named = before.get(name), now.get(name), subject.format(name)
        if old == new:
            continue
        if old is None:
            yield f"{named} has been set to {new!r}"
        elif new is None:
            yield f"{named}, which was {old!r}, has been unset"
        else:
            yield f"{named} has changed from {old!r} to {new!r}"
