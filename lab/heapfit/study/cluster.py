"""Run a study on the machines of a Dask cluster, one trial at a time on each.

A machine takes part by a worker that offers the resource `heapfit`; Dask then runs no more than one
trial there at a time. Each machine warms up, then runs whole blocks (`blocks.py` says why); its
output is compared with its own trials of the baseline. This process plans and keeps the journal, so
everything that holds for a study on one machine holds here: a trial is on disk as soon as it has
ended, and the same command continues where an interrupted one stopped.

The machines must have the same processor, allocators and version of heapfit. The machine is a block
of the analysis, which removes that one is faster than another by some factor. It cannot remove that
allocators rank differently on different processors: the answer would hold for none of them.
`statistics.machines` tests whether they rank differently on these machines all the same.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import heapfit
from heapfit.errors import HeapfitError, StudyStopped
from heapfit.records import Identity, PlannedTrial, Study, Trial, TrialStatus
from heapfit.study import machine_side
from heapfit.study.blocks import Block, Blocks
from heapfit.study.execute import Progress, reference, stop_if_pointless
from heapfit.study.journal import Journal
from heapfit.study.machine_side import Inspection
from heapfit.study.stopping import Stopping

RESOURCE = "heapfit"

# How often to look whether a machine that has not answered yet is still there.
LOOK_S = 1.0
CONNECT_TIMEOUT_S = 10.0
# How long to wait for a machine when none is left; a worker that restarts needs a few seconds.
PATIENCE_S = 60.0
# A trial in whose course this many workers died has probably killed them (out of memory).
MAX_LOSSES = 3

Result = TypeVar("Result")


class MachineLost(Exception):
    """The worker has left the cluster, and with it what it was running."""


@dataclass(frozen=True)
class Machine:
    """A worker: the name of its machine, which stays when it restarts, and its present address."""

    name: str
    address: str


class Cluster:
    """The Dask cluster of the scheduler at `address`, to run studies on."""

    def __init__(self, address: str, say: Callable[[str], None], *, install: bool = False) -> None:
        """`say` reports what happens to machines; with `install`, they get what they lack.

        Raises HeapfitError where Dask is not installed.
        """
        require_dask()
        self._address = address
        self._say = say
        self._install = install

    def adopt(self, studies: Sequence[Study]) -> list[Study]:
        """Check every machine, before anything runs; return `studies` as they run on this cluster.

        Raises HeapfitError where there is no machine, or one that cannot run them.
        """
        inspections = asyncio.run(self._inspect(studies))
        name, first = next(iter(inspections.items()))
        note = f"run on {', '.join(inspections)}; {name} is described here"
        described = first.machine.model_copy(update={"notes": [note, *first.machine.notes]})
        return [study.model_copy(update={"machine": described}) for study in studies]

    def execute(
        self,
        study: Study,
        folder: Path,
        on_progress: Progress | None = None,
        data: Path | None = None,
        *,
        mix: bool = False,
    ) -> None:
        """Run the missing trials of an adopted `study`, journaled in `folder`; see `execute`.

        Each machine prepares data of its own, so `data` is not used.
        """
        with Journal(folder, study) as journal:
            asyncio.run(self._execute(journal, on_progress or Progress(), mix))

    async def _execute(self, journal: Journal, progress: Progress, mix: bool) -> None:
        async with connected(self._address) as link:
            await _Execution(link, journal, progress, self._say, self._install, mix).run()

    async def _inspect(self, studies: Sequence[Study]) -> dict[str, Inspection]:
        async with connected(self._address) as link:
            machines = await link.some_machines(self._address)
            self._say(f"checking the machines {', '.join(each.name for each in machines)}")
            found = await asyncio.gather(
                *(inspect(link, each, studies, self._install) for each in machines)
            )
        inspections = {each.name: one for each, one in zip(machines, found, strict=True)}
        _refuse_unfit(inspections)
        for note in _notes(inspections):
            self._say(f"note: {note}")
        return inspections


# ------------------------------------------------------------------- the link


class Link:
    """The connection to the scheduler."""

    def __init__(self, client: Any) -> None:
        self._client = client

    async def machines(self) -> list[Machine]:
        """Return the machines that take part now; HeapfitError for two workers on one."""
        try:
            identity = await self._client.scheduler.identity(n_workers=-1)
        except (OSError, AttributeError) as error:  # The client forgets a scheduler that is gone.
            raise StudyStopped(
                "the scheduler does not answer any more; start it and repeat the same command: "
                "completed trials are kept"
            ) from error
        machines = [
            Machine(_name(address, worker), address)
            for address, worker in identity["workers"].items()
            if worker["resources"].get(RESOURCE, 0) >= 1
        ]
        twice = [name for name, n in Counter(each.name for each in machines).items() if n > 1]
        if twice:
            raise HeapfitError(
                f"{twice[0]} has two workers that offer {RESOURCE!r}; a machine runs one trial at "
                "a time: end one of them (or, if they are two machines, give each a --name)"
            )
        return sorted(machines, key=lambda each: each.name)

    async def some_machines(self, address: str) -> list[Machine]:
        """Return the machines; HeapfitError where the scheduler at `address` has none."""
        machines = await self.machines()
        if not machines:
            raise HeapfitError(
                f"no worker of {address} offers the resource {RESOURCE!r}; start one on each "
                f"machine: dask worker {address} --nthreads 1 --resources {RESOURCE}=1"
            )
        return machines

    async def call(self, machine: Machine, function: Callable[..., Result], *args: Any) -> Result:
        """Return what `function` returns on `machine`; raise MachineLost if the machine leaves
        before."""
        future = self._client.submit(
            function,
            *args,
            workers=[machine.address],
            allow_other_workers=False,
            resources={RESOURCE: 1},
            pure=False,
        )
        answer = asyncio.ensure_future(_answer(future))
        try:
            while True:
                done, _ = await asyncio.wait({answer}, timeout=LOOK_S)
                if done:
                    return cast(Result, answer.result())
                if machine not in await self.machines():
                    raise MachineLost(machine.name)
        finally:
            answer.cancel()
            future.release()

    async def stop(self, machines: Sequence[Machine]) -> None:
        """End what runs on `machines`, without waiting in the queue of each."""
        present = await self.machines()
        addresses = [each.address for each in machines if each in present]
        if addresses:
            await self._client.run(machine_side.stop, workers=addresses, on_error="ignore")


async def _answer(future: Any) -> Any:
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    try:
        return await future
    except (FutureCancelledError, KilledWorker) as error:
        raise MachineLost(str(error)) from error


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[Link]:
    """Connect to the scheduler at `address`; HeapfitError where none answers."""
    import distributed

    # This module reports lost connections itself.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = await cast(Any, distributed).Client(
            address, asynchronous=True, timeout=CONNECT_TIMEOUT_S, set_as_default=False
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise HeapfitError(
            f"no Dask scheduler answers at {address}; start one with: dask scheduler"
        ) from error
    try:
        yield Link(client)
    finally:
        await client.close()


def _name(address: str, worker: dict[str, Any]) -> str:
    """Return the worker's name if it was given one, else its host."""
    name = str(worker["name"])
    return str(worker["host"]) if name == address or "://" in name else name


