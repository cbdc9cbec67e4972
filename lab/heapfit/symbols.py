"""Addresses of a process that has ended, as functions, files and lines, inlined calls included.

Lines and inlined calls come from DWARF (Sentry's symbolic), functions also from the symbols of a
file without it; both also from the file with debug information that a distribution keeps beside
it, found by build id. What a file lacks is left open: a stripped program has addresses only.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from heapfit.host.proc import undeleted
from heapfit.names import brief, is_of_rust, passes_on, shortened, started

# Where Debian and others put debug information: by build id, or below it as the file itself lies.
_DEBUG_ROOT = Path("/usr/lib/debug")
_DEBUG_FOLDER = _DEBUG_ROOT / ".build-id"
_INSTALLED = Path("/usr")

_SYMBOL = struct.Struct("<IBBHQQ")  # st_name, st_info, st_other, st_shndx, st_value, st_size
_FUNCTION_TYPES = (2, 10)  # STT_FUNC, STT_GNU_IFUNC: the low half of st_info
_UNDEFINED = 0  # SHN_UNDEF
_ADDRESSES = 1 << 48  # what traces add to one, for other processes and later code, is above

# What pyelftools raises for a file that is cut off, damaged or newer than itself.
_UNREADABLE = (ELFError, OSError, ValueError, KeyError, IndexError, AssertionError)


class Module(Protocol):
    """A mapped file: what it calls an address is the address in the process less `base`."""

    @property
    def path(self) -> str: ...
    @property
    def base(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True)
class Frame:
    """Where a call was made from, as far as it is known."""

    address: int
    module: str | None = None
    function: str | None = None
    file: str | None = None
    line: int | None = None
    offset: int | None = None  # in the module's file

    @property
    def where(self) -> str:
        """The frame in a line: `function (file:line)`, or as much of that as is known.

        >>> Frame(0x1234, "/usr/bin/x", "main", "/src/x.c", 7).where
        'main (x.c:7)'
        >>> Frame(0x1234, "/usr/bin/x").where
        '0x1234 (x)'
        """
        place = f"{Path(self.file).name}:{self.line}" if self.file else self._module_name
        name = self.function or f"{self.address % _ADDRESSES:#x}"
        return f"{name} ({place})" if place else name

    @property
    def is_interpreted(self) -> bool:
        """Whether it is a line of an interpreted program, whose source is all that there is of it.

        >>> Frame(1, "/srv/views.py", "index", "/srv/views.py", 41).is_interpreted
        True
        """
        return self.module is not None and self.module == self.file

    @property
    def _module_name(self) -> str:
        return Path(self.module).name if self.module else ""


_What = TypeVar("_What")
_Span = tuple[int, int, _What]  # the first address, the end, what is there
_Call = tuple[str | None, str | None, int | None]  # a function, its file, and the line there


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

    def inlined(self, return_address: int) -> list[Frame]:
        """Return the frames of the call that returns to `return_address`: of the functions that the
        compiler has put into one another there, the innermost first. One at least."""
        found = covering(self._modules, return_address)
        if found is None:
            return [Frame(return_address)]
        module = found[2]
        if module.path not in self._files:
            self._files[module.path] = _opened(Path(module.path))
        file = self._files[module.path]
        # The call is the instruction before; the one after may be another line, or function.
        calls = file.calls(return_address - 1 - (0 if file.is_fixed else module.base))
        return [Frame(return_address, module.path, *call) for call in calls]

    def frame(self, return_address: int) -> Frame:
        """Return the last of these: the function that was called, and the line in it."""
        return self.inlined(return_address)[-1]

    def frames(self, chain: Sequence[int]) -> list[Frame]:
        """Return the frames of a chain of return addresses, one for each."""
        return [self.frame(address) for address in chain]


class Files:
    """Finds frames by file and by the address that a call has there."""

    def __init__(self, root: Path | None = None) -> None:
        """`root`: /proc/PID/root of the process, which may have other files than we, and may have
        mapped what is replaced by now."""
        self._root = root
        self._files: dict[str, _File] = {}

    def inlined(self, path: str, call: int) -> list[Frame]:
        """Return the frames of a call, as `Symbols.inlined`; a path of "" is no file."""
        if not path:
            return [Frame(call)]
        if path not in self._files:
            self._files[path] = _File(self._found(path))
        calls = self._files[path].calls(call)
        return [Frame(call + 1, path, *each, offset=call) for each in calls]

    def build_id(self, path: str) -> str:
        """Return the build id of a file; nothing of one that has none."""
        return build_id(self._found(path))

    def _found(self, path: str) -> Path:
        if self._root is None:
            return Path(path)
        if path in self._replaced:
            return self._replaced[path]
        inside = self._root / path.lstrip("/")
        try:
            if inside.is_file():
                return inside
        except OSError:  # it has ended, or is not ours
            pass
        return Path(path)

    @cached_property
    def _replaced(self) -> dict[str, Path]:
        """The files that the process has mapped and that are not at their paths any more, by path:
        another may be, of an upgrade or a build. The kernel lets its root open any of them, and the
        process's owner the program; one that cannot be opened has no names."""
        assert self._root is not None
        process = self._root.parent
        found: dict[str, Path] = {}
        try:
            lines = (process / "maps").read_text(errors="surrogateescape").splitlines()
            program = os.readlink(process / "exe")
        except OSError:
            return {}
        for line in lines:
            words = line.split(maxsplit=5)
            if len(words) > 5 and words[5] != undeleted(words[5]):
                is_program = words[5] == program
                link = process / "exe" if is_program else process / "map_files" / words[0]
                found[undeleted(words[5])] = link
        return found


