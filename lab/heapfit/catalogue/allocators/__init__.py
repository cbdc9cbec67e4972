"""The allocators of the catalogue, `*.toml` beside this file, and those that the user names.

Wherever allocators are named, a name of the catalogue, `name=path/to/lib.so`, or the path of a
TOML file of the same form is accepted.

Each is tried out: does it load, does malloc really come from it, do programs survive it? The
dynamic linker only warns about a library that it cannot preload and runs the program without it. An
allocator that is not checked would then be measured as if it were the system's own.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from heapfit.catalogue.command import last_line, run_quietly
from heapfit.catalogue.record_file import read_record
from heapfit.catalogue.sources import SOURCES, Source
from heapfit.errors import HeapfitError, UsageError, unknown
from heapfit.paths import expanded
from heapfit.records import Allocator, AllocatorSource, InstalledAllocator
from heapfit.text import shell_word

_FOLDER = Path(__file__).parent

_TIMEOUT_S = 30.0

# Asks the dynamic linker, from within a program that runs under the allocator, which file the
# library's malloc is in: itself, and then every call goes there, or one that it depends on. The
# program's own view, CDLL(None), would not do: a program that is not position-independent may hold
# a stub that stands for malloc's address everywhere. Dl_info begins with the file's name.
_WHERE_IS_MALLOC = """
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_NOLOAD)
found = (ctypes.c_char_p * 4)()
ctypes.CDLL(None).dladdr(ctypes.cast(library.malloc, ctypes.c_void_p), ctypes.byref(found))
print(found[0].decode())
"""

# Blocks of many sizes, allocated and freed by several threads, some freed by another thread than
# the one that allocated them.
_ALLOCATE_FROM_THREADS = """
import concurrent.futures, zlib
def work(seed):
    blocks = [bytearray((seed * 7919 + i * 104729) % 70000 + 1) for i in range(2000)]
    return blocks[::2], zlib.crc32(b"".join(bytes(block[:8]) for block in blocks))
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    results = list(pool.map(work, range(16)))
print(sum(len(blocks) for blocks, _ in results))
"""
_ALLOCATE_PRINTS = "16000\n"


def load_allocators() -> dict[str, Allocator]:
    """Return the catalogue by name, in alphabetical order but for glibc and heapfit, which lead."""
    return {entry.name: entry for entry in _entries()}


@cache
def _entries() -> Sequence[Allocator]:
    """The catalogue in its order, read once: a study asks for it with each of its variants."""
    entries = [read_record(path, Allocator) for path in _FOLDER.glob("*.toml")]
    leading = {"system": 0, "heapfit": 1}
    entries.sort(key=lambda entry: (leading.get(entry.source.kind, len(leading)), entry.name))
    return entries


def find_installed(allocator: Allocator) -> InstalledAllocator | None:
    """Return what this machine has of `allocator`, or None when it is not installed."""
    return _source(allocator).find(allocator)


def install_allocator(allocator: Allocator, say: Callable[[str], None]) -> InstalledAllocator:
    """Install `allocator` unless it is there already, try it out, and return it.

    `say` is called with a line before each step that takes a while. Raises HeapfitError when it
    cannot be installed, or when a program does not run under it.
    """
    installed = find_installed(allocator)
    if installed is None:
        _source(allocator).install(allocator, say)
        installed = find_installed(allocator)
    if installed is None:
        raise HeapfitError(
            f"{allocator.source.package or allocator.name} was installed "
            f"but holds no library {allocator.source.library!r}"
        )
    smoke_test(installed)
    return installed


def resolve_allocators(names: Iterable[str]) -> list[InstalledAllocator]:
    """Return the allocators that a user named, each checked to load into a program.

    Raises UsageError for a name that is unknown or given twice, HeapfitError for an allocator
    that is not installed or does not load.
    """
    resolved: dict[str, InstalledAllocator] = {}
    for allocator in find_allocators(names):
        if allocator.name in resolved:
            raise UsageError(f"the allocator {allocator.name!r} is named twice")
        resolved[allocator.name] = _require(allocator)
    for installed in resolved.values():
        check_loads(installed)
    return list(resolved.values())


def find_allocators(names: Iterable[str]) -> list[Allocator]:
    """Return the entries that a user named, installed or not."""
    catalogue = load_allocators()
    return [_find(name.strip(), catalogue) for name in names]


def _find(name: str, catalogue: dict[str, Allocator]) -> Allocator:
    own_name, equals, library = name.partition("=")
    if equals and own_name and library:
        return _from_path(own_name, library)
    if name.endswith(".toml"):
        return _from_file(Path(name))
    if "/" in name:
        raise UsageError(f"a library needs a name of yours: write {shell_word(f'mine={name}')}")
    if name not in catalogue:
        raise unknown("allocator", name, catalogue)
    return catalogue[name]


def _source(allocator: Allocator) -> Source:
    return SOURCES[allocator.source.kind]


def _from_path(name: str, library: str) -> Allocator:
    source = AllocatorSource(kind="file", library=str(expanded(library).absolute()))
    return Allocator(name=name, title=f"{name} ({Path(library).name})", source=source)


def _from_file(path: Path) -> Allocator:
    allocator = read_record(path, Allocator)
    if allocator.source.kind != "file" or allocator.source.library is None:
        return allocator
    library = path.absolute().parent / expanded(allocator.source.library)
    source = allocator.source.model_copy(update={"library": str(library)})
    return allocator.model_copy(update={"source": source})


def _require(allocator: Allocator) -> InstalledAllocator:
    installed = find_installed(allocator)
    if installed is not None:
        return installed
    if allocator.source.kind in ("file", "heapfit", "by-hand"):
        _source(allocator).install(allocator, lambda _: None)  # Says what is wrong.
    raise HeapfitError(
        f"{allocator.name} is not installed; run: heapfit allocators install {allocator.name}"
    )


# ---------------------------------------------------------------- trying out


def check_loads(allocator: InstalledAllocator) -> None:
    """Raise HeapfitError unless a program that runs under `allocator` gets its malloc from it."""
    if allocator.library is None:
        return
    library = str(allocator.library)
    result = _run(allocator, [sys.executable, "-S", "-c", _WHERE_IS_MALLOC, library])
    refusal = re.search(r"cannot be preloaded \((.*?)\)", result.stderr)
    if refusal:
        raise HeapfitError(
            f"{allocator.name}: {library} does not load ({refusal[1]}); "
            "is it a shared library for this machine?"
        )
    if result.returncode != 0:
        raise _failure(allocator, "python3", last_line(result))
    provider = result.stdout.strip()
    if provider != library:
        raise HeapfitError(
            f"{allocator.name}: {library} loads but malloc comes from {provider}; "
            "an allocator's library must export malloc"
        )


def smoke_test(allocator: InstalledAllocator) -> None:
    """Run real programs under `allocator`; raise HeapfitError when one of them does not survive."""
    check_loads(allocator)
    true = _run(allocator, ["true"])
    if true.returncode != 0 or true.stderr:
        raise _failure(allocator, "true", last_line(true))
    environment = {"PYTHONMALLOC": "malloc"}
    threads = _run(allocator, [sys.executable, "-S", "-c", _ALLOCATE_FROM_THREADS], environment)
    if threads.returncode != 0 or threads.stdout != _ALLOCATE_PRINTS:
        raise _failure(allocator, "python3 with threads", last_line(threads))


def _run(
    allocator: InstalledAllocator,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    preload = {} if allocator.library is None else {"LD_PRELOAD": str(allocator.library)}
    return run_quietly(
        command,
        environment={**allocator.environment, **(environment or {}), **preload},
        timeout_s=_TIMEOUT_S,
    )


def _failure(allocator: InstalledAllocator, program: str, said: str) -> HeapfitError:
    return HeapfitError(f"{allocator.name} is unusable here: {program} fails under it ({said})")
