"""Count many traces on the machines of a Dask cluster, one at a time on each.

The workers are those of studies (study/cluster.py), and see the files under the same paths. A tally
is a few hundred kilobytes, so only tallies travel; they are added up here, in the user's order.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

from heapfit.errors import HeapfitError
from heapfit.profile.files import count_file
from heapfit.profile.tally import Tally, merged
from heapfit.study.cluster import (
    MAX_LOSSES,
    Link,
    Machine,
    MachineLost,
    check_version,
    connected,
    require_dask,
)

# Called with how many files are done, of how many, and which was the last.
OnFile = Callable[[int, int, str], None]


def count_on(address: str, paths: Sequence[Path], on_file: OnFile | None = None) -> Tally:
    """Return the sum of the tallies of `paths`, each counted by a worker of the scheduler there.

    Raises HeapfitError when there is no worker, or one that cannot read a file.
    """
    require_dask()
    return asyncio.run(_count_on(address, [path.absolute() for path in paths], on_file))


async def _count_on(address: str, paths: Sequence[Path], on_file: OnFile | None) -> Tally:
    async with connected(address) as link:
        work = _Work(link, paths, on_file)
        while work.waiting:
            machines = await link.some_machines(address)
            await _together([work.lane(machine) for machine in machines])
        return merged(work.done[place] for place in range(len(paths)))


async def _together(lanes: Sequence[Coroutine[None, None, None]]) -> None:
    """Run all lanes to their ends; when one fails, end the others and raise what it raised."""
    tasks = [asyncio.create_task(lane) for lane in lanes]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Work:
    """The files that wait, and the tallies of those that are done, by their place."""

    def __init__(self, link: Link, paths: Sequence[Path], on_file: OnFile | None) -> None:
        self._link = link
        self._paths = paths
        self._on_file = on_file
        self.waiting = deque(range(len(paths)))
        self.done: dict[int, Tally] = {}
        self._losses: Counter[int] = Counter()

    async def lane(self, machine: Machine) -> None:
        """Have `machine` count one file after the other, until none waits or it is lost."""
        try:
            await check_version(self._link, machine)
            while self.waiting:
                await self._count(machine, self.waiting.popleft())
        except MachineLost:
            return

    async def _count(self, machine: Machine, place: int) -> None:
        path = self._paths[place]
        try:
            self.done[place] = await self._link.call(machine, count_file, path)
        except MachineLost:
            self._losses[place] += 1
            if self._losses[place] >= MAX_LOSSES:
                raise HeapfitError(
                    f"{MAX_LOSSES} workers died over {path}; do they have enough memory for it?"
                ) from None
            self.waiting.append(place)
            raise
        except HeapfitError as error:
            raise type(error)(f"{machine.name}: {error}") from error
        if self._on_file:
            self._on_file(len(self.done), len(self._paths), path.name)
