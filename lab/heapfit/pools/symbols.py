"""Addresses of a process that has ended, as functions, files and lines.

Function names come from a file's symbols, lines from its DWARF (pyelftools), both also from the
file with debug information that a distribution keeps beside it, found by build id. What a file
lacks is left open: a stripped program has addresses only.
"""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from elftools.common.exceptions import DWARFError, ELFError
from elftools.elf.elffile import ELFFile

from heapfit.pools.explanation import Module

# Where Debian and others put debug information, by build id.
_DEBUG_FOLDER = Path("/usr/lib/debug/.build-id")

_SYMBOL = struct.Struct("<IBBHQQ")  # st_name, st_info, st_other, st_shndx, st_value, st_size
_FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC: the low half of st_info
_UNDEFINED = 0  # SHN_UNDEF
_RELATIVE_DIRECTORIES = 5  # from this version of DWARF on, numbers of files and folders begin at 0

# What pyelftools raises for a file that is cut off, damaged or newer than itself.
_UNREADABLE = (ELFError, DWARFError, OSError, ValueError, KeyError, IndexError, AssertionError)


@dataclass(frozen=True)
class Frame:
    """Where a call was made from, as far as it is known."""

    address: int
    module: str | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None

    @property
    def where(self) -> str:
        """The frame in a line: `function (file:line)`, or as much of that as is known.

        >>> Frame(0x1234, "/usr/bin/x", "main", "/src/x.c", 7).where
        'main (x.c:7)'
        >>> Frame(0x1234, "/usr/bin/x").where
        '0x1234 (x)'
        """
        place = f"{Path(self.file).name}:{self.line}" if self.file else self._module_name
        name = self.function or f"{self.address:#x}"
        return f"{name} ({place})" if place else name

    @property
    def _module_name(self) -> str:
        return Path(self.module).name if self.module else ""


_What = TypeVar("_What")
_Span = tuple[int, int, _What]  # the first address, the end, what is there
_Line = _Span[tuple[str, int]]  # the file and the line


def covering(spans: Sequence[_Span[_What]], address: int) -> _Span[_What] | None:
    """Return the last of `spans`, in order of their first address, to begin before `address`,
    unless it has ended there."""
    place = bisect_right(spans, address, key=lambda span: span[0]) - 1
    return spans[place] if place >= 0 and address < spans[place][1] else None


class Symbols:
    """Finds frames among the files that a process had mapped."""

    def __init__(self, modules: Sequence[Module]) -> None:
        by_base = sorted(modules, key=lambda module: module.base)
        self._modules = [(module.base, module.end, module) for module in by_base]
        self._files: dict[str, _File] = {}

    def frame(self, return_address: int) -> Frame:
        """Return the frame of the call that returns to `return_address`."""
        found = covering(self._modules, return_address)
        if found is None:
            return Frame(return_address)
        module = found[2]
        file = self._files.setdefault(module.path, _File(Path(module.path)))
        # The call is the instruction before; the one after may be another line, or function.
        at = return_address - 1 - (0 if file.is_fixed else module.base)
        name, line = file.function(at), file.line(at)
        return Frame(return_address, module.path, name, *(line or (None, None)))

    def frames(self, chain: Sequence[int]) -> list[Frame]:
        """Return the frames of a chain of return addresses."""
        return [self.frame(address) for address in chain]


