"""The chains of calls of a converted trace, each with four amounts of what it has allocated.

DuckDB counts, so memory grows with the number of call sites, which the reader of traces bounds, and
not with the length of the trace.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from heapfit.profile.flames.formats import Unit, What
from heapfit.profile.model import YOUNG_BYTES
from heapfit.profile.tally import whole
from heapfit.profile.trace import Trace

ELSEWHERE = "elsewhere"  # of allocations without a call site


class Amount(NamedTuple):
    """So many blocks and bytes; of a sample, as they are estimated."""

    blocks: int
    bytes: int


# In the order of `What`.
Amounts = tuple[Amount, ...]


class Call(NamedTuple):
    """A function that makes a call, and from where in its source, as far as both are known."""

    function: str | None
    file: str | None
    line: int | None


UNKNOWN = Call(None, None, None)


@dataclass(frozen=True, eq=False)  # there is one object of each, and looking it up must be quick
class Place:
    """A return address: its file, where in it, and whose code it is."""

    address: int
    module: str | None
    offset: int | None
    calls: tuple[Call, ...] = (UNKNOWN,)  # innermost first; several if inlined

    @property
    def name(self) -> str:
        """What to call it where no function is known.

        >>> Place(0x7001, "/usr/bin/x", 0x10).name
        'x+0x10'
        """
        if self.module is None:
            return f"{self.address:#x}"
        return f"{Path(self.module).name}+{self.offset or 0:#x}"

    @property
    def frames(self) -> list[tuple[str, Call]]:
        """The functions by name, innermost first."""
        return [(call.function or self.name, call) for call in self.calls]


@dataclass
class Stacks:
    """All call sites, by number, and what the blocks of each amount to."""

    places: dict[int, Place]
    callers: dict[int, int]
    amounts: dict[int, Amounts] = field(default_factory=dict)

    def chain(self, site: int) -> Iterator[Place]:
        """Yield the return addresses from the innermost call on; none of an unknown site."""
        while site in self.places:
            yield self.places[site]
            caller = self.callers[site]
            # The reader numbers a caller first. Tables from elsewhere must not lead in circles.
            site = caller if caller < site else 0

    def frames(self, site: int) -> list[tuple[str, Call]]:
        """Return the functions by name, outermost first, or what stands for an unknown site."""
        found = [frame for place in self.chain(site) for frame in place.frames]
        return found[::-1] or [(ELSEWHERE, UNKNOWN)]


def value(amounts: Amounts, what: What, unit: Unit) -> int:
    """Return one number of a stack's."""
    amount = amounts[list(What).index(what)]
    return amount.bytes if unit is Unit.BYTES else amount.blocks


def count(trace: Trace, most: int | None = None) -> Stacks:
    """Return the stacks of a trace whose peak is known.

    With `most` only so many sites stay apart, those that allocate most bytes; what the others
    have allocated is that of an unknown one.
    """
    places, callers = _places(trace)
    found = Stacks(places, callers)
    columns = ", ".join(
        f"{trace.objects(where)}, {trace.total('size', where)}" for where in _conditions(trace)
    )
    kept = "SELECT site FROM sites_table ORDER BY bytes DESC, site"
    told = f"CASE WHEN site IN ({kept} LIMIT {most}) THEN site ELSE 0 END" if most else "site"
    for site, *numbers in trace.query(
        f"SELECT {told} AS told, {columns} FROM object GROUP BY told"
    ):
        pairs = zip(numbers[::2], numbers[1::2], strict=True)
        found.amounts[site] = tuple(Amount(whole(int(n)), whole(int(b))) for n, b in pairs)
    return found


def _conditions(trace: Trace) -> tuple[str, ...]:
    """The conditions of `What`, in its order; none for all."""
    return trace.at_peak(), "died_ns IS NULL", "", _young(trace)


def _young(trace: Trace) -> str:
    """Return the condition that a block died before the program asked for YOUNG_BYTES more."""
    return f"{trace.lived_bytes('died_bytes')} < {YOUNG_BYTES}"


def _places(trace: Trace) -> tuple[dict[int, Place], dict[int, int]]:
    """Return the recorded sites' places and callers.

    A caller has a lower number than what it calls. A higher one is of the function that the row's
    is inlined in, which belongs to the same place.
    """
    rows = {
        site: rest
        for site, *rest in trace.query(
            'SELECT site, caller, address, module, "offset", function, file, line FROM sites_table'
        )
    }
    places: dict[tuple[Any, ...], Place] = {}  # many sites have one
    by_site, callers = {}, {}
    for site, (caller, address, module, offset, *call) in rows.items():
        calls = [Call(*call)]
        at = site
        while caller > at and caller in rows:
            at = caller
            caller, _, _, _, *call = rows[at]
            calls.append(Call(*call))
        key = (address, module, offset, *calls)
        if key not in places:
            places[key] = Place(address, module, offset, tuple(calls))
        by_site[site], callers[site] = places[key], caller
    return by_site, callers