def _opened(path: Path) -> _File:
    """Return a file's symbols. Many short recordings are of the same few installed files, whose
    symbols take far longer to read than such a recording; others may be built anew meanwhile."""
    try:
        now = path.stat()
    except OSError:
        return _File(path)
    if not path.resolve().is_relative_to(_INSTALLED):
        return _File(path)
    return _kept(path, now.st_ino, now.st_mtime_ns, _DEBUG_FOLDER)


@lru_cache(maxsize=16)
def _kept(path: Path, *_version: object) -> _File:
    return _File(path)


class _File:
    """One file's symbols and lines, each read when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def calls(self, address: int) -> list[_Call]:
        """Return what was called at an address as the file itself has it, the innermost first."""
        found = self._lines.lookup(address - self._lowest) if self._lines else []
        # Without a line it is the nearest symbol, however far it is.
        known = [each for each in found if each.full_path and each.line]
        if known:
            return [(demangled(each.symbol), each.full_path, each.line) for each in known]
        symbol = covering(self._functions, address)
        return [(demangled(symbol[2]) if symbol else None, None, None)]

    @cached_property
    def _lines(self) -> Any:
        """The DWARF of the file, or of that beside it, with an index; None: there is none."""
        # They load a library: only where a line is wanted.
        from symbolic.debuginfo import Archive
        from symbolic.exceptions import SymbolicError

        for elf in self._elves:
            try:
                if elf.get_section_by_name(".debug_info"):
                    [found] = Archive.open(elf.stream.name).iter_objects()
                    return found.make_symcache()
            except (SymbolicError, *_UNREADABLE):
                continue
        return None

    @cached_property
    def _lowest(self) -> int:
        """The lowest address of what is loaded, from which symbolic counts."""
        try:
            return min(each["p_vaddr"] for each in self._elves[0].iter_segments("PT_LOAD"))
        except (*_UNREADABLE, TypeError):
            return 0

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
            debug = _debug_file(elves[0]) or _linked_file(elves[0], self._path)
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


# ------------------------------------------------------------------- as people read it

# Of the standard libraries' own functions: sources, and names with or without what they return.
_MAIN = "main"
_CXX_HEADERS = "/include/c++/"
_CXX_NAMES = ("std::", "__gnu_cxx::", "operator new")
_RUST_SOURCES = re.compile(
    r"^/rustc?/(?:[0-9a-f]{40}|deps)/|/lib/rustlib/src/rust/library/|/hashbrown-[\d.]+/src/"
)
# Elsewhere, folders are called so in other projects, too: then names decide.
_RUST_FOLDERS = re.compile(r"/library/(?:alloc|core|std)/src/.*\.rs$")
_PYTHON_LIBRARY = re.compile(r"^<frozen |/python3[.\d]*/(?!(site|dist)-packages/)")
# Their functions that allocate say less than who called them.
_CXX_LIBRARIES = ("libstdc++.so", "libc++.so")
_C_LIBRARIES = ("libc.so", "libc-", *_CXX_LIBRARIES, "ld-linux", "ld-musl")


def own_calls(chain: Iterable[Frame]) -> list[tuple[Frame, str]]:
    """Return a chain of calls, the innermost first, as people look for it: their own code's alone.

    Where lines of an interpreted program are among them, these are that code. What the libraries of
    C++ and Rust have put in between is left out, and so are functions of the C library and of
    Python's that allocate, and what calls `main` or starts a thread. The last function that is left
    out before the first call that stays is named beside that one. Where nothing would stay, what
    the libraries' users call does, or else all.
    """
    chain = list(chain)
    chain = [frame for frame in chain if frame.is_interpreted] or chain
    chain = chain[: started([shortened(frame.function or "") for frame in chain])] or chain
    frames: list[Frame] = []
    found: list[tuple[Frame, str]] = []
    via = ""
    for frame in chain:
        frames.append(frame)
        if _is_between(frame) or (not found and (_is_of_c(frame) or _is_of_python(frame))):
            via = _short(frame) or via
        else:
            found.append((frame, "" if found else via))
        if frame.function == _MAIN and not frame.is_interpreted:
            break
    named = [frame for frame in frames if not passes_on(shortened(frame.function or ""))]
    return found or [(frame, "") for frame in named or frames]


def told(chain: Iterable[Frame]) -> list[str]:
    """Return these calls in words.

    >>> told([Frame(1, "/bin/x", "std::vector<int>::resize(unsigned long)"),
    ...       Frame(2, "/bin/x", "open(int)", "/src/x.cc", 7), Frame(3, "/bin/x", "main")])
    ['open (x.cc:7, std::vector::resize)', 'main']
    >>> told([Frame(1, path, name, path, 7) for path, name in (
    ...       ("/usr/lib/python3.11/json/decoder.py", "JSONDecoder.decode"), ("/a.py", "main"))])
    ['main (a.py:7, JSONDecoder.decode)']
    """
    return [_told(frame, via) for frame, via in own_calls(chain)]


def _told(frame: Frame, via: str) -> str:
    place = f"{Path(frame.file).name}:{frame.line}" if frame.file and frame.line else ""
    if frame.function:
        beside = ", ".join(filter(None, (place, via)))
        return f"{_short(frame)} ({beside})" if beside else _short(frame)
    if frame.module is None or frame.offset is None:
        return f"{frame.address:#x}"
    return f"{Path(frame.module).name}+{frame.offset:#x}"


def _short(frame: Frame) -> str:
    name = frame.function or ""
    return name if frame.is_interpreted else brief(name)  # there, <locals> is no template


def _is_between(frame: Frame) -> bool:
    """Whether a function is of a standard library that calls the allocator for the program."""
    function, file = frame.function or "", frame.file or ""
    if not function:
        return Path(frame.module or "").name.startswith(_CXX_LIBRARIES)
    return (
        _CXX_HEADERS in file
        or brief(function).startswith(_CXX_NAMES)
        or passes_on(shortened(function))
        or bool(_RUST_SOURCES.search(file))
        or ((not file or bool(_RUST_FOLDERS.search(file))) and is_of_rust(function))
    )


def _is_of_python(frame: Frame) -> bool:
    return frame.is_interpreted and bool(_PYTHON_LIBRARY.search(frame.file or ""))


def _is_of_c(frame: Frame) -> bool:
    return bool(frame.function) and Path(frame.module or "").name.startswith(_C_LIBRARIES)


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
    number = _build_id(elf)
    path = _DEBUG_FOLDER / number[:2] / f"{number[2:]}.debug"
    return path if number and path.is_file() else None


def _linked_file(elf: ELFFile, path: Path) -> Path | None:
    """Return the file with debug information that `path` names (.gnu_debuglink): beside it, in
    .debug there, or below Debian's folder. One whose checksum is another's is of another build."""
    section = elf.get_section_by_name(".gnu_debuglink")
    if section is None:
        return None
    data = section.data()
    name = os.fsdecode(data[: data.index(b"\0")])
    checksum = int.from_bytes(data[-4:], sys.byteorder)
    folder = path.resolve().parent
    below = _DEBUG_ROOT / folder.relative_to("/")
    for each in (folder / name, folder / ".debug" / name, below / name):
        if "/" not in name and each.is_file() and zlib.crc32(each.read_bytes()) == checksum:
            return each
    return None


def _build_id(elf: ELFFile) -> str:
    section: Any = elf.get_section_by_name(".note.gnu.build-id")
    for note in section.iter_notes() if section else ():
        if note["n_type"] == "NT_GNU_BUILD_ID":
            return str(note["n_desc"])
    return ""


def build_id(path: Path) -> str:
    """Return the build id of a file in hexadecimal; nothing of one that has none."""
    if not path.is_file():  # opening a pipe could wait for ever
        return ""
    try:
        with path.open("rb") as file:
            return _build_id(ELFFile(file))
    except _UNREADABLE:
        return ""


_OF_GLIBC = "__GI_"  # its name for itself
_COLD_PART = re.compile(r"\.cold(\.\d+)?$")  # what gcc has put apart of a function
# Of Rust, and what LLVM appends.
_RUST_SYMBOL = re.compile(r"(_R[A-Z]\w+|_ZN[\w.$]+?17h[0-9a-f]{16}E)(?:\.llvm\.\d+)?")


@cache
def demangled(name: str) -> str:
    """Return a symbol of Rust or C++ as it was written, that of C++ if the C++ library is there to
    say it; one of glibc as programs call it; else `name`.

    >>> demangled("main"), demangled("_RNvCs1234_3app4main.llvm.1234"), demangled("__GI___strdup")
    ('main', 'app::main', 'strdup')
    >>> demangled("__GI__exit"), demangled("work.cold")
    ('_exit', 'work')
    >>> demangled("_ZN5alloc7raw_vec15RawVec$LT$T$GT$8grow_one17h0123456789abcdefE")
    'alloc::raw_vec::RawVec<T>::grow_one'
    """
    name = _COLD_PART.sub("", name)
    if name.startswith(_OF_GLIBC):
        return name.removeprefix(_OF_GLIBC).removeprefix("__")
    rust = _RUST_SYMBOL.fullmatch(name)
    if rust:
        import pydemumble

        return str(pydemumble.demangle(rust[1])) or name
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
