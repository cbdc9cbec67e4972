"""Where heapfit's own files are: the one module that knows how it was installed.

In a wheel everything lies beside this package (`lib/`, `include/`, `share/`); in a source
checkout the libraries are in `build/release/` and the workloads in `workloads/`. Nothing here
imports more than the standard library: `heapfit run` stands in front of other programs and must
start quickly.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heapfit.errors import HeapfitError, unknown

DEFAULT_VARIANT = "default"

_ANOTHER_FOLDER = "set HEAPFIT_HOME to a folder that you may write to"

# The dynamic linker splits LD_PRELOAD at these and offers no way to quote them.
_PRELOAD_SEPARATORS = (" ", ":", "\t", "\n")

# An installed heapfit has its `lib/`, `include/` and `share/` here.
_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def library(variant: str = DEFAULT_VARIANT) -> Path:
    """Return the shared library of `variant`, as an absolute path.

    Raises HeapfitError when heapfit's library has not been built, UsageError when there is no
    such variant.
    """
    found = libraries()
    if not found:
        raise HeapfitError(
            "libheapfit.so has not been built; run 'make build' in the source folder, "
            "then use .venv/bin/heapfit"
        )
    if variant not in found:
        raise unknown("variant", variant, found)
    return found[variant]


def libraries() -> dict[str, Path]:
    """Return the built variants of the library by name; an empty dictionary when there are none."""
    for folder in (_PACKAGE / "lib", _CHECKOUT / "build" / "release"):
        if (folder / "libheapfit.so").is_file():
            variants = {
                path.name.removeprefix("libheapfit-").removesuffix(".so"): path
                for path in sorted(folder.glob("libheapfit-*.so"))
            }
            return {DEFAULT_VARIANT: folder / "libheapfit.so", **variants}
    return {}


def check_preloadable(path: Path) -> None:
    """Raise HeapfitError when the dynamic linker could not be told of a library at `path`."""
    if any(separator in str(path) for separator in _PRELOAD_SEPARATORS):
        raise HeapfitError(
            f"{path} cannot be preloaded: LD_PRELOAD has no way to write a space or colon; "
            "use a path without them"
        )


def workloads_dir() -> Path:
    """Return the folder of the workloads that come with heapfit."""
    return _shared("workloads")


def studies_dir() -> Path:
    """Return the folder of the studies that come with heapfit."""
    return _shared("studies")


def gdb_script() -> Path:
    """Return the script with which gdb reads heapfit's heap."""
    return _shared("allocator") / "gdb" / "heapfit.py"


def data_dir() -> Path:
    """Return the folder for what heapfit downloads and prepares; it may not exist yet.

    `$HEAPFIT_HOME`, else `$XDG_CACHE_HOME/heapfit`, else `~/.cache/heapfit`.
    """
    home = os.environ.get("HEAPFIT_HOME")
    if home:
        return Path(home).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(cache) if cache else Path.home() / ".cache"
    except RuntimeError as error:
        raise HeapfitError(f"this user has no home folder; {_ANOTHER_FOLDER}") from error
    return base.absolute() / "heapfit"


def expanded(name: str) -> Path:
    """Return the path that a user wrote with a `~`; pathlib raises where there is no such user.

    >>> str(expanded("~no-such-user/a.so")), str(expanded("a~b"))
    ('~no-such-user/a.so', 'a~b')
    """
    return Path(os.path.expanduser(name))


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Around what writes to `folder`, a part of the data folder: HeapfitError where it cannot."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "make room" if is_full else _ANOTHER_FOLDER
        raise HeapfitError(f"cannot write to {folder}: {reason}; {remedy}") from error


def _shared(name: str) -> Path:
    installed = _PACKAGE / "share" / name
    return installed if installed.is_dir() else _CHECKOUT / name
