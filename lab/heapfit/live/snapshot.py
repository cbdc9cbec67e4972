"""Everything that can be known of one process at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.live.client import Client
from heapfit.live.memory import ProcessMemory, read_memory
from heapfit.live.processes import Process
from heapfit.live.records import LiveOption, Stats

# What is in force at most while the process is shrunk (`hf_footprint_shrink`): as api/options.c.
_MOST_WHILE_SHRUNK = {
    "free_page_threshold": 1 << 20,
    "thread_span_threshold": 0,
    "shared_span_threshold": 4 << 20,
    "zeroed_reserve": 0,
    "decay_ms": 10,
}


@dataclass(frozen=True)
class Snapshot:
    """The process's own figures, its options, and what the kernel says of its memory."""

    process: Process
    stats: Stats
    options: list[LiveOption]
    memory: ProcessMemory | None

    def in_force(self, option: LiveOption) -> str:
        """Return the value that the process goes by."""
        most = _MOST_WHILE_SHRUNK.get(option.name) if self.stats.shrunk else None
        if most is None or (option.value.isdecimal() and int(option.value) <= most):
            return option.value
        return str(most)


def take(client: Client) -> Snapshot:
    """Ask a process for all of it."""
    return Snapshot(
        process=client.process,
        stats=client.stats(),
        options=client.options(),
        memory=read_memory(client.process.pid),
    )
