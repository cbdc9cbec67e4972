"""What an allocator's size classes add to what a program asks for.

No table of anybody's classes is kept here: a short process with the allocator preloaded asks for a
block of each size and then malloc_usable_size how large it is. The answers are kept on disk.
"""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from heapfit import paths
from heapfit.errors import HeapfitError
from heapfit.files import replacing
from heapfit.profile.bins import EXACT_BYTES
from heapfit.profile.model import Rounding, Waste
from heapfit.profile.sections.sizes import ALL, PEAK, WIDTH
from heapfit.profile.tally import Row, Tally, grouped, share, whole
from heapfit.records import InstalledAllocator
from heapfit.trial.preload import clean_environment, environment_changes

# Larger blocks are a matter of pages, and some allocators touch what they hand out.
ASKED_MOST = 256 << 20
_PAGE = 4 << 10
_TIMEOUT_S = 60.0

# Reads sizes, prints what a block of each can hold: the least of several, since some allocators
# give a free block whole when what they would cut off is too small to be one. malloc_usable_size
# must come from the file that malloc comes from: another allocator's would read what is not there.
# Dl_info begins with the file's name. The C library is named, for in an interpreter that is no
# position-independent program malloc's address is that of a stub.
_ASK = """
import ctypes, json, sys
def home(function):
    found = (ctypes.c_void_p * 4)()
    ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found))
    return ctypes.string_at(found[0])
library = ctypes.CDLL(sys.argv[1] or "libc.so.6")
malloc, free = library.malloc, library.free
usable = getattr(library, "malloc_usable_size", None)
if usable is None or home(usable) != home(malloc):
    sys.exit("it has no malloc_usable_size")
malloc.restype = usable.restype = ctypes.c_size_t
malloc.argtypes = usable.argtypes = free.argtypes = [ctypes.c_size_t]
if usable(malloc(17)) == 17:
    sys.exit("it tells the size that was asked for, not the block's")
answers = []
for size in json.load(sys.stdin):
    several = max(1, min(256, (256 << 10) // max(1, size)))
    blocks = list(filter(None, [malloc(size) for _ in range(several)]))
    answers.append(min(map(usable, blocks), default=0))
    for block in blocks:
        free(block)
json.dump(answers, sys.stdout)
"""

Ask = Callable[[InstalledAllocator, Sequence[int]], dict[int, int]]


def usable_sizes(allocator: InstalledAllocator, sizes: Iterable[int]) -> dict[int, int]:
    """Return how much each of `sizes` gets from `allocator`; HeapfitError when it does not say."""
    wanted = {size for size in sizes if size <= ASKED_MOST}
    file = _kept(allocator)
    known = _read(file)
    missing = sorted(wanted - known.keys())
    if missing:
        known |= zip(missing, _asked(allocator, missing), strict=True)
        _write(file, known)
    answers = {size: known.get(size) or _to_pages(size) for size in sizes}
    return {size: max(size, usable) for size, usable in answers.items()}


def waste(tally: Tally, allocators: Sequence[InstalledAllocator], ask: Ask = usable_sizes) -> Waste:
    """Return what the size classes of `allocators` add to the objects of a tally."""
    by_size = grouped(tally.sums["sizes"], lambda _program, size, _kind: size, WIDTH)
    rows = [(_size(size, row), row) for size, row in by_size.items()]
    known, unknown = [], []
    for allocator in allocators:
        try:
            usable = ask(allocator, [size for size, _ in rows])
        except HeapfitError as error:
            unknown.append(f"{allocator.name}: {error}")
            continue
        known.append(_rounding(tally, allocator, rows, usable))
    known.sort(key=lambda each: (each.peak_waste or 0.0, each.waste, each.allocator))
    return Waste(allocators=known, unknown=unknown)


def _size(size: int, row: Row) -> int:
    """Return the size to ask for: that of the row or, where it is of several, their mean."""
    return size if size <= EXACT_BYTES or not row[0] else row[1] // row[0]


def _rounding(
    tally: Tally,
    allocator: InstalledAllocator,
    rows: Sequence[tuple[int, Row]],
    usable: dict[int, int],
) -> Rounding:
    added = [(usable[size] - size, row) for size, row in rows]
    everywhere = sum(more * row[ALL] for more, row in added)
    at_peak = sum(more * row[PEAK] for more, row in added)
    return Rounding(
        allocator=allocator.name,
        title=allocator.title,
        version=allocator.version,
        recorded=any(_is(allocator, each.recording.allocator) for each in tally.recordings),
        waste=share(everywhere, sum(row[ALL + 1] for _, row in rows)) or 0.0,
        peak_waste=share(at_peak, sum(row[PEAK + 1] for _, row in rows)),
        peak_bytes=whole(at_peak),
    )


def _is(allocator: InstalledAllocator, recorded: str) -> bool:
    """Tell whether a recording's library is this allocator's, by its name."""
    file = Path(recorded).name
    if allocator.library is None:
        return file.startswith(("libc.so", "libc-"))
    return bool(file) and file in (allocator.library.name, allocator.library.resolve().name)


def _to_pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


# ----------------------------------------------------------------- asking


def _asked(allocator: InstalledAllocator, sizes: Sequence[int]) -> list[int]:
    environment = clean_environment() | environment_changes(allocator, {})
    command = [sys.executable, "-S", "-c", _ASK, str(allocator.library or "")]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(sizes),
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        answers = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise HeapfitError(f"asking for its size classes failed ({error})") from error
    if answers is None:
        said = done.stderr.strip().splitlines()
        raise HeapfitError(said[-1] if said else f"asking ended with {done.returncode}")
    return [int(each) for each in answers]


# ----------------------------------------------------------------- keeping


def _kept(allocator: InstalledAllocator) -> Path:
    """Return the file of what is known; another version or another setting has another one."""
    what = [allocator.version, allocator.sha256, allocator.environment, allocator.options]
    mark = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]
    return paths.data_dir() / "size-classes" / f"{allocator.name}-{mark}.json"


def _read(file: Path) -> dict[int, int]:
    try:
        found = json.loads(file.read_text())
        return {int(size): int(usable) for size, usable in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # Never asked, or not whole: ask again.


def _write(file: Path, known: dict[int, int]) -> None:
    """Keep the answers; where nothing can be written, the next profile asks again."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as unfinished:
            unfinished.write_text(json.dumps(known))