def require_dask() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise HeapfitError(
            "running on a cluster needs Dask; run: pip install 'heapfit[cluster]'"
        ) from error


# ------------------------------------------------------------------- checking


async def check_version(link: Link, machine: Machine) -> None:
    """Raise HeapfitError where heapfit does not run on the machine, or another version does."""
    try:
        version = await link.call(machine, machine_side.version)
    except (MachineLost, StudyStopped):
        raise
    except Exception as error:  # Whatever importing heapfit there came to.
        raise HeapfitError(
            f"{machine.name}: heapfit does not run in the worker's environment ({error}); install "
            f"heapfit {heapfit.__version__} there"
        ) from error
    if version != heapfit.__version__:
        raise HeapfitError(
            f"{machine.name} has heapfit {version}, this is {heapfit.__version__}; install the same"
        )


async def inspect(
    link: Link, machine: Machine, studies: Sequence[Study], install: bool
) -> Inspection:
    """Return the machine's own report; raise as `check_version`."""
    await check_version(link, machine)
    wanted = [_sent(study) for study in studies]
    answer = await link.call(machine, machine_side.inspect, wanted, install)
    return Inspection.model_validate_json(answer)


def _sent(study: Study) -> str:
    """Return the study as it is sent: without its plan, which may be long, and without its
    sessions, as each machine reports what it measures."""
    return study.model_copy(update={"plan": [], "sessions": []}).model_dump_json()


