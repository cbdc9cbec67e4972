"""Everything that can be known of one process at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from heapfit.live.client import Client
from heapfit.live.memory import ProcessMemory, read_memory
from heapfit.live.processes import Process
from heapfit.live.records import LiveOption, Stats

# What counts as 0 while the process is shrunk, whatever it is set to (`hf_footprint_shrink`).
_OFF_WHILE_SHRUNK = (
    "free_page_threshold",
    "thread_span_threshold",
    "shared_span_threshold",
    "zeroed_reserve",
    "decay_ms",
)


@dataclass(frozen=True)
class Snapshot:
    """The process's own figures, its options, and what the kernel says of its memory."""

    process: Process
    stats: Stats
    options: list[LiveOption]
    memory: ProcessMemory | None

    def in_force(self, option: LiveOption) -> str:
        """Return the value that the process goes by."""
        off = self.stats.shrunk and option.name in _OFF_WHILE_SHRUNK
        return "0" if off else option.value


def take(client: Client) -> Snapshot:
    """Ask a process for all of it."""
    return Snapshot(
        process=client.process,
        stats=client.stats(),
        options=client.options(),
        memory=read_memory(client.process.pid),
    )
