"""Try an allocator out: does it load, does malloc really come from it, do programs survive it?

The dynamic linker only warns about a library that it cannot preload and runs the program without
it. An allocator that is not checked would then be measured as if it were the system's own.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from heapfit.catalogue.command import last_line, run_quietly
from heapfit.errors import HeapfitError
from heapfit.records import InstalledAllocator

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
