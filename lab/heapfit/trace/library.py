"""Find the C library that reads and writes traces.

The wheel carries it compiled, beside this module; a source checkout compiles it once into
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

NAME = "libheapfit-trace.so"

_NATIVE = Path(__file__).with_name("native")
_ALLOCATOR = Path(__file__).resolve().parents[3] / "allocator"
_SHARED_SOURCES = ("encode.c", "block.c")  # with the recorder
_FLAGS = ("-std=c17", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_DIGEST_LETTERS = 12


def find_library() -> Path:
    """Return the compiled library; HeapfitError says what is missing to compile it."""
    packaged = Path(__file__).with_name(NAME)
    if packaged.exists():
        return packaged
    built = data_dir() / "native" / f"libheapfit-trace-{_digest()}.so"
    if not built.exists():
        _compile(built)
    return built


def _sources() -> list[Path]:
    sources = [_ALLOCATOR / "record" / name for name in _SHARED_SOURCES]
    if not all(source.exists() for source in sources):
        raise HeapfitError(
            f"{NAME} is missing from this installation, which was built without zstd; "
            "install libzstd-dev and build heapfit anew"
        )
    return [*sorted(_NATIVE.glob("*.c")), *sources]


def _digest() -> str:
    found = hashlib.sha256()
    headers = [*_NATIVE.glob("*.h"), *(_ALLOCATOR / "record").glob("*.h")]
    for path in [*_sources(), *sorted(headers)]:
        found.update(path.read_bytes())
    return found.hexdigest()[:_DIGEST_LETTERS]


def _compile(target: Path) -> None:
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise HeapfitError(f"{NAME} is not built and there is no C compiler; install gcc")
    target.parent.mkdir(parents=True, exist_ok=True)
    # The rename makes a half-written library impossible to load; another process may do the same.
    unfinished = target.with_suffix(f".{os.getpid()}")
    done = subprocess.run(_command(compiler, unfinished), capture_output=True, text=True)
    if done.returncode != 0:
        raise HeapfitError(
            f"cannot compile {NAME} (it needs libzstd-dev): {done.stderr.strip() or done.args}"
        )
    unfinished.rename(target)


def _command(compiler: str, target: Path) -> Sequence[str]:
    folders = [f"-I{folder}" for folder in (_ALLOCATOR, _NATIVE)]
    # The static library: it has what is not part of zstd's stable interface.
    ends = ["-l:libzstd.a", "-Wl,--exclude-libs,ALL"]
    return [*compiler.split(), *_FLAGS, *folders, *map(str, _sources()), "-o", str(target), *ends]
