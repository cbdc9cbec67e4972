"""Find the C library that reads and writes traces.

The wheel carries it compiled, beside this module; a source checkout compiles it.
"""

from pathlib import Path

from heapfit.compiling import compiled_once

NAME = "libheapfit-trace.so"

_HERE = Path(__file__).parent
_NATIVE = _HERE / "native"
_ALLOCATOR = _HERE.resolve().parents[2] / "allocator"
_SHARED_SOURCES = ("encode.c", "block.c")  # with the recorder
_FLAGS = ("-std=c17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
# The static library: it has what is not part of zstd's stable interface.
_LIBRARIES = ("-l:libzstd.a", "-Wl,--exclude-libs,ALL")


def find_library() -> Path:
    """Return the compiled library; HeapfitError says what is missing to compile it."""
    shared = [_ALLOCATOR / "record" / name for name in _SHARED_SOURCES]
    sources = [*sorted(_NATIVE.glob("*.c")), *shared]
    folders = [f"-I{folder}" for folder in (_ALLOCATOR, _NATIVE)]
    headers = [*_NATIVE.glob("*.h"), *(_ALLOCATOR / "record").glob("*.h")]
    return compiled_once(
        _HERE / NAME,
        [*_FLAGS, *folders, *map(str, sources), *_LIBRARIES],
        [*sources, *sorted(headers)],
        needs="libzstd-dev",
    )
