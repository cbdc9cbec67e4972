"""A program as a file: what runs it, whether a preload reaches it, and why it cannot be started.

Of ELF files only 64-bit little-endian ones are understood, the kind that heapfit runs on. Standard
library only: this is looked at in front of the user's program, see `cli.quick`.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import BinaryIO

from heapfit.errors import CannotRun, UsageError
from heapfit.text import visible

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<32xQQ6xHHHH2x")  # e_phoff, e_shoff, sizes and counts
_SEGMENT = struct.Struct("<I4xQ16xQQ8x")  # p_type, p_offset, p_filesz, p_memsz
_SECTION = struct.Struct("<4xI16xQQI12x8x")  # sh_type, sh_offset, sh_size, sh_link
_SYMBOL = struct.Struct("<I2xH16x")  # st_name, st_shndx
_LOADED = 1  # PT_LOAD
_LOADER_SEGMENT = 3  # PT_INTERP
_ENTRY = struct.Struct("<qQ")  # d_tag, d_val
_DYNAMIC, _DYNAMIC_SYMBOLS = 6, 11  # SHT_DYNAMIC, SHT_DYNSYM
_NEEDED = 1  # DT_NEEDED
_UNDEFINED = 0  # SHN_UNDEF
_MALLOC = re.compile(rb"(?=malloc\0)")
# Of a file that was not made to confuse: a part, a name, and how many of something there are.
_LARGEST_PART, _LONGEST_NAME, _MOST = 64 << 20, 4096, 10_000

_SCRIPT = b"#!"
_LONGEST_FIRST_LINE = 256  # what the kernel reads of a script's first line
_CAPABILITIES = "security.capability"  # extended attribute of a file with capabilities


@dataclass(frozen=True)
class Elf:
    """`loader` is None in a statically linked program and in a library."""

    loader: Path | None
    has_malloc: bool  # for others, too
    zeros: int  # bytes of variables that are not in the file (.bss)
    needed: tuple[str, ...]  # libraries that the loader loads for it, in this order


def read(path: Path) -> Elf | None:
    """Return what the file says, or None when it is not a whole ELF file of the kind understood.

    Raises OSError when it cannot be read.
    """
    with open_regular(path) as file:
        try:
            return _read(file)
        except (struct.error, ValueError, IndexError):  # cut off, or made to confuse
            return None


def undeleted(path: str) -> str:
    """Return a file's path in /proc without what follows it there once the file is deleted.

    >>> undeleted("/lib/libjvm.so (deleted)")
    '/lib/libjvm.so'
    """
    return path.removesuffix(" (deleted)")


def read_or_none(path: Path) -> Elf | None:
    """Return what the file says; None also where it cannot be read."""
    try:
        return read(path)
    except OSError:
        return None


def open_regular(path: Path) -> BinaryIO:
    """Open a file of somebody else's; OSError where it is none that ends, such as a pipe, in whose
    place a process may have put it since."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _read(file: BinaryIO) -> Elf | None:
    header = _part(file, 0, _HEADER.size)
    if not header.startswith(_MAGIC):
        return None
    segments_at, sections_at, *sizes = _HEADER.unpack(header)
    segment_size, segment_count, section_size, section_count = sizes
    segments = _part(file, segments_at, segment_size * segment_count)
    sections = _part(file, sections_at, section_size * section_count)
    zeros = sum(
        max(in_memory - in_file, 0)
        for kind, _, in_file, in_memory in _SEGMENT.iter_unpack(segments)
        if kind == _LOADED
    )
    tables = list(_SECTION.iter_unpack(sections))
    return Elf(_loader(file, segments), _has_malloc(file, tables), zeros, _needed(file, tables))


def _loader(file: BinaryIO, segments: bytes) -> Path | None:
    for kind, offset, size, _ in _SEGMENT.iter_unpack(segments):
        if kind == _LOADER_SEGMENT:
            return Path(_part(file, offset, size).rstrip(b"\0").decode())
    return None


_Sections = list[tuple[int, int, int, int]]


def _with_names(file: BinaryIO, tables: _Sections, wanted: int) -> tuple[bytes, bytes]:
    """Return the contents of the section of a kind, and the names that it refers to."""
    for kind, offset, size, names_index in tables:
        if kind == wanted:
            return _part(file, offset, size), _part(file, *tables[names_index][1:3])
    return b"", b""


def _has_malloc(file: BinaryIO, tables: _Sections) -> bool:
    symbols, names = _with_names(file, tables, _DYNAMIC_SYMBOLS)
    wanted = {each.start() for each in islice(_MALLOC.finditer(names), _MOST)}
    return any(name in wanted and at != _UNDEFINED for name, at in _SYMBOL.iter_unpack(symbols))


