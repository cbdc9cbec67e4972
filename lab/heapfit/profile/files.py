"""From the files that a user names to their tallies: converted first, unless that is done."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from heapfit.errors import UsageError
from heapfit.files import RECORDING_SUFFIX
from heapfit.profile.analyse import OnPart, count
from heapfit.profile.tally import Tally
from heapfit.profile.trace import is_converted

# What converting takes of the time that a trace takes; the rest is counting.
_CONVERSION = 0.6


def count_file(path: Path, tables: Path | None = None, on_part: OnPart | None = None) -> Tally:
    """Return the tally of a trace, or of the folder of its tables.

    The tables go to `tables`, or away again when it is None. Raises HeapfitError for what cannot be
    read.
    """
    with converted(path, tables, on_part) as folder:
        return count(folder, _later(on_part))


@contextmanager
def converted(
    path: Path, tables: Path | None = None, on_part: OnPart | None = None
) -> Iterator[Path]:
    """Provide the folder of the trace's tables, converted into `tables` unless `path` is it."""
    if not path.exists():
        raise UsageError(f"there is no {path}; write the path of a trace (.hft)")
    if path.is_dir():
        if not is_converted(path):
            raise UsageError(f"{path} is a folder, but not that of a converted trace")
        yield path
    elif tables is not None:
        _convert(path, tables, on_part)
        yield tables
    else:
        with tempfile.TemporaryDirectory(prefix="heapfit-tables-") as folder:
            _convert(path, Path(folder) / "tables", on_part)
            yield Path(folder) / "tables"


def _convert(path: Path, tables: Path, on_part: OnPart | None) -> None:
    from heapfit.trace.convert import convert

    def on_progress(done: int, total: int) -> None:
        if on_part:
            on_part(round(_CONVERSION * done), total, f"converting {path.name}")

    convert(path, tables, on_progress)


def _later(on_part: OnPart | None) -> OnPart | None:
    """Return what to call when the first part of the work was converting."""
    if on_part is None:
        return None
    show = on_part

    def shown(done: int, total: int, what: str) -> None:
        whole = round(total / (1 - _CONVERSION))
        show(whole - total + done, whole, what)

    return shown


def short_name(path: Path) -> str:
    """Return what a trace's page and tables are called after.

    >>> short_name(Path("a/redis.hft")), short_name(Path("redis.hft.2")), short_name(Path("tables"))
    ('redis', 'redis.hft.2', 'tables')
    """
    return path.absolute().name.removesuffix(RECORDING_SUFFIX)


def check_names(paths: Sequence[Path]) -> None:
    """Raise UsageError when tables of several traces would go to folders of one name."""
    names = [short_name(path) for path in paths]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two traces are called {twice}; --keep cannot keep both under that name")
