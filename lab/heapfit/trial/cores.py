"""Which processors a trial's program runs on, and where everybody else keeps out of its way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from heapfit.errors import UsageError


def allowed_cpus() -> list[int]:
    """Return the processors that this process may use, in order."""
    return sorted(os.sched_getaffinity(0))


@dataclass(frozen=True)
class CoreSplit:
    """The program gets `program`; the lab, and the client of a server, get `others`."""

    program: list[int]
    others: list[int]


def split_cores(cores: int) -> CoreSplit:
    """Give the program the first `cores` allowed processors and everybody else the rest.

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


@contextmanager
def lab_runs_on(cpus: list[int]) -> Iterator[None]:
    """Keep the calling thread on `cpus` meanwhile: sampling is not to disturb the program."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
