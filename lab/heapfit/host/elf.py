"""What an ELF file says of itself: its loader, whether it has a malloc, what it needs.

Only 64-bit little-endian files are understood, the kind that heapfit runs on. Standard library
only: this is looked at in front of the user's program, see `cli.quick`.
"""

import errno
import os
import re
import stat
import struct
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

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


def read_or_none(path: Path) -> Elf | None:
    """Return what the file says; None also where it cannot be read."""
    try:
        return read(path)
    except OSError:
        return None


def has_malloc(path: Path) -> bool:
    """Tell whether a program or a library brings a malloc that others can see."""
    file = read_or_none(path)
    return file is not None and file.has_malloc


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
