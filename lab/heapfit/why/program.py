"""Which allocator a process has."""

from __future__ import annotations

import mmap
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from heapfit.program import read

# Names of libraries, in the order in which one wins where several are there and none is preloaded.
# heapfit's recorder passes calls on, and is no allocator. Debian's musl calls itself libc.so.
_LIBRARIES = {
    "heapfit": r"libheapfit(-(?!record|trace)\w+)?\.so",
    "jemalloc": r"libjemalloc\w*\.so",
    "mimalloc": r"libmimalloc[\w.-]*\.so",
    "tcmalloc": r"libtcmalloc\w*\.so",
    "snmalloc": r"libsnmalloc[\w-]*\.so",
    "rpmalloc": r"librpmalloc\w*\.so",
    "hoard": r"libhoard\.so",
    "musl": r"(ld-musl-\w+|libc\.musl-\w+)\.so|libc\.so$",
    "glibc": r"libc(-2\.\d+\.so|\.so\.6)",
}
OWN = "its own malloc"  # of a program, and not known
# What is in a program that has an allocator linked into it.
_LINKED = {
    "heapfit": b"HEAPFIT_OPTIONS",
    "jemalloc": b"<jemalloc>: ",
    "mimalloc": b"mimalloc: ",
    "tcmalloc": b"TCMALLOC_",
    "snmalloc": b"snmalloc",
    "glibc": b"malloc(): corrupted top size",
}
_LARGEST_SEARCHED = 512 << 20
_GLIBC_VERSION = re.compile(rb"stable release version (\d+\.\d+)")


@dataclass(frozen=True)
class Allocator:
    name: str
    file: str  # where it is: a library, or the program itself
    version: str = ""
    linked: bool = False  # into the program, so that no preload takes its place

    @property
    def text(self) -> str:
        if self.linked:
            return f"{self.name}, linked into the program"
        return (
            f"{self.name} {self.version}"
            if self.version
            else f"{self.name} ({Path(self.file).name})"
        )


_DELETED = " (deleted)"  # A file that an upgrade has replaced: its name is followed by this.


def allocator_of(
    files: Collection[str], exe: str, folder: Path, preload: str = ""
) -> Allocator | None:
    """Return the allocator of a process that maps `files` and runs `exe`, as it sees them, and was
    started with LD_PRELOAD as in `preload`; None where none is known. Its folder in /proc has the
    program, even one that is deleted."""
    own = _linked(folder / "exe")
    if own is not None:  # A program's own malloc is found before any library's.
        return Allocator(own, exe, linked=True)
    by_name = {Path(each.removesuffix(_DELETED)).name: each for each in files}
    preloaded = [Path(each).name for each in re.split("[: ]", preload)]
    # A preloaded one first: of files that are linked to, /proc has the last one's name.
    for name, pattern in sorted(
        _LIBRARIES.items(), key=lambda each: not any(re.match(each[1], e) for e in preloaded)
    ):
        found = next((by_name[each] for each in by_name if re.match(pattern, each)), None)
        if found is not None:
            version = _version(name, folder / "root" / found.lstrip("/"))
            return Allocator(name, found, version)
    return None


def _linked(program: Path) -> str | None:
    """Return the allocator that a program has itself; None where it takes that of a library."""
    try:
        elf = read(program)
        if elf is None or (elf.loader is not None and not elf.has_malloc):
            return None
        if program.stat().st_size > _LARGEST_SEARCHED:
            return OWN
        with (
            program.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return next((name for name, mark in _LINKED.items() if data.find(mark) >= 0), OWN)
    except (OSError, ValueError):
        return None


def _version(name: str, library: Path) -> str:
    """Return the version of the C library; others' files have that of their interface alone."""
    try:
        found = _GLIBC_VERSION.search(library.read_bytes()) if name == "glibc" else None
    except OSError:
        return ""
    return found[1].decode() if found else ""