def _refuse_unfit(inspections: dict[str, Inspection]) -> None:
    """Raise for machines with problems, or with different processors."""
    problems = [f"{name}: {each}" for name, it in inspections.items() for each in it.problems]
    if problems:
        raise HeapfitError("; ".join(problems))
    models: dict[str, list[str]] = defaultdict(list)
    for name, inspection in inspections.items():
        models[inspection.machine.cpu].append(name)
    if len(models) > 1:
        each = "; ".join(f"{', '.join(names)}: {cpu}" for cpu, names in models.items())
        raise HeapfitError(
            f"the machines have different processors, on which allocators may rank differently "
            f"({each}); run one study on each kind, the workers of the others without "
            f"--resources {RESOURCE}=1"
        )


def _notes(inspections: dict[str, Inspection]) -> list[str]:
    """Return doubts about the machines that are no reason to refuse them."""
    notes = [f"{name}: {note}" for name, it in inspections.items() for note in it.notes]
    boots: dict[str, list[str]] = defaultdict(list)
    for name, inspection in inspections.items():
        boots[inspection.boot].append(name)
    for names in boots.values():
        if len(names) > 1:
            notes.append(f"{', '.join(names)} are one machine; their trials disturb each other")
    for what in ("kernel", "memory_bytes", "cores", "governor", "huge_pages"):
        if len({getattr(it.machine, what) for it in inspections.values()}) > 1:
            notes.append(f"the machines differ in {what.replace('_', ' ')}")
    return notes


# ------------------------------------------------------------------- running


