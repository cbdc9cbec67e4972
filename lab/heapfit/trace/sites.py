"""The call sites of a trace, with the names of what called, as a table.

A trace has addresses, and which file was mapped where. The names are looked up in those files as
they are now, on this machine: what is not there, or has no symbols, stays an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from heapfit.pools.explanation import Module
from heapfit.pools.symbols import Frame, Symbols, covering
from heapfit.trace.native import SITE_TOTALS, Reader
from heapfit.trace.schema import SITES


@dataclass(frozen=True)
class Mapping:
    """A part of a file that was mapped as code."""

    start: int
    end: int
    offset: int
    path: str


def parse_mappings(lines: Iterable[str]) -> list[Mapping]:
    """Return the mappings of a trace's lines, in order of address; what is none is left out.

    >>> parse_mappings(["1000 2000 0 /bin/x y", "nonsense"])
    [Mapping(start=4096, end=8192, offset=0, path='/bin/x y')]
    """
    found = {}
    for line in lines:
        words = line.split(" ", 3)
        try:
            start, end, offset = (int(word, 16) for word in words[:3])
        except ValueError:
            continue
        if len(words) > 3 and start < end:
            found[start] = Mapping(start, end, offset, words[3])  # the last there: it still was
    return [found[start] for start in sorted(found)]


class Places:
    """Finds what is at the addresses of a process that has ended."""

    def __init__(self, mappings: Sequence[Mapping], *, symbols: bool = True) -> None:
        """Take the mappings in order of address; without `symbols` no file is opened."""
        self._mappings = [(mapping.start, mapping.end, mapping) for mapping in mappings]
        self._symbols = Symbols(_modules(mappings)) if symbols else None
        self.frame = cache(self._frame)

    def mapping(self, address: int) -> Mapping | None:
        """Return where the call that returns to `address` was mapped from."""
        found = covering(self._mappings, address - 1)
        return found[2] if found else None

    def _frame(self, address: int) -> Frame:
        mapping = self.mapping(address)
        if mapping is None or self._symbols is None:
            return Frame(address, mapping.path if mapping else None)
        found = self._symbols.frame(address)
        return Frame(address, mapping.path, found.function, found.file, found.line)


def sites_table(reader: Reader, *, symbols: bool = True) -> pa.Table:
    """Return the table of a trace's call sites; `reader` has read it to its end."""
    sites = reader.sites()
    places = Places(parse_mappings(reader.modules), symbols=symbols)
    # Many sites have one address: each is looked up once, and is one object here.
    addresses, which = np.unique(sites["address"], return_inverse=True)
    found = [int(address) for address in addresses]
    frames = [places.frame(address) for address in found]
    of_addresses: dict[str, list[Any]] = {
        "module": [frame.module for frame in frames],
        "offset": [_offset(places.mapping(address), address) for address in found],
        "function": [frame.function for frame in frames],
        "file": [frame.file for frame in frames],
        "line": [frame.line for frame in frames],
    }
    columns: dict[str, Any] = {
        "site": np.arange(1, len(sites) + 1, dtype=np.uint32),
        "caller": sites["caller"],
        "address": sites["address"],
        **_counted(reader.site_totals(), len(sites)),
    }
    arrays = [
        pa.array(of_addresses[field.name], field.type).take(pa.array(which))
        if field.name in of_addresses
        else pa.array(columns[field.name], field.type)
        for field in SITES
    ]
    return pa.Table.from_arrays(arrays, schema=SITES)


def _counted(totals: NDArray[Any], sites: int) -> dict[str, NDArray[Any]]:
    """Return the columns of what was counted; a site that allocated nothing may have no row."""
    rows = np.zeros(sites + 1, totals.dtype)
    known = min(len(totals), sites + 1)
    rows[:known] = totals[:known]
    return {name: rows[name][1:] for name in SITE_TOTALS.names or ()}


def _offset(mapping: Mapping | None, address: int) -> int | None:
    return None if mapping is None else address - mapping.start + mapping.offset


def _modules(mappings: Sequence[Mapping]) -> list[Module]:
    """Return the files that can be read, each with the address that its own count from."""
    ends: dict[tuple[str, int], int] = {}
    for mapping in mappings:
        # A trace may name anything: opening what is no file could wait for ever.
        if Path(mapping.path).is_file():
            key = mapping.path, mapping.start - _address_of(mapping.path, mapping.offset)
            ends[key] = max(mapping.end, ends.get(key, 0))
    return [Module(path=path, base=base, end=end) for (path, base), end in ends.items()]


def _address_of(path: str, offset: int) -> int:
    """Return the address that a file itself gives to what is at `offset` in it."""
    for start, size, address in _segments(path):
        # A mapping begins at the page that a segment begins in.
        if start - start % _PAGE_MAX <= offset < start + size:
            return offset + address - start
    return offset


_PAGE_MAX = 1 << 16  # the largest page that programs are linked for


@cache
def _segments(path: str) -> list[tuple[int, int, int]]:
    """Return the offset, size and address of what is loaded of a file."""
    try:
        with Path(path).open("rb") as file:
            found = [
                (segment["p_offset"], segment["p_filesz"], segment["p_vaddr"])
                for segment in ELFFile(file).iter_segments("PT_LOAD")
                if segment["p_flags"] & 1  # code
            ]
    except (ELFError, OSError, ValueError, KeyError):
        return []
    return found
