"""What an ELF file says of itself: its dynamic loader, and which symbols it defines for others.

Only 64-bit little-endian files are understood, the kind that heapfit runs on.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_HEADER = struct.Struct("<32xQQ6xHHHH2x")  # e_phoff, e_shoff, sizes and counts
_SEGMENT = struct.Struct("<I4xQ16xQ16x")  # p_type, p_offset, p_filesz
_SECTION = struct.Struct("<4xI16xQQI12x8x")  # sh_type, sh_offset, sh_size, sh_link
_SYMBOL = struct.Struct("<I2xH16x")  # st_name, st_shndx
_LOADER_SEGMENT = 3  # PT_INTERP
_DYNAMIC_SYMBOLS = 11  # SHT_DYNSYM
_UNDEFINED = 0  # SHN_UNDEF


@dataclass(frozen=True)
class Elf:
    """`loader` is None in a statically linked program and in a library."""

    loader: Path | None
    exports: frozenset[bytes]


def read(path: Path) -> Elf | None:
    """Return what the file says, or None when it is not a whole ELF file of the kind understood.

    Raises OSError when it cannot be read.
    """
    with path.open("rb") as file:
        try:
            return _read(file)
        except (struct.error, ValueError, IndexError):  # cut off, or made to confuse
            return None


def _read(file: BinaryIO) -> Elf | None:
    header = _part(file, 0, _HEADER.size)
    if not header.startswith(_MAGIC):
        return None
    segments_at, sections_at, *sizes = _HEADER.unpack(header)
    segment_size, segment_count, section_size, section_count = sizes
    segments = _part(file, segments_at, segment_size * segment_count)
    sections = _part(file, sections_at, section_size * section_count)
    return Elf(_loader(file, segments), frozenset(_exports(file, sections)))


def _loader(file: BinaryIO, segments: bytes) -> Path | None:
    for kind, offset, size in _SEGMENT.iter_unpack(segments):
        if kind == _LOADER_SEGMENT:
            return Path(_part(file, offset, size).rstrip(b"\0").decode())
    return None


def _exports(file: BinaryIO, sections: bytes) -> Iterator[bytes]:
    tables = list(_SECTION.iter_unpack(sections))
    for kind, offset, size, names_index in tables:
        if kind == _DYNAMIC_SYMBOLS:
            names = _part(file, *tables[names_index][1:3])
            for name, section in _SYMBOL.iter_unpack(_part(file, offset, size)):
                if section != _UNDEFINED:
                    yield names[name : names.index(b"\0", name)]


def _part(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)
