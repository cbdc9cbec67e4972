"""Hand out a study's blocks to machines, whole where that is possible.

A block holds every cell of the design once. On one machine, all of its trials saw the same
processor, memory and kernel, so they can be set against each other; that is what makes a machine a
block of the analysis. Hence a block goes to a machine as a whole. When a machine is lost in the
middle, what it finished stays, and the rest of the block waits for it as long as there are blocks
that nobody has begun: it may be back soon, and the block would still be complete. Only then the
rest goes elsewhere, where it counts as a block of its own.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from heapfit.records import PlannedTrial, Trial


@dataclass
class Block:
    """What a block still lacks, in its random order, and the machine that began it, if any."""

    missing: list[PlannedTrial]
    begun_by: str | None = None


class Blocks:
    """The blocks of a plan that are not done. Warm-ups are none: each machine has its own."""

    def __init__(self, plan: Iterable[PlannedTrial], done: Iterable[Trial]) -> None:
        by_index = {trial.planned.index: trial for trial in done}
        begun_by = {trial.planned.block: trial.machine for trial in by_index.values()}
        missing: dict[int, list[PlannedTrial]] = defaultdict(list)
        for planned in plan:
            if not planned.warmup and planned.index not in by_index:
                missing[planned.block].append(planned)
        self._waiting = [Block(those, begun_by.get(n)) for n, those in sorted(missing.items())]
        self._given: list[Block] = []

    @property
    def done(self) -> bool:
        """Whether every trial has been run."""
        return not self._waiting and not self._given

    def missing(self) -> list[PlannedTrial]:
        """Return all trials that have not been run, those of blocks in hand included."""
        return [planned for block in [*self._given, *self._waiting] for planned in block.missing]

    def take(self, machine: str, present: Collection[str]) -> Block | None:
        """Return the next block for `machine`, or None while there is nothing for it to do.

        Its own begun blocks come first, then those that nobody has begun, then what machines left
        behind that are not among those `present`.
        """
        for wanted in (
            lambda block: block.begun_by == machine,
            lambda block: block.begun_by is None,
            lambda block: block.begun_by not in present,
        ):
            found = next(filter(wanted, self._waiting), None)
            if found is not None:
                self._waiting.remove(found)
                self._given.append(found)
                found.begun_by = machine
                return found
        return None

    def give_back(self, block: Block) -> None:
        """Take back a block; what it still lacks will be handed out again."""
        self._given.remove(block)
        if block.missing:
            self._waiting.insert(0, block)
