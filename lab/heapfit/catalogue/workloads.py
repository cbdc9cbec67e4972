"""The workloads: each `workload.toml` in the workloads folder, and TOML files that users write.

A workload may need programs installed and data prepared. Prepared data is kept in the data folder
as `workloads/NAME-vVERSION`, for a user's file with a digest of its folder's path behind it, and
made again when the workload's preparation changes, or the machine: it may have been compiled.
"""

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from heapfit import paths
from heapfit.catalogue import debian
from heapfit.catalogue.command import filled, last_line, run_quietly
from heapfit.catalogue.record_file import read_record
from heapfit.catalogue.sources import replaced
from heapfit.catalogue.variants import PLACEHOLDER
from heapfit.compiling import system
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.files import check_name
from heapfit.host.program import cannot_start, check_text, started_by
from heapfit.records import Workload, WorkloadPrepare, WorkloadRun
from heapfit.text import shell_word

FILE_NAME = "workload.toml"
_MANIFEST = ".prepared.json"
_DIGEST_LENGTH = 6


def load_workloads(folders: Iterable[Path] | None = None) -> dict[str, Workload]:
    """Return the workloads of `folders` (by default heapfit's own) by name.

    Raises UsageError when two folders hold a workload of the same name.
    """
    found: dict[str, Workload] = {}
    for folder in folders if folders is not None else [paths.workloads_dir()]:
        for path in sorted(folder.glob(f"**/{FILE_NAME}")):
            workload = load_workload(path)
            if workload.name in found:
                raise UsageError(f"two workloads are called {workload.name!r}: see {path}")
            found[workload.name] = workload
    return found


def load_workload(path: Path) -> Workload:
    """Return the workload that the TOML file `path` describes."""
    return read_record(path, Workload, here=path.absolute().parent)


def resolve_workload(name: str) -> Workload:
    """Return the workload that a user named: one of heapfit's, a TOML file, or its folder."""
    path = paths.expanded(name)
    if name.endswith(".toml"):
        return load_workload(path)
    known = {} if "/" in name else load_workloads()
    is_program = path.is_file() if "/" in name else shutil.which(name) is not None
    if is_program and name not in known:
        raise UsageError(
            f"{name} is not a workload; for a program write -- before it: "
            f"heapfit compare -- {shell_word(name)}"
        )
    if "/" in name:
        return load_workload(path / FILE_NAME)
    if name not in known:
        raise unknown("workload", name, known)
    return known[name]


def ad_hoc_workload(command: list[str], program: str | None = None) -> Workload:
    """Return a workload of the user's own `command`, which runs in the present folder.

    Its name is the program's with a digest, so that the same command finds its own results again.
    Of several builds `program` is the file of the first, where the command has their place. Raises
    as `check_startable` does.
    """
    check_text(command)
    first = program if program is not None and command[0] == PLACEHOLDER else command[0]
    check_startable(first)
    here = Path.cwd()
    check_name(here)
    digest = hashlib.sha256("\0".join([str(here), *command]).encode()).hexdigest()
    return Workload(
        name=f"{Path(first).name}-{digest[:_DIGEST_LENGTH]}",
        title=shlex.join(command).replace(f"'{PLACEHOLDER}'", PLACEHOLDER),
        question="How does this program fare under each allocator?",
        run=WorkloadRun(command=command),
        here=here,
    )


def check_startable(program: str) -> None:
    """Raise UsageError when there is no such program or it may not be run, HeapfitError when its
    interpreter is missing."""
    started = started_by(program)
    if started is None or not started.exists():
        why = cannot_start(program)
        raise (UsageError if started is None else HeapfitError)(str(why))


def missing_for(workload: Workload) -> list[str]:
    """Return the packages and programs that `workload` needs and this machine lacks."""
    packages = debian.missing(workload.install.debian) if debian.is_used() else []
    return [
        *(f"package {package}" for package in packages),
        *(f"program {name}" for name in _missing_programs(workload)),
    ]


def install_workload(workload: Workload, say: Callable[[str], None]) -> None:
    """Install the packages that `workload` needs; HeapfitError when they or a program are missing.

    Where packages are not Debian's, the person brings the programs by other means.
    """
    if debian.is_used():
        debian.install(workload.install.debian, say)
    programs = _missing_programs(workload)
    if programs:
        raise HeapfitError(
            f"{workload.name} needs {', '.join(programs)}, which "
            f"{'are' if len(programs) > 1 else 'is'} not on PATH; install it and try again"
        )


def data_folder(workload: Workload) -> Path:
    """Return where the prepared data of `workload` is kept."""
    version = workload.prepare.version if workload.prepare else 0
    name = f"{workload.name}-v{version}"
    if not workload.here.is_relative_to(paths.workloads_dir()):
        name += "-" + hashlib.sha256(os.fsencode(workload.here)).hexdigest()[:_DIGEST_LENGTH]
    return paths.data_dir() / "workloads" / name


def is_prepared(workload: Workload) -> bool:
    """Tell whether the data of `workload` is there, made by its present preparation."""
    if workload.prepare is None:
        return True
    try:
        made_by = json.loads((data_folder(workload) / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(made_by == _preparation(workload, workload.prepare))


def prepare_workload(workload: Workload, say: Callable[[str], None]) -> Path:
    """Make the data of `workload` unless it is there already, and return its folder.

    The folder appears whole or not at all. Raises HeapfitError with the last line that the
    preparation said when it fails.
    """
    folder = data_folder(workload)
    if workload.prepare is None:
        with paths.keeping(folder.parent):
            folder.mkdir(parents=True, exist_ok=True)
    elif not is_prepared(workload):
        say(f"preparing the data of {workload.name} (once)")
        with replaced(folder) as temporary:
            _prepare(workload, workload.prepare, temporary)
    return folder


def _prepare(workload: Workload, prepare: WorkloadPrepare, folder: Path) -> None:
    places = {"data": folder, "here": workload.here}
    command = [filled(word, places) for word in prepare.command]
    result = run_quietly(command, folder=folder)
    if result.returncode != 0:
        raise HeapfitError(f"preparing {workload.name} failed: {last_line(result)}")
    manifest = json.dumps(_preparation(workload, prepare))
    (folder / _MANIFEST).write_text(manifest + "\n", encoding="utf-8")


def _preparation(workload: Workload, prepare: WorkloadPrepare) -> dict[str, object]:
    return {**prepare.model_dump(), "here": str(workload.here), "system": system()}


def _missing_programs(workload: Workload) -> list[str]:
    return [name for name in workload.install.programs if shutil.which(name) is None]
