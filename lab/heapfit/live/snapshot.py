"""Everything that can be known of one process at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.live.client import Client
from heapfit.live.memory import ProcessMemory, read_memory
from heapfit.live.processes import Process
from heapfit.live.records import LiveOption, Stats


@dataclass(frozen=True)
class Snapshot:
    """The process's own figures, its options, and what the kernel says of its memory."""

    process: Process
    stats: Stats
    options: list[LiveOption]
    memory: ProcessMemory | None


def take(client: Client) -> Snapshot:
    """Ask a process for all of it."""
    return Snapshot(
        process=client.process,
        stats=client.stats(),
        options=client.options(),
        memory=read_memory(client.process.pid),
    )
