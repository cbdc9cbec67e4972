"""What is built on a newer system runs under glibc 2.28 too: no library asks for what came later.

What ours does there, without what came later, is looked at by api_programs.threads_library_comes_*
and api_programs.stacks_without_the_linkers_help of the native tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection
from heapfit import paths

OLDEST = (2, 28)
LIBRARIES = ["default", "pools", "hardened", "record"]


def wanted(library: Path) -> list[tuple[str, str]]:
    """Return the names that a library asks others for, each with the version that it asks for."""
    with library.open("rb") as file:
        elf = ELFFile(file)
        symbols = elf.get_section_by_name(".dynsym")
        versions = elf.get_section_by_name(".gnu.version")
        needs = elf.get_section_by_name(".gnu.version_r")
        assert isinstance(symbols, SymbolTableSection)
        assert isinstance(versions, GNUVerSymSection)
        assert isinstance(needs, GNUVerNeedSection)
        names = {}
        for _, each in needs.iter_versions():
            for version in each:
                names[version["vna_other"]] = version.name
        found = []
        for number, symbol in enumerate(symbols.iter_symbols()):
            index = versions.get_symbol(number)["ndx"]
            if symbol["st_shndx"] == "SHN_UNDEF" and index in names:
                found.append((symbol.name, names[index]))
        return found


def too_new(library: Path) -> list[str]:
    """Return what a library asks for that the oldest C library does not have, in words."""
    found = []
    for name, version in wanted(library):
        glibc = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", version)
        if glibc is None or (int(glibc[1]), int(glibc[2])) > OLDEST:
            found.append(f"{name} of {version}")
    return found


@pytest.mark.parametrize("variant", LIBRARIES)
def test_no_library_asks_for_what_an_older_c_library_lacks(variant: str) -> None:
    library = paths.library(variant)
    assert library is not None
    assert {name for name, _ in wanted(library)} >= {"mmap", "pthread_create"}
    assert too_new(library) == []
