"""What programs that are linked with heapfit rely on, as text: `interface.py > interface.txt`

Of the public header the constants, the layout of each structure and the type of each function, as
the compiler's debugging information has them. What an object of glibc or C++ looks like is theirs,
not ours. The libraries' names and those that they export are in debian/*.symbols.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from elftools.dwarf.die import DIE
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from heapfit import paths

ROOT = Path(__file__).resolve().parents[2]
STORED = Path(__file__).with_name("interface.txt")

HIDDEN_BIT = 0x8000  # of a symbol's version: not the one that new programs get


def exports(library: Path) -> dict[str, str]:
    """Return what a library defines for others: each name with its version, '' without one."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        indices = elf.get_section_by_name(".gnu.version")
        assert isinstance(symbols, SymbolTableSection)
        assert isinstance(indices, GNUVerSymSection)
        versions = _versions(elf)
        found = {}
        for number, symbol in enumerate(symbols.iter_symbols()):
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or symbol.name == "":
                continue
            index = indices.get_symbol(number)["ndx"]
            if isinstance(index, int):
                found[symbol.name] = versions[index & ~HIDDEN_BIT]
            elif index == "VER_NDX_GLOBAL":
                found[symbol.name] = ""
        return found


def _versions(elf: ELFFile) -> dict[int, str]:
    section = elf.get_section_by_name(".gnu.version_d")
    if not isinstance(section, GNUVerDefSection):
        return {}
    return {each["vd_ndx"]: next(names).name for each, names in section.iter_versions()}


def soname(library: Path) -> str:
    """Return the name under which programs ask for a library."""
    with library.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        return next(str(tag.soname) for tag in dynamic.iter_tags("DT_SONAME"))


def symbols(package: str) -> tuple[str, dict[str, str]]:
    """Return what a Debian package says of its library: its name, and what it exports, as above."""
    head, *rest = (ROOT / "debian" / f"{package}.symbols").read_text().splitlines()
    names = [line.split()[0].partition("@")[::2] for line in rest if not line.startswith("*")]
    versions = {name: "" if version == "Base" else version for name, version in names}
    # A version is listed as a name of its own.
    return head.split()[0], {name: v for name, v in versions.items() if name != v}


def header_lines(header: str, functions: list[str]) -> Iterator[str]:
    """Yield what a header says of its types, and of these functions."""
    # A function's type is in the debugging information when there is a variable of it.
    variables = "".join(f"__typeof__({name}) *type_of_{name} = {name};\n" for name in functions)
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder, "header.o")
        command = ["gcc", "-g", "-c", "-fno-eliminate-unused-debug-types", "-I", ROOT / "include"]
        subprocess.run(
            [*command, "-x", "c", "-", "-o", compiled],
            input=f"#include <{header}>\n{variables}",
            text=True,
            check=True,
        )
        with compiled.open("rb") as file:
            [unit] = ELFFile(file).get_dwarf_info().iter_CUs()
            for entry in unit.get_top_DIE().iter_children():
                yield from _entry_lines(entry)


def _entry_lines(entry: DIE) -> Iterator[str]:
    name = _name(entry)
    if entry.tag == "DW_TAG_structure_type" and name.startswith("hf_"):
        yield from _layout(entry)
    elif entry.tag == "DW_TAG_enumeration_type":
        for constant in entry.iter_children():
            yield f"{_name(constant)} = {constant.attributes['DW_AT_const_value'].value}"
    elif entry.tag == "DW_TAG_variable" and name.startswith("type_of_"):
        function = _type(_type(entry))
        assert function is not None
        yield _function(name.removeprefix("type_of_"), function)


def _layout(structure: DIE) -> Iterator[str]:
    size = structure.attributes.get("DW_AT_byte_size")
    if size is None:
        yield f"struct {_name(structure)}"
        return
    yield f"struct {_name(structure)}, {size.value} bytes"
    for member in structure.iter_children():
        offset = member.attributes["DW_AT_data_member_location"].value
        yield f"    {offset}: {_text(_type(member))} {_name(member)}"


def _function(name: str, function: DIE) -> str:
    parameters = [_text(_type(each)) for each in function.iter_children()]
    return f"{_text(_type(function))} {name}({', '.join(parameters) or 'void'})"


def _text(kind: DIE | None) -> str:
    """Return a type as C writes it, as far as our header goes."""
    if kind is None:
        return "void"
    if kind.tag == "DW_TAG_pointer_type":
        to = _type(kind)
        if to is not None and to.tag == "DW_TAG_subroutine_type":
            return _function("(*)", to)
        return f"{_text(_type(kind))} *"
    if kind.tag == "DW_TAG_const_type":
        bare = _text(_type(kind))
        return f"{bare}const" if bare.endswith("*") else f"const {bare}"
    if kind.tag == "DW_TAG_structure_type":
        return f"struct {_name(kind)}"
    if kind.tag == "DW_TAG_array_type":
        [bounds] = kind.iter_children()
        return f"{_text(_type(kind))}[{bounds.attributes['DW_AT_upper_bound'].value + 1}]"
    if kind.tag in ("DW_TAG_base_type", "DW_TAG_typedef"):
        return _name(kind)
    raise NotImplementedError(f"a public type that is a {kind.tag}")


def _type(entry: DIE | None) -> DIE | None:
    assert entry is not None
    return entry.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in entry.attributes else None


def _name(entry: DIE) -> str:
    return entry.attributes["DW_AT_name"].value.decode() if "DW_AT_name" in entry.attributes else ""


def described() -> str:
    """Return the public header as it is now."""
    ours = sorted(name for name in exports(paths.library()) if name.startswith("hf_"))
    declared = (ROOT / "include" / "heapfit" / "heapfit.h").read_text()
    # What gdb's script asks the library for is in no public header.
    lines = header_lines("heapfit/heapfit.h", [name for name in ours if f"{name}(" in declared])
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    print(described(), end="")
