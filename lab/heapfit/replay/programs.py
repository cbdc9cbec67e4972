"""Find `heapfit-plan`, which makes a plan of a trace, and `heapfit-replay`, which plays it.

The wheel carries them compiled, beside this module; a source checkout compiles them once into
heapfit's data folder, anew whenever a source changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.paths import data_dir
from heapfit.trace.library import find_library

PLANNER, REPLAYER = "heapfit-plan", "heapfit-replay"

_HERE = Path(__file__).parent
_NATIVE = _HERE / "native"
_ALLOCATOR = _HERE.resolve().parents[2] / "allocator"
_SOURCES = {
    PLANNER: ("compile.c", "plan.c", "blocks.c", "slots.c"),
    REPLAYER: ("replay.c", "play.c", "wait.c", "memory.c"),
}
_FLAGS = ("-std=c17", "-D_GNU_SOURCE", "-O2", "-fno-builtin", "-pthread", f"-I{_ALLOCATOR}")
_DIGEST_LETTERS = 12


def find_planner() -> Path:
    """Return `heapfit-plan`; HeapfitError says what is missing to compile it."""
    packaged = _HERE / PLANNER
    if packaged.exists():
        return packaged
    library = find_library()
    # By its place: it is not where the dynamic linker looks.
    return _compiled(PLANNER, [str(library), f"-Wl,-rpath,{library.parent}"])


def find_replayer() -> Path:
    """Return `heapfit-replay`; HeapfitError says what is missing to compile it."""
    packaged = _HERE / REPLAYER
    return packaged if packaged.exists() else _compiled(REPLAYER, [])


def _compiled(name: str, libraries: Sequence[str]) -> Path:
    sources = [_NATIVE / source for source in _SOURCES[name]]
    content = hashlib.sha256("\0".join(libraries).encode())
    for path in [*sources, *sorted(_NATIVE.glob("*.h"))]:
        content.update(path.read_bytes())
    built = data_dir() / "native" / f"{name}-{content.hexdigest()[:_DIGEST_LETTERS]}"
    if not built.exists():
        _compile(built, [*map(str, sources), *libraries])
    return built


def _compile(target: Path, inputs: Sequence[str]) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise HeapfitError(f"{target.name} is not built and there is no C compiler; install gcc")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The rename makes a half-written program impossible to run; another process may do the same.
    unfinished = target.with_suffix(f".{os.getpid()}")
    command = [*compiler.split(), *_FLAGS, *inputs, "-o", str(unfinished)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise HeapfitError(f"cannot compile {target.name}: {done.stderr.strip() or done.args}")
    unfinished.rename(target)
