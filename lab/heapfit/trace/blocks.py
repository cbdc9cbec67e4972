"""Which blocks live, and whose is the block that an event frees: followed by whole batches.

What handles traces needs this, and has events in columns: of all that happens at an address, put
into the order of time, the last says whether a block lives there, and what is before a free is the
block that it frees. So a batch costs one sort, and nothing is done event by event.
"""

import numpy as np
from numpy.typing import NDArray

from heapfit.trace.native import EVENT_COLUMNS, FAILED, FREES, MALLOC, REALLOC, Columns

NOBODY = -1


def none() -> Columns:
    """Return columns without a row."""
    return {name: np.empty(0, kind) for name, kind in EVENT_COLUMNS.items()}


def rows(columns: Columns, which: NDArray[np.bool_] | NDArray[np.intp] | slice) -> Columns:
    """Return some rows of columns; of a mask or of numbers, a copy."""
    return {name: column[which] for name, column in columns.items()}


def joined(parts: list[Columns]) -> Columns:
    """Return the rows of all parts, one after the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in EVENT_COLUMNS}


def in_order(columns: Columns) -> Columns:
    """Return the rows in the order of their time; at the same time, as they were."""
    return rows(columns, np.argsort(columns["ns"], kind="stable"))


def frees(columns: Columns) -> NDArray[np.bool_]:
    """Return which events only free."""
    return np.isin(columns["kind"], FREES)


def allocates(columns: Columns) -> NDArray[np.bool_]:
    """Return which events have given the program a block, reallocs among them."""
    return np.asarray(~frees(columns) & ((columns["kind"] & FAILED) == 0))


def reallocs(columns: Columns) -> NDArray[np.bool_]:
    """Return which events have replaced a block by another, or by itself."""
    return np.asarray(columns["kind"] == REALLOC)


class LiveBlocks:
    """The blocks that live after all batches so far, as the allocations that made them."""

    def __init__(self) -> None:
        """Begin before the first event: nothing lives."""
        self._births = none()  # each with the time from which its block exists

    def follow(self, events: Columns) -> NDArray[np.int64]:
        """Take the next events, in order of time; return whose block each frees.

        That is the thread that allocated it; NOBODY where nothing is freed, or what was never
        seen. A block is of the thread that reallocated it last.
        """
        born, freed, old = (np.flatnonzero(f(events)) for f in (allocates, frees, reallocs))
        births = joined([self._births, as_allocations(rows(events, born))])
        dies = np.concatenate([freed, old])
        address = np.concatenate([births["address"], events["address"][freed], events["old"][old]])
        ns = np.concatenate([births["ns"], events["ns"][dies]])
        # At the same time the order of the events decides; a realloc frees before it allocates.
        before = np.full(len(self._births["ns"]), -1)
        order = np.lexsort((np.concatenate([before, 2 * born + 1, 2 * dies]), ns, address))
        is_birth = order < len(births["ns"])
        same = address[order][1:] == address[order][:-1]
        owners = np.full(len(events["ns"]), NOBODY, np.int64)
        pairs = np.flatnonzero(same & is_birth[:-1] & ~is_birth[1:])
        owners[dies[order[pairs + 1] - len(births["ns"])]] = births["thread"][order[pairs]]
        last = np.append(~same, True)[: len(order)]
        self._births = rows(births, np.sort(order[is_birth & last]))
        return owners

    def allocations(self) -> Columns:
        """Return the allocations of the blocks that live, in order of birth."""
        return in_order(self._births)


def as_allocations(events: Columns) -> Columns:
    """Return allocations as they count: from their return on, and a realloc as a malloc."""
    made = dict(events)
    made["ns"] = events["ns"] + events["lasted_ns"]
    made["kind"] = np.where(reallocs(events), MALLOC, events["kind"]).astype(np.uint8)
    made["old"] = np.zeros_like(events["old"])
    made["lasted_ns"] = np.zeros_like(events["lasted_ns"])
    return made