class _Execution:
    """One study on the machines of a cluster, from its first missing trial to its last."""

    def __init__(
        self,
        link: Link,
        journal: Journal,
        progress: Progress,
        say: Callable[[str], None],
        install: bool,
        mix: bool,
    ) -> None:
        self._link = link
        self._journal = journal
        self._sent = _sent(journal.study)
        self._progress = progress
        self._say = say
        self._install = install
        self._mix = mix
        self._blocks = Blocks(journal.study.plan, journal.trials)
        self._stopping = Stopping(journal)
        self._time_is_up: set[str] = set()  # on these machines
        self._lanes: dict[Machine, asyncio.Task[None]] = {}
        self._refused: set[Machine] = set()
        self._losses: Counter[int] = Counter()
        # All trials of each machine; the journal keeps only one machine's warm-ups.
        self._history: dict[str, list[Trial]] = defaultdict(list)
        for trial in journal.trials:
            self._history[trial.machine or ""].append(trial)

    @property
    def _study(self) -> Study:
        return self._journal.study

    async def run(self) -> None:
        """Keep a lane open for each machine until the plan is done and no more is needed."""
        self._progress.begin(self._study, list(self._journal.trials))
        try:
            while await self._run_planned() and self._stopping.goes_on():
                self._blocks = Blocks(self._study.plan, self._journal.trials)
                self._progress.extended(self._study, self._stopping.precision)
        finally:
            await self._close_lanes()

    async def _run_planned(self) -> bool:
        """Run the missing trials; return whether there was time for all of them."""
        last_seen_s = time.monotonic()
        while not self._blocks.done:
            await self._open_lanes()
            if self._lanes:
                last_seen_s = time.monotonic()
            elif self._time_is_up:
                self._journal.cut()
                return False
            elif time.monotonic() > last_seen_s + PATIENCE_S:
                raise StudyStopped(
                    "no machine is left; start workers and repeat the same command: completed "
                    "trials are kept"
                )
            await self._wait()
        return True

    async def _open_lanes(self) -> None:
        for machine in await self._link.machines():
            out = machine in self._refused or machine.name in self._time_is_up
            if machine not in self._lanes and not out:
                self._lanes[machine] = asyncio.create_task(self._lane(machine))

    async def _wait(self) -> None:
        """Wait a moment for a lane to end; raise the error of one that failed."""
        if not self._lanes:
            await asyncio.sleep(LOOK_S)
            return
        lanes = set(self._lanes.values())
        await asyncio.wait(lanes, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
        for machine, lane in list(self._lanes.items()):
            if lane.done():
                del self._lanes[machine]
                lane.result()

    async def _close_lanes(self) -> None:
        """End what still runs: warm-ups that are no longer needed; everything after Ctrl-C."""
        open_now = dict(self._lanes)
        for lane in open_now.values():
            lane.cancel()
        await asyncio.gather(*open_now.values(), return_exceptions=True)
        with suppress(StudyStopped):  # The scheduler is gone.
            await self._link.stop(list(open_now))

    async def _lane(self, machine: Machine) -> None:
        """Run everything that one machine does, from its check to its last block."""
        try:
            if not await self._fits(machine):
                return
            measured = await self._link.call(machine, machine_side.prepare, self._sent)
            identity = Identity.model_validate_json(measured)
            self._journal.add_machine(machine.name, identity, mix=self._mix)
            await self._warm_up(machine)
            while not self._blocks.done and machine.name not in self._time_is_up:
                present = {each.name for each in self._lanes}
                block = self._blocks.take(machine.name, present)
                if block is None:  # Others run the last blocks; one of them may yet be lost.
                    await asyncio.sleep(LOOK_S)
                else:
                    await self._run_block(machine, block)
        except MachineLost:
            self._say(f"{machine.name} is lost; what it was running will be run again")
        except StudyStopped:
            raise
        except HeapfitError as error:
            raise HeapfitError(f"{machine.name}: {error}") from error

    async def _fits(self, machine: Machine) -> bool:
        """Check a machine that has joined; leave out one that cannot run the study, and say so."""
        try:
            inspection = await inspect(self._link, machine, [self._study], self._install)
        except HeapfitError as error:
            problems = [str(error)]
        else:
            problems = list(inspection.problems)
            if inspection.machine.cpu != self._study.machine.cpu:
                problems.append(f"its processor is {inspection.machine.cpu}, not the study's")
        if problems:
            self._refused.add(machine)
            self._say(f"{machine.name} takes no part: {'; '.join(problems)}")
        return not problems

    async def _warm_up(self, machine: Machine) -> None:
        """Run the warm-ups that this machine has not had; the journal takes each only once."""
        had = {trial.planned.index for trial in self._history[machine.name]}
        for planned in self._study.plan:
            if planned.warmup and planned.index not in had:
                trial = await self._run_trial(machine, planned)
                kept = {each.planned.index for each in self._journal.trials}
                self._record(trial, keep=planned.index not in kept)

    async def _run_block(self, machine: Machine, block: Block) -> None:
        try:
            while block.missing:
                planned = block.missing[0]
                if self._stopping.time_is_up(block.missing, machine.name):
                    self._time_is_up.add(machine.name)
                    return
                try:
                    trial = await self._run_trial(machine, planned)
                except MachineLost:
                    self._count_loss(machine, block, planned)
                    raise
                block.missing.pop(0)
                self._record(trial)
        finally:
            self._blocks.give_back(block)

    async def _run_trial(self, machine: Machine, planned: PlannedTrial) -> Trial:
        self._progress.started(planned, self._remaining_s())
        judged_by = reference(self._study, self._history[machine.name], planned)
        start_s = time.monotonic()
        answer = await self._link.call(
            machine,
            machine_side.run,
            self._sent,
            planned.model_dump_json(),
            judged_by.model_dump_json() if judged_by else None,
        )
        took_s = time.monotonic() - start_s
        about = {"machine": machine.name, "took_s": round(took_s, 6)}
        return Trial.model_validate_json(answer).model_copy(update=about)

    def _record(self, trial: Trial, *, keep: bool = True) -> None:
        history = self._history[trial.machine or ""]
        if trial.status is not TrialStatus.OK:
            stop_if_pointless(self._study, history, trial)
        history.append(trial)
        if keep:
            self._keep(trial)

    def _count_loss(self, machine: Machine, block: Block, planned: PlannedTrial) -> None:
        """Record a trial as failed when too many workers have died while running it."""
        self._losses[planned.index] += 1
        if self._losses[planned.index] < MAX_LOSSES:
            return
        block.missing.remove(planned)
        trial = Trial(
            planned=planned,
            status=TrialStatus.FAILED,
            reason=f"{MAX_LOSSES} workers died while it ran; is there enough memory?",
            started=datetime.now(UTC),
            machine=machine.name,
        )
        self._keep(trial)

    def _keep(self, trial: Trial) -> None:
        self._journal.append(trial)
        self._stopping.add(trial)
        self._progress.finished(trial, self._remaining_s())

    def _remaining_s(self) -> float | None:
        return self._stopping.remaining_s(self._blocks.missing(), max(1, len(self._lanes)))
