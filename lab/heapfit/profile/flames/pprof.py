"""Stacks as pprof reads them: a compressed profile.proto, with the types of Go's heap profiles.

https://github.com/google/pprof/blob/main/proto/profile.proto explains each message. Names of
functions stand in it, so that it can be read where the program is not.
"""

import gzip
from collections.abc import Iterator, Sequence

from heapfit.profile.flames.formats import Unit, What
from heapfit.profile.flames.protobuf import message, number, numbers
from heapfit.profile.flames.stacks import Amounts, Call, Place, Stacks
from heapfit.profile.trace import Summary
from heapfit.symbols import covering
from heapfit.trace.sites import Mapping, parse_mappings

_COMPRESSION = 6
_ALLOCATED = {Unit.BLOCKS: "alloc_objects", Unit.BYTES: "alloc_space"}
_IN_USE = {Unit.BLOCKS: "inuse_objects", Unit.BYTES: "inuse_space"}
_UNITS = {Unit.BLOCKS: "count", Unit.BYTES: "bytes"}


def write(stacks: Stacks, summary: Summary, what: What, unit: Unit) -> bytes:
    """Return the file: `what` decides which blocks are in use, and what is shown at first."""
    return gzip.compress(b"".join(_Profile(stacks, summary, what, unit).fields()), _COMPRESSION)


def write_live(stacks: Stacks, summary: Summary) -> bytes:
    """Return a file of stacks of which it is known what lives, and nothing else."""
    profile = _Profile(stacks, summary, What.LIVE_AT_END, Unit.BYTES, live_alone=True)
    return gzip.compress(b"".join(profile.fields()), _COMPRESSION)


class _Profile:
    """The numbers that texts, functions, locations and mappings have in the file."""

    def __init__(
        self, stacks: Stacks, summary: Summary, what: What, unit: Unit, *, live_alone: bool = False
    ) -> None:
        self._stacks, self._summary, self._what, self._unit = stacks, summary, what, unit
        self._from = len(_ALLOCATED) if live_alone else 0  # the first type of sample
        self._texts = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[Place, int] = {}
        mappings = parse_mappings(summary.modules)
        # Its first mapping is what pprof calls the main binary.
        self._mappings = sorted(mappings, key=lambda each: each.path != summary.info.program)
        self._spans = sorted(
            (mapping.start, mapping.end, index)
            for index, mapping in enumerate(self._mappings, start=1)
        )

    def fields(self) -> Iterator[bytes]:
        """Yield the fields; what all others refer to comes when it is known, at the end."""
        types = _sample_types(self._what)[self._from :]
        for name, unit in types:
            yield message(1, self._value_type(name, unit))
        for site, amounts in self._stacks.amounts.items():
            values = _values(amounts, self._what)[self._from :]
            if any(values):
                ids = [self._location(place) for place in self._stacks.chain(site)]
                yield message(2, numbers(1, ids) + numbers(2, values))
        with_names = {place.module for place in self._locations if place.calls[0].function}
        for index, mapping in enumerate(self._mappings, start=1):
            yield message(3, self._mapping(index, mapping, mapping.path in with_names))
        for place, index in self._locations.items():
            yield message(4, self._location_fields(index, place))
        for (name, file), index in self._functions.items():
            numbered = (index, self._text(name), self._text(name), self._text(file))
            yield message(5, b"".join(number(at, each) for at, each in enumerate(numbered, 1)))
        yield from self._circumstances(_default(self._what, self._unit))
        for each in self._texts:
            yield message(6, each.encode(errors="replace"))

    def _circumstances(self, shown: str) -> Iterator[bytes]:
        info = self._summary.info
        yield number(9, info.started_unix_ns)
        yield number(10, self._summary.duration_ns)
        yield message(11, self._value_type("space", "bytes"))
        yield number(12, info.sample or 1)
        yield numbers(13, [self._text(f"heapfit: {self._what}")])
        yield number(14, self._text(shown))

    def _value_type(self, name: str, unit: Unit | str) -> bytes:
        return number(1, self._text(name)) + number(2, self._text(str(unit)))

    def _text(self, content: str) -> int:
        return self._texts.setdefault(content, len(self._texts))

    def _function(self, call: Call) -> int:
        key = call.function or "", call.file or ""
        return self._functions.setdefault(key, len(self._functions) + 1)

    def _location(self, place: Place) -> int:
        return self._locations.setdefault(place, len(self._locations) + 1)

    def _location_fields(self, index: int, place: Place) -> bytes:
        # The call itself is before the address to which it returns.
        at = max(place.address - 1, 0)
        mapped = covering(self._spans, at)
        lines = (
            message(4, number(1, self._function(call)) + number(2, call.line or 0))
            for call in place.calls
            if call.function
        )
        mapping = number(2, mapped[2] if mapped else 0)
        return b"".join((number(1, index), mapping, number(3, at), *lines))

    def _mapping(self, index: int, mapping: Mapping, named: bool) -> bytes:
        # What has no names here pprof may look up itself.
        flags = (number(flag, int(named)) for flag in (7, 8, 9, 10))
        fields = (
            number(1, index),
            number(2, mapping.start),
            number(3, mapping.end),
            number(4, mapping.offset),
            number(5, self._text(mapping.path)),
            number(6, self._text(mapping.build_id)),
        )
        return b"".join((*fields, *flags))


def _sample_types(what: What) -> list[tuple[str, str]]:
    kinds = [_ALLOCATED] if what is What.SHORT_LIVED else [_ALLOCATED, _IN_USE]
    return [(kind[unit], _UNITS[unit]) for kind in kinds for unit in (Unit.BLOCKS, Unit.BYTES)]


def _values(amounts: Amounts, what: What) -> Sequence[int]:
    peak, end, allocated, young = amounts
    if what is What.SHORT_LIVED:
        return young
    return (*allocated, *(end if what is What.LIVE_AT_END else peak))


def _default(what: What, unit: Unit) -> str:
    """What is shown when nobody asks for another."""
    kind = _ALLOCATED if what in (What.ALLOCATED, What.SHORT_LIVED) else _IN_USE
    return kind[unit]
