"""Which processors a trial's program runs on, and which are left to everything else."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from heapfit.errors import UsageError


def allowed_cpus() -> list[int]:
    """Return the processors that this process may use, in order."""
    return sorted(os.sched_getaffinity(0))


@dataclass(frozen=True)
class CoreSplit:
    """The processors of the program, and those of the lab and of a server's client."""

    program: list[int]
    others: list[int]


def split_cores(cores: int) -> CoreSplit:
    """Give the program the first `cores` allowed processors, and everything else the rest.

    Where the program takes all of them, the others share them with it.
    """
    allowed = allowed_cpus()
    if cores < 1:
        raise UsageError(f"a trial needs at least 1 core, not {cores}")
    if cores > len(allowed):
        raise UsageError(
            f"a trial on {cores} cores needs as many; this process may use {len(allowed)}"
        )
    return CoreSplit(program=allowed[:cores], others=allowed[cores:] or allowed)


# If set to 1, a study takes the first processors even if another study has them.
SHARE_VARIABLE = "HEAPFIT_SHARE_CORES"


@contextmanager
def own_cores(cores: int) -> Iterator[list[int]]:
    """Give the calling thread's trials processors that no other study on this machine has.

    A study reserves each of its processors by the address of a socket, which the kernel gives to
    only one process of the machine (in containers: of a network) and frees when that ends. Yields
    the processors that the study shares with others, where there are too few for all.
    """
    allowed = allowed_cpus()
    held = [] if os.environ.get(SHARE_VARIABLE) == "1" else list(map(_held, allowed))
    with ExitStack() as kept:
        free = [cpu for cpu, its in zip(allowed, held, strict=False) if its]
        own = free[:cores] if len(free) >= cores else allowed[:cores]
        for cpu, its in zip(allowed, held, strict=False):
            if its and cpu in own:
                kept.enter_context(its)
            elif its:
                its.close()
        # A program gets the first of the allowed processors.
        if held and own != allowed[:cores]:
            kept.enter_context(lab_runs_on([cpu for cpu in allowed if cpu in free]))
        yield [cpu for cpu in own if held and cpu not in free]


_ADDRESS = "\0heapfit/processor/"


def _held(cpu: int) -> socket.socket | None:
    """Reserve a processor until the socket is closed; None: another study has it."""
    taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        taken.bind(f"{_ADDRESS}{cpu}")
    except OSError:
        taken.close()
        return None
    return taken


@contextmanager
def lab_runs_on(cpus: list[int]) -> Iterator[None]:
    """Keep the calling thread on `cpus` meanwhile, so that it does not disturb the program."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
