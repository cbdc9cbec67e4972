"""The call sites of a trace, with the names of what called, as a table.

Where the compiler has put functions into one another, each has a row: the site's own row is the
innermost, and rows behind the recorded sites' lead outwards to the function that was called.

A trace has addresses, and which file was mapped where. The names are looked up in those files as
they are now, on this machine: what is not there, or has no symbols, stays an address. The lines of
interpreted programs stand in the trace itself, as mappings of addresses that no code has.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from numpy.typing import NDArray

from heapfit.pools.explanation import Module
from heapfit.symbols import Frame, Symbols, build_id, covering
from heapfit.trace.native import SITE_TOTALS, Reader
from heapfit.trace.schema import SITES

# From here on, of each process, addresses stand for lines of interpreted programs (format.h).
_PLACES = 1 << 56
_SPACE = 1 << 57  # what the addresses of merged processes are apart
_BUILD_ID = "build-id"  # what such a line begins with


@dataclass(frozen=True)
class Mapping:
    """A part of a file that was mapped as code, or a line of an interpreted program."""

    start: int
    end: int
    offset: int
    path: str
    build_id: str = ""  # of the file that was mapped; empty: it has none, or nobody noted it

    def lines(self, base: int = 0) -> list[str]:
        """Return the lines that tell of it in a trace, `base` higher.

        >>> Mapping(4096, 8192, 0, "/bin/x", "c0ffee").lines()
        ['1000 2000 0 /bin/x', 'build-id 1000 c0ffee']
        """
        start = self.start + base
        line = f"{start:x} {self.end + base:x} {self.offset:x} {self.path}"
        return [line, f"{_BUILD_ID} {start:x} {self.build_id}"] if self.build_id else [line]

    def place(self, address: int) -> Frame | None:
        """Return the frame of an interpreted program that this is; None of a mapping of code.

        >>> Mapping(_PLACES, _PLACES + 1, 41, "/srv/views.py\\tShop.index").place(_PLACES + 1).where
        'Shop.index (views.py:41)'
        """
        if self.start % _SPACE < _PLACES:
            return None
        file, _, function = self.path.rpartition("\t")
        return Frame(address, file, function, file, self.offset)


def parse_mappings(lines: Iterable[str]) -> list[Mapping]:
    """Return the mappings of a trace's lines, in order of address; what is none is left out.

    >>> parse_mappings(["1000 2000 0 /bin/x y", "build-id 1000 c0ffee", "nonsense"])
    [Mapping(start=4096, end=8192, offset=0, path='/bin/x y', build_id='c0ffee')]
    """
    found: dict[int, Mapping] = {}
    for line in lines:
        words = line.split(" ", 3)
        try:
            if words[0] == _BUILD_ID:
                start = int(words[1], 16)
                found[start] = replace(found[start], build_id=words[2])
                continue
            start, end, offset = (int(word, 16) for word in words[:3])
        except (ValueError, LookupError):
            continue
        if len(words) > 3 and start < end:
            found[start] = Mapping(start, end, offset, words[3])  # the last there: it still was
    return [found[start] for start in sorted(found)]


def _labels(mappings: Iterable[Mapping]) -> dict[tuple[str, str], str]:
    """Return what each build of a file is called: by its path, and where there are several by its
    build ID, too, or what one of them allocated would be added to what another did."""
    builds: dict[str, set[str]] = {}
    for each in mappings:
        builds.setdefault(each.path, set()).add(each.build_id)
    return {
        (path, build): f"{path} (build {build[:8]})" if build and len(found) > 1 else path
        for path, found in builds.items()
        for build in found
    }


class Places:
    """Finds what is at the addresses of a process that has ended."""

    def __init__(self, mappings: Sequence[Mapping], *, symbols: bool = True) -> None:
        """Take the mappings in order of address; without `symbols` no file is opened."""
        self._mappings = [(mapping.start, mapping.end, mapping) for mapping in mappings]
        self._labels = _labels(mappings)
        self._symbols = Symbols(_modules(mappings)) if symbols else None
        self.frames = cache(self._frames)

    def mapping(self, address: int) -> Mapping | None:
        """Return where the call that returns to `address` was mapped from."""
        found = covering(self._mappings, address - 1)
        return found[2] if found else None

    def frame(self, address: int) -> Frame:
        """Return the function that called there, and the line in it."""
        return self.frames(address)[-1]

    def _frames(self, address: int) -> list[Frame]:
        """Return what called there, the innermost of inlined functions first."""
        mapping = self.mapping(address)
        if mapping is None:
            return [Frame(address)]
        place = mapping.place(address)
        if place is not None:
            return [place]
        offset = address - mapping.start + mapping.offset
        label = self._labels[mapping.path, mapping.build_id]
        if self._symbols is None:
            return [Frame(address, label, offset=offset)]
        found = self._symbols.inlined(address)
        named = mapping.path if found[-1].function is not None else label
        return [replace(each, module=named, offset=offset) for each in found]


def sites_table(reader: Reader, *, symbols: bool = True) -> pa.Table:
    """Return the table of a trace's call sites; `reader` has read it to its end."""
    sites = reader.sites()
    places = Places(parse_mappings(reader.modules), symbols=symbols)
    # Many sites have one address: each is looked up once, and is one object here.
    addresses, which = np.unique(sites["address"], return_inverse=True)
    found = [places.frames(int(address)) for address in addresses]
    row = _Rows(which, np.array([len(each) for each in found], dtype=np.int64))
    frames = [frame for each in found for frame in each]
    of_frames: dict[str, list[Any]] = {
        name: [getattr(frame, name) for frame in frames]
        for name in ("module", "offset", "function", "file", "line")
    }
    columns: dict[str, Any] = {
        "site": np.arange(1, len(row.frame) + 1, dtype=np.uint32),
        "caller": row.callers(sites["caller"]),
        "address": sites["address"][row.site],
        **_counted(reader.site_totals(), len(sites), len(row.frame)),
    }
    arrays = [
        pa.array(of_frames[field.name], field.type).take(pa.array(row.frame))
        if field.name in of_frames
        else pa.array(columns[field.name], field.type)
        for field in SITES
    ]
    return pa.Table.from_arrays(arrays, schema=SITES)


