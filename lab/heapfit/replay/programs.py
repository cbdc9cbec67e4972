"""Find `heapfit-plan`, which makes a plan of a trace, and `heapfit-replay`, which plays it.

The wheel carries them compiled, beside this module; a source checkout compiles them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from heapfit.compiling import compiled_once
from heapfit.trace.library import find_library

PLANNER, REPLAYER = "heapfit-plan", "heapfit-replay"

_HERE = Path(__file__).parent
_NATIVE = _HERE / "native"
_ALLOCATOR = _HERE.resolve().parents[2] / "allocator"
_SOURCES = {
    PLANNER: ("compile.c", "plan.c", "blocks.c", "slots.c"),
    REPLAYER: ("replay.c", "play.c", "wait.c", "memory.c", "age.c"),
}
_FLAGS = ("-std=c17", "-D_GNU_SOURCE", "-O2", "-fno-builtin", "-pthread", f"-I{_ALLOCATOR}")


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
    headers = sorted(_NATIVE.glob("*.h"))
    return compiled_once(name, [*_FLAGS, *map(str, sources), *libraries], [*sources, *headers])