class _File:
    """One file's symbols and lines, each read when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[int, list[_Line]] = {}  # by the offset of the compilation unit

    def function(self, address: int) -> str | None:
        found = covering(self._functions, address)
        return demangled(found[2]) if found else None

    def line(self, address: int) -> tuple[str, int] | None:
        try:
            unit = self._unit(address)
            found = covering(self._lines_of(unit), address) if unit is not None else None
            return found[2] if found else None
        except _UNREADABLE:
            return None

    @cached_property
    def is_fixed(self) -> bool:
        """Whether it lies where it says, and not at a base (a program that is not PIE)."""
        return any(elf.header["e_type"] == "ET_EXEC" for elf in self._elves[:1])

    @cached_property
    def _elves(self) -> list[ELFFile]:
        """The file, and that with its debug information; those of them that can be read."""
        elves = []
        try:
            elves.append(ELFFile(self._path.open("rb")))
            debug = _debug_file(elves[0])
            if debug is not None:
                elves.append(ELFFile(debug.open("rb")))
        except _UNREADABLE:
            pass
        return elves

    @cached_property
    def _functions(self) -> list[_Span[str]]:
        try:
            found = sorted({each for elf in self._elves for each in _functions(elf)})
        except _UNREADABLE:
            return []
        return [(start, start + size, name) for start, size, name in found]

    @cached_property
    def _dwarf(self) -> Any:
        for elf in self._elves:
            if elf.get_section_by_name(".debug_info") and elf.get_section_by_name(".debug_line"):
                return elf.get_dwarf_info()
        return None

    @cached_property
    def _aranges(self) -> Any:
        """Which compilation unit is where, if the file has a table of it."""
        return self._dwarf.get_aranges()

    @cached_property
    def _units(self) -> list[tuple[int, int, Any]]:
        """The ranges of addresses of the compilation units, for files without .debug_aranges."""
        return sorted(
            ((low, high, unit) for unit in self._dwarf.iter_CUs() for low, high in _ranges(unit)),
            key=lambda each: each[:2],
        )

    def _unit(self, address: int) -> Any:
        if self._dwarf is None:
            return None
        offset = self._aranges.cu_offset_at_addr(address) if self._aranges else None
        if offset is not None:
            return self._dwarf.get_CU_at(offset)
        return next((unit for low, high, unit in self._units if low <= address < high), None)

    def _lines_of(self, unit: Any) -> list[_Line]:
        if unit.cu_offset not in self._lines:
            self._lines[unit.cu_offset] = sorted(_lines(self._dwarf, unit))
        return self._lines[unit.cu_offset]


def _functions(elf: ELFFile) -> Iterator[tuple[int, int, str]]:
    """Yield the functions of a file: address, size, name.

    Read here and not by pyelftools, which takes seconds for a hundred thousand.
    """
    for section in (elf.get_section_by_name(name) for name in (".symtab", ".dynsym")):
        if section is None or section["sh_type"] == "SHT_NOBITS":
            continue
        names = elf.get_section(section["sh_link"]).data()
        for name, info, _, index, value, size in _SYMBOL.iter_unpack(section.data()):
            if info & 0xF in _FUNCTION_TYPES and index != _UNDEFINED and size:
                yield value, size, names[name : names.index(b"\0", name)].decode(errors="replace")


def _debug_file(elf: ELFFile) -> Path | None:
    section: Any = elf.get_section_by_name(".note.gnu.build-id")
    for note in section.iter_notes() if section else ():
        if note["n_type"] == "NT_GNU_BUILD_ID":
            path = _DEBUG_FOLDER / note["n_desc"][:2] / f"{note['n_desc'][2:]}.debug"
            return path if path.is_file() else None
    return None


def _ranges(unit: Any) -> Iterator[tuple[int, int]]:
    """Yield the ranges of addresses that a compilation unit says it has."""
    top = unit.get_top_DIE().attributes
    if "DW_AT_low_pc" not in top or "DW_AT_high_pc" not in top:
        return
    low, high = top["DW_AT_low_pc"].value, top["DW_AT_high_pc"]
    is_address = high.form == "DW_FORM_addr"
    yield low, high.value if is_address else low + high.value


def _lines(dwarf: Any, unit: Any) -> Iterator[_Line]:
    program = dwarf.line_program_for_CU(unit)
    if not program:
        return
    file_name = cache(lambda number: _file_name(program, number))
    before = None
    for now in line_rows(program):
        if before is not None and before.address < now.address:
            yield before.address, now.address, (file_name(before.file), before.line)
        before = None if now.ends else now


class LineRow(NamedTuple):
    """From an address on, the code is of this line; or before it a sequence of code ends."""

    address: int
    file: int
    line: int
    ends: bool


def line_rows(program: Any) -> Iterator[LineRow]:
    """Yield the rows of a line number program: DWARF 5, section 6.2.5.

    Run here and not by pyelftools, which takes minutes for a program of a million lines.
    """
    header = program.header
    step, base = header["minimum_instruction_length"], header["opcode_base"]
    first_line, lines = header["line_base"], header["line_range"]
    program.stream.seek(program.program_start_offset)
    code = program.stream.read(program.program_end_offset - program.program_start_offset)
    at, address, file, line = 0, 0, 1, 1
    while at < len(code):
        opcode = code[at]
        at += 1
        if opcode >= base:  # special: both advance
            address += (opcode - base) // lines * step
            line += first_line + (opcode - base) % lines
            yield LineRow(address, file, line, False)
        elif opcode == 0:  # extended, with its length
            size, at = _unsigned(code, at)
            if code[at] == 1:  # DW_LNE_end_sequence
                yield LineRow(address, file, line, True)
                address, file, line = 0, 1, 1
            elif code[at] == 2:  # DW_LNE_set_address
                address = int.from_bytes(code[at + 1 : at + size], "little")
            at += size
        elif opcode == 1:  # DW_LNS_copy
            yield LineRow(address, file, line, False)
        elif opcode == 2:  # DW_LNS_advance_pc
            by, at = _unsigned(code, at)
            address += by * step
        elif opcode == 3:  # DW_LNS_advance_line
            by, at = _signed(code, at)
            line += by
        elif opcode == 4:  # DW_LNS_set_file
            file, at = _unsigned(code, at)
        elif opcode == 8:  # DW_LNS_const_add_pc
            address += (255 - base) // lines * step
        elif opcode == 9:  # DW_LNS_fixed_advance_pc
            address += int.from_bytes(code[at : at + 2], "little")
            at += 2
        else:  # of a column, a flag, or yet to be invented
            for _ in range(header["standard_opcode_lengths"][opcode - 1]):
                _, at = _unsigned(code, at)


def _unsigned(code: bytes, at: int) -> tuple[int, int]:
    """Read a ULEB128: its value, and where the next thing begins."""
    value = shift = 0
    while code[at] & 0x80:
        value |= (code[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | code[at] << shift, at + 1


def _signed(code: bytes, at: int) -> tuple[int, int]:
    """Read an SLEB128."""
    value, after = _unsigned(code, at)
    bits = 7 * (after - at)
    return value - (1 << bits) if value >> (bits - 1) else value, after


def _file_name(program: Any, number: int) -> str:
    first = 0 if program.header["version"] >= _RELATIVE_DIRECTORIES else 1
    entry = program["file_entry"][number - first]
    folders = program["include_directory"]
    # Before DWARF 5 the compiler's own folder has no entry, and the number 0.
    within = entry["dir_index"] - first
    folder = folders[within].decode(errors="replace") if 0 <= within < len(folders) else ""
    return str(Path(folder, entry["name"].decode(errors="replace")))


@cache
def demangled(name: str) -> str:
    """Return a C++ symbol as it was written, if the C++ library is there to say it; else `name`.

    >>> demangled("main")
    'main'
    """
    library = _cxx_library()
    if not name.startswith("_Z") or library is None:
        return name
    status = ctypes.c_int()
    made = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not made:
        return name
    try:
        return ctypes.string_at(made).decode(errors="replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(made))


@cache
def _cxx_library() -> Any:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library