class _Rows:
    """The rows of the table: the recorded sites, then those of the functions around inlined ones.

    `site` is the recorded site that a row belongs to, and `frame` its place among all frames.
    """

    def __init__(self, which: NDArray[Any], depths: NDArray[Any]) -> None:
        """Take of each site which address it has, and of each address how many frames."""
        first = np.cumsum(depths) - depths
        self._further = depths[which] - 1
        around = np.repeat(np.arange(len(which)), self._further)
        self._starts = np.cumsum(self._further) - self._further
        depth = np.arange(len(around)) - np.repeat(self._starts, self._further) + 1
        self.site = np.concatenate([np.arange(len(which)), around])
        self.frame = np.concatenate([first[which], first[which[around]] + depth])

    def callers(self, of_sites: NDArray[Any]) -> NDArray[Any]:
        """Return the caller of each row, 0 for none; `of_sites` are those that were recorded."""
        own, sites = np.array(of_sites), len(of_sites)
        has_more = self._further > 0
        own[has_more] = sites + 1 + self._starts[has_more]
        further = np.arange(sites + 2, sites + 2 + len(self.site) - sites)
        last = (self._starts + self._further - 1)[has_more]
        further[last] = of_sites[has_more]
        return np.concatenate([own, further]).astype(np.uint32)


def _counted(totals: NDArray[Any], sites: int, rows: int) -> dict[str, NDArray[Any]]:
    """Return the columns of what was counted; a site that allocated nothing may have no row."""
    counts = np.zeros(rows + 1, totals.dtype)
    known = min(len(totals), sites + 1)
    counts[:known] = totals[:known]
    return {name: counts[name][1:] for name in SITE_TOTALS.names or ()}


def changed_since(mappings: Iterable[Mapping], moment_ns: int) -> list[str]:
    """Return the files of code that are others than at a moment in Unix time: what their addresses
    were called then, they may not tell any more. By build IDs, or where one is missing by when
    they were written."""
    labels = _labels(each for each in mappings if each.place(0) is None)
    return sorted(
        {
            label
            for (path, noted), label in labels.items()
            if _is_another(Path(path), noted, moment_ns)
        }
    )


def _is_another(path: Path, noted: str, moment_ns: int) -> bool:
    try:
        if not path.is_file():
            return False
        rebuilt = _is_rebuilt(path, noted)
        return path.stat().st_mtime_ns > moment_ns if rebuilt is None else rebuilt
    except OSError:  # not ours to see
        return False


def _is_rebuilt(path: Path, noted: str) -> bool | None:
    """Tell whether a file has another build ID than was noted; None: it is not known."""
    now = build_id(path) if noted else ""
    return now != noted if now else None


def _modules(mappings: Sequence[Mapping]) -> list[Module]:
    """Return the files that can be read, each with the address that its own count from."""
    ends: dict[tuple[str, int], int] = {}
    for mapping in mappings:
        # A trace may name anything: opening what is no file could wait for ever. Another build's
        # names would be wrong.
        path = Path(mapping.path)
        if mapping.place(0) is not None or not path.is_file():
            continue
        if not _is_rebuilt(path, mapping.build_id):
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
