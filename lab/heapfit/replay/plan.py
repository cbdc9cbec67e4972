"""Make a plan of a trace, which `heapfit-replay` plays.

`heapfit-plan` makes it. The plan depends on the trace's content, on that program and on how many
threads it is for; it is kept in heapfit's data folder under a key of these, so that the same replay
finds the same plan again. It may be larger than its trace: 16 bytes an event.

The wheel carries both programs compiled, beside this module; a source checkout compiles them.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from pydantic import ValidationError

from heapfit.compiling import compiled_once
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import check_name, replacing_folder
from heapfit.paths import data_dir, keeping
from heapfit.records import Record
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

_REFUSED = 2  # exit code: the trace is none that can be replayed
_KEY_LETTERS = 12
# Plans are about as large as their traces. Beyond this size, plans stay only as long as they may be
# in use: a study opens its plan in each trial.
MOST_BYTES = 4 << 30
_IN_USE_S = 2 * 24 * 3600

# Called with the bytes of the trace read so far and in all.
OnProgress = Callable[[int, int], None]


class Facts(Record):
    """What `heapfit-plan` says of a plan; native/plan.h explains each field."""

    checksum: str
    threads: int
    events: int
    allocations: int
    frees: int
    reallocs: int
    bytes: int
    duration_ns: int
    peak_bytes: int
    peak_blocks: int
    left_blocks: int
    left_bytes: int
    unmatched_frees: int
    unmatched_reallocs: int
    lost_frees: int
    failed: int
    lost_events: int
    damaged_bytes: int
    cut_short: bool

    def remarks(self) -> list[str]:
        """Say in a clause each where the replay is not all that the recording is."""
        counted = [
            (self.unmatched_frees, "frees of blocks born before the recording are left out"),
            (self.unmatched_reallocs, "reallocs of such blocks are played as allocations"),
            (self.lost_frees, "frees that the trace lacks are made up: the address came again"),
            (self.failed, "failed allocations are left out"),
            (self.lost_events, "events were lost while it was recorded"),
            (self.damaged_bytes, "bytes of the trace are damaged"),
            (self.left_blocks, f"blocks ({self.left_bytes:,} bytes) are not freed, as recorded"),
        ]
        said = [f"{count:,} {what}" for count, what in counted if count]
        return [*said, *(["the recording was cut short"] if self.cut_short else [])]


class Plan(Record):
    """A plan on disk."""

    trace: Path
    key: str  # of what it depends on
    path: Path
    facts: Facts


def make_plan(
    trace: Path, *, one_thread: bool = False, on_progress: OnProgress | None = None
) -> Plan:
    """Return the plan of `trace`, made now unless it is there.

    Raises UsageError for a trace that cannot be replayed, HeapfitError where it or the plan's
    folder fails.
    """
    check_name(trace)
    planner = find_planner()
    key = _key(trace, planner, one_thread)
    folder = data_dir() / "replay" / key
    known = _read_facts(folder)
    if known is None:
        known = _made(planner, trace, one_thread, folder, on_progress)
        _evict(folder.parent, time.time())
    with contextlib.suppress(OSError):
        os.utime(folder)  # it was used now
    return Plan(trace=trace, key=key, path=folder / "plan", facts=known)


def _evict(plans: Path, now_s: float) -> None:
    """Remove the least recently used plans, down to `MOST_BYTES`."""
    used: list[tuple[float, int, Path]] = []
    for folder in plans.iterdir():
        with contextlib.suppress(OSError):  # another process removes it
            size = sum(each.stat().st_size for each in folder.iterdir())
            used.append((folder.stat().st_mtime, size, folder))
    left = sum(size for _, size, _ in used)
    for used_s, size, folder in sorted(used):
        if left <= MOST_BYTES or now_s - used_s < _IN_USE_S:
            return
        shutil.rmtree(folder, ignore_errors=True)
        left -= size


def _key(trace: Path, planner: Path, one_thread: bool) -> str:
    content = hashlib.sha256(b"one" if one_thread else b"all")
    try:
        for path in (planner, trace):
            with path.open("rb") as file:
                content.update(hashlib.file_digest(file, "sha256").digest())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    return content.hexdigest()[:_KEY_LETTERS]


def _read_facts(folder: Path) -> Facts | None:
    """Of a plan that is whole; None where there is none."""
    try:
        return Facts.model_validate_json((folder / "facts.json").read_bytes())
    except (OSError, ValidationError):
        return None


def _made(
    planner: Path, trace: Path, one_thread: bool, folder: Path, on_progress: OnProgress | None
) -> Facts:
    with keeping(folder.parent), replacing_folder(folder) as unfinished:  # others may do the same
        words = [str(planner), *(["--one-thread"] if one_thread else [])]
        command = [*words, str(trace), str(unfinished / "plan")]
        facts = _run(command, trace.stat().st_size, on_progress)
        (unfinished / "facts.json").write_text(facts.model_dump_json(), encoding="utf-8")
    return facts


def _run(command: list[str], size: int, on_progress: OnProgress | None) -> Facts:
    """Run the planner, whose standard output says how far it is, and last the facts."""
    last = ""
    with (
        TemporaryFile() as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as planner,
    ):
        assert planner.stdout is not None
        try:
            for last in planner.stdout:
                word, _, position = last.partition(" ")
                if word == "read" and on_progress is not None:
                    on_progress(int(position), size)
        except BaseException:
            planner.kill()
            raise
        planner.wait()
        if planner.returncode != 0:
            raise _failure(planner.returncode, said)
    return Facts.model_validate_json(last)


def _failure(code: int, said: IO[bytes]) -> HeapfitError:
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    reason = lines[-1] if lines else f"heapfit-plan ended with code {code}"
    return UsageError(reason) if code == _REFUSED else HeapfitError(reason)


# -------------------------------------------------------------------- programs


def find_planner() -> Path:
    """Return `heapfit-plan`; a HeapfitError says what is missing to compile it."""
    packaged = _HERE / PLANNER
    if packaged.exists():
        return packaged
    library = find_library()
    # By its place: it is not where the dynamic linker looks.
    return _compiled(packaged, [str(library), f"-Wl,-rpath,{library.parent}"])


def find_replayer() -> Path:
    """Return `heapfit-replay`; a HeapfitError says what is missing to compile it."""
    return _compiled(_HERE / REPLAYER, [])


def _compiled(packaged: Path, libraries: Sequence[str]) -> Path:
    sources = [_NATIVE / source for source in _SOURCES[packaged.name]]
    headers = sorted(_NATIVE.glob("*.h"))
    arguments = [*_FLAGS, *map(str, sources), *libraries]
    return compiled_once(packaged, arguments, [*sources, *headers])
