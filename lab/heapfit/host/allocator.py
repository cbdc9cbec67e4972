"""Which allocator a process has."""

import mmap
import os
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from heapfit.host.elf import Elf, open_regular, read_or_none
from heapfit.host.proc import inside, undeleted

# Names of libraries. Debian's musl calls itself libc.so.
_LIBRARIES = {
    "heapfit": r"libheapfit(-\w+)?\.so",
    "jemalloc": r"libjemalloc\w*\.so",
    "mimalloc": r"libmimalloc[\w.-]*\.so",
    "tcmalloc": r"libtcmalloc\w*\.so",
    "snmalloc": r"libsnmalloc[\w-]*\.so",
    "rpmalloc": r"librpmalloc\w*\.so",
    "hoard": r"libhoard\.so",
    "musl": r"(ld-musl-\w+|libc\.musl-\w+)\.so|libc\.so$",
    "glibc": r"libc(-2\.\d+\.so|\.so\.6)",
}
# They pass calls on.
_NO_ALLOCATORS = re.compile(r"libheapfit-(record|trace)\.so")
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


_Found = TypeVar("_Found")


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


_LONGEST_LIST = 1 << 16  # of /etc/ld.so.preload


def allocator_of(
    files: Collection[str], exe: str, folder: Path, preload: str | None
) -> Allocator | None:
    """Return the allocator of a process that maps `files` and runs `exe`, as it sees them, and was
    started with LD_PRELOAD as in `preload` (None: not known); None where none is known. Its folder
    in /proc has the program, even one that is deleted."""
    own = _linked(folder / "exe")
    if own is not None:  # A program's own malloc is found before any library's.
        return Allocator(own, exe, linked=True)
    for path in _in_order(files, folder, preload):
        elf, name = _library(folder, path), _known(path)
        if _NO_ALLOCATORS.match(Path(path).name) or not (name if elf is None else elf.has_malloc):
            continue
        name = name or Path(path).name.removeprefix("lib").partition(".so")[0]
        return Allocator(name, path, _version(name, inside(folder, path)))
    return None


def _known(path: str) -> str | None:
    name = Path(undeleted(path)).name
    return next((key for key, each in _LIBRARIES.items() if re.match(each, name)), None)


def is_glibc(path: str) -> bool:
    """Whether a file that a process maps is glibc's C library; an upgrade may have replaced it."""
    return _known(path) == "glibc"


def _in_order(files: Collection[str], folder: Path, preload: str | None) -> Iterator[str]:
    """Yield the libraries among `files` in the order in which the loader looks for a function in
    them: what is preloaded, what the program needs, what that needs. A library that the program has
    opened itself (dlopen) is not among them."""
    by_name = {Path(undeleted(each)).name: each for each in files}

    def found(name: str) -> Iterator[str]:
        yield from (path for each, path in by_name.items() if f"{each}.".startswith(f"{name}."))

    if preload is None:  # A known one may be.
        first = [each for each in files if _known(each) not in (None, "glibc", "musl")]
    else:
        listed = _text(folder / "root" / "etc" / "ld.so.preload")
        names = re.split(r"[:\s]+", f"{preload} " + re.sub("#.*", "", listed))
        # One of another name leads to the file whose name /proc tells.
        names = [each for name in names if name for each in (name, _target(folder, name))]
        links = (Path(each).name for each in names)
        first = [path for each in dict.fromkeys(links) for path in found(each)]

    def needed(elf: Elf | None) -> list[str]:
        return [path for each in (elf.needed if elf else ()) for path in found(each)]

    waiting, seen = [*first, *needed(read_or_none(folder / "exe"))], set[str]()
    while waiting:
        path = waiting.pop(0)
        if path not in seen:
            seen.add(path)
            yield path
            waiting += needed(_library(folder, path))
    # A C library that goes by another name than the program calls it.
    yield from (each for each in files if _known(each) in ("glibc", "musl"))


def _target(folder: Path, name: str) -> str:
    return os.path.realpath(inside(folder, name)) if "/" in name else name


def _library(folder: Path, path: str) -> Elf | None:
    return read_or_none(inside(folder, path))


def _text(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_LONGEST_LIST).decode(errors="replace")
    except OSError:
        return ""


def _linked(program: Path) -> str | None:
    """Return the allocator that a program has itself; None where it takes that of a library."""
    elf = read_or_none(program)
    if elf is None or (elf.loader is not None and not elf.has_malloc):
        return None
    found = _searched(program, lambda data: [e for e in _LINKED if data.find(_LINKED[e]) >= 0])
    return found[0] if found else OWN


def _version(name: str, library: Path) -> str:
    """Return the version of the C library; others' files have that of their interface alone."""
    if name != "glibc":
        return ""
    found = _searched(library, lambda data: [e[1] for e in _GLIBC_VERSION.finditer(data)])
    return found[0].decode() if found else ""


def _searched(path: Path, look: Callable[[mmap.mmap], _Found]) -> _Found | None:
    """Return what `look` finds in a file's contents; None where it cannot be read, or is huge."""
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size > _LARGEST_SEARCHED:
                return None
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return look(data)
    except (OSError, ValueError):
        return None