def _needed(file: BinaryIO, tables: _Sections) -> tuple[str, ...]:
    entries, names = _with_names(file, tables, _DYNAMIC)
    needed = [at for tag, at in _ENTRY.iter_unpack(entries) if tag == _NEEDED][:_MOST]
    ends = [names.index(b"\0", at, at + _LONGEST_NAME) for at in needed]
    return tuple(names[at:end].decode() for at, end in zip(needed, ends, strict=True))


def _part(file: BinaryIO, offset: int, size: int) -> bytes:
    if size > _LARGEST_PART:
        raise ValueError("too large to be true")
    file.seek(offset)  # which some file systems allow behind any end
    part = file.read(size)
    if len(part) < size:
        raise ValueError("cut off")
    return part


# ------------------------------------------------------------------ programs


def check_text(command: Sequence[str]) -> None:
    """Raise UsageError for a command that no result can hold: results are JSON, which is text."""
    for word in command:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"{visible(word)} is not UTF-8; put the command into a script, and name that"
            ) from None


def interpreter_of(program: Path) -> Path:
    """Return the program that runs `program` if that is a script, else itself."""
    try:
        with program.open("rb") as file:
            first = file.readline(_LONGEST_FIRST_LINE)
    except OSError:
        return program
    words = first.removeprefix(_SCRIPT).decode(errors="replace").split()
    if not first.startswith(_SCRIPT) or not words:
        return program
    plain = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    by_name = shutil.which(plain[0]) if Path(words[0]).name == "env" and plain else None
    return Path(by_name or words[0])


def started_by(name: str) -> Path | None:
    """Return the file that the kernel runs for the command `name`; None: there is none."""
    found = shutil.which(name)
    return interpreter_of(Path(found)) if found else None


def obstacle(program: Path) -> tuple[str, str] | None:
    """Return what its malloc is and what to do, where a preload would not replace it."""
    try:
        file = read(program)
        has_rights = file is not None and _gets_other_rights(program)
    except OSError:
        return None
    if file is None:
        return None
    if file.loader is None:
        return (
            "built in, because it is linked statically",
            "nothing can be preloaded into it: link it dynamically",
        )
    if file.has_malloc:
        return "its own", "it would not use a preloaded one: build it without its own"
    if has_rights:
        return (
            "protected, because it runs with other rights than yours (setuid or capabilities)",
            "nothing can be preloaded into it: start it as the user whose rights it takes",
        )
    return None


def has_malloc(path: Path) -> bool:
    """Tell whether a program or a library brings a malloc that others can see."""
    file = read_or_none(path)
    return file is not None and file.has_malloc


def why_not_replaced(program: Path) -> str | None:
    """Return why a preloaded malloc would not be the one of the file `program`; None: it would."""
    found = obstacle(program)
    return f"its malloc is {found[0]}; {found[1]}" if found else None


def why_not_preloadable(name: str) -> str | None:
    """Return why a preloaded malloc would not be used by the command `name`; None: it would."""
    program = started_by(name)
    return why_not_replaced(program) if program else None


def _gets_other_rights(program: Path) -> bool:
    """Whether the loader ignores LD_PRELOAD for us (AT_SECURE)."""
    status = program.stat()
    if os.geteuid() == 0:
        return bool(status.st_mode & stat.S_ISUID and status.st_uid != 0)
    is_other = (status.st_mode & stat.S_ISUID and status.st_uid != os.geteuid()) or (
        status.st_mode & stat.S_ISGID and status.st_gid != os.getegid()
    )
    return bool(is_other) or _CAPABILITIES in os.listxattr(program)


def cannot_start(name: str) -> CannotRun:
    """Return what to tell of a program that could not be started."""
    file = Path(name) if "/" in name else None
    found = file if file and file.exists() else shutil.which(name, mode=os.F_OK)
    if found is None:
        advice = "check its name, or install it"
        if len(name.split()) > 1:
            advice = f"write its words one by one, or have a shell read them: sh -c {quote(name)}"
        return CannotRun(f"there is no program {name!r}; {advice}", found=False)
    if Path(found).is_dir():
        return CannotRun(f"{name!r} is a folder; name a program in it", found=True)
    if not os.access(found, os.X_OK):
        return CannotRun(f"{name!r} is not executable; run: chmod +x {name}", found=True)
    interpreter = interpreter_of(Path(found))
    if not interpreter.exists():
        message = (
            f"{name!r} is a script for {interpreter}, which is not there; install that, or mend "
            "its first line"
        )
        return CannotRun(message, found=False)
    if interpreter == Path(found) and _is_text(interpreter):
        message = (
            f"{name!r} does not say what runs it; give it a first line such as #!/bin/sh, or name "
            f"that in the command: sh {name}"
        )
        return CannotRun(message, found=True)
    return CannotRun(f"{name!r} is not a program that this machine can run", found=True)


def _is_text(file: Path) -> bool:
    """Whether a file looks like a script, by what the kernel reads of it to tell."""
    try:
        with file.open("rb") as opened:
            first = opened.read(_LONGEST_FIRST_LINE)
    except OSError:
        return False
    return bool(first) and b"\0" not in first
