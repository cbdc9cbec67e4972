"""Where heapfit's own files are: the one module that knows how it was installed.

In a wheel everything lies beside this package (`lib/`, `include/`, `share/`); in a source
checkout the libraries are in `build/release/` and the workloads in `workloads/`. Nothing here
imports more than the standard library: `heapfit run` stands in front of other programs and must
start quickly.
"""

import os
from pathlib import Path

from heapfit.errors import HeapfitError, unknown

DEFAULT_VARIANT = "default"

# The dynamic linker splits LD_PRELOAD at these and offers no way to quote them.
_PRELOAD_SEPARATORS = (" ", ":", "\t", "\n")

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def prefix() -> Path:
    """Return the folder that holds `lib/`, `include/` and `share/` of an installed heapfit."""
    return _PACKAGE


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
    for folder in (prefix() / "lib", _CHECKOUT / "build" / "release"):
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
    base = Path(cache) if cache else Path.home() / ".cache"
    return base.absolute() / "heapfit"


def _shared(name: str) -> Path:
    installed = prefix() / "share" / name
    return installed if installed.is_dir() else _CHECKOUT / name
