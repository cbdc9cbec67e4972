"""What tests need prepared: workloads' data, other allocators, PHP's extension. Each is made once,
for all suites and all their workers, and is there for the next run.

It lies in the folder that HEAPFIT_TEST_HOME names, else in build/test-home: heapfit's own data
folder (HEAPFIT_HOME) of a test run. Whoever wants a thing holds its lock while looking whether it
is there and while making it, so that no two make the same. A thing is made anew when its recipe, a
digest of all that it is made from, is not the one that was noted when it was finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from heapfit import catalogue, paths
from heapfit.records import InstalledAllocator, Workload

ROOT = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("HEAPFIT_TEST_HOME") or ROOT / "build" / "test-home").absolute()

# What compilers and Python leave beside sources says nothing about them.
_LEFTOVERS = {".o", ".lo", ".pyc"}


@contextmanager
def locked(thing: str) -> Iterator[None]:
    """Let no other process look for or make `thing` meanwhile."""
    locks = HOME / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / thing).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def recipe_of(sources: Iterable[Path], *words: str) -> str:
    """Return the digest of some words, and of all files in some folders with their names."""
    digest = hashlib.sha256("\0".join(words).encode())
    for source in sources:
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        for path in files:
            if path.is_file() and path.suffix not in _LEFTOVERS:
                digest.update(f"\0{path.relative_to(source.parent)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def once(thing: str, folder: Path, recipe: str, make: Callable[[], object]) -> Path:
    """Return `folder`, which `make` fills unless it has already done so by the same recipe."""
    note = HOME / "recipes" / thing
    with locked(thing):
        made_by = note.read_text() if note.exists() and folder.exists() else None
        if made_by != recipe:
            note.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            make()
            note.parent.mkdir(exist_ok=True)
            note.write_text(recipe)
    return folder


def programs(thing: str, sources: Iterable[Path], compile_into: Callable[[Path], object]) -> Path:
    """Return the folder of programs that `compile_into` makes from `sources`, which are files and
    folders; how they are compiled must be written in one of them, too."""
    folder = HOME / "programs" / thing

    def make() -> None:
        folder.mkdir(parents=True)
        compile_into(folder)

    return once(f"programs-{thing}", folder, recipe_of(sources), make)


def workload_data(workload: Workload) -> Path:
    """Return the prepared data of a workload."""
    folder = catalogue.data_folder(workload)
    assert folder.is_relative_to(HOME), "HEAPFIT_HOME is not the test home"
    words = workload.prepare.command if workload.prepare else []
    recipe = recipe_of(sources_of(workload), str(workload.here), *words)
    return once(workload.name, folder, recipe, lambda: catalogue.prepare_workload(workload, print))


def sources_of(workload: Workload) -> list[Path]:
    """The folders that a workload's data is made from: its own or its group's, and those beside
    it that its preparation names."""
    root = paths.workloads_dir()
    own = workload.here
    while own.parent != root and root in own.parents:
        own = own.parent
    script = workload.here / "prepare.py"
    names = " ".join(workload.prepare.command if workload.prepare else [])
    names += script.read_text(encoding="utf-8") if script.exists() else ""
    others = set(re.findall(r'(?:"|\.\./)([\w-]+)["/]', names))
    beside = [
        path for path in sorted(own.parent.iterdir()) if path.is_dir() and path.name in others
    ]
    return [own, *(path for path in beside if path != own)]


def allocator(name: str) -> InstalledAllocator:
    """Return an allocator of the catalogue, installed. The catalogue itself knows its recipe."""
    with locked(f"allocator-{name}"):
        return catalogue.install_allocator(catalogue.load_allocators()[name], print)
