"""Find the C library that reads and writes traces.

The wheel carries it compiled, beside this module; a source checkout compiles it.
"""

from __future__ import annotations

from pathlib import Path

from heapfit.compiling import compiled_once
from heapfit.errors import HeapfitError

NAME = "libheapfit-trace.so"

_NATIVE = Path(__file__).with_name("native")
_ALLOCATOR = Path(__file__).resolve().parents[3] / "allocator"
_SHARED_SOURCES = ("encode.c", "block.c")  # with the recorder
_FLAGS = ("-std=c17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
# The static library: it has what is not part of zstd's stable interface.
_LIBRARIES = ("-l:libzstd.a", "-Wl,--exclude-libs,ALL")


def find_library() -> Path:
    """Return the compiled library; HeapfitError says what is missing to compile it."""
    packaged = Path(__file__).with_name(NAME)
    if packaged.exists():
        return packaged
    sources = _sources()
    folders = [f"-I{folder}" for folder in (_ALLOCATOR, _NATIVE)]
    headers = [*_NATIVE.glob("*.h"), *(_ALLOCATOR / "record").glob("*.h")]
    return compiled_once(
        NAME,
        [*_FLAGS, *folders, *map(str, sources), *_LIBRARIES],
        [*sources, *sorted(headers)],
        needs="libzstd-dev",
    )


def _sources() -> list[Path]:
    sources = [_ALLOCATOR / "record" / name for name in _SHARED_SOURCES]
    if not all(source.exists() for source in sources):
        raise HeapfitError(
            f"{NAME} is missing from this installation, which was built without zstd; "
            "install libzstd-dev and rebuild heapfit"
        )
    return [*sorted(_NATIVE.glob("*.c")), *sources]
