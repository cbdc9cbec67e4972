"""What of this machine helps or spoils a measurement, and what to do about it.

Each module looks at one side of the machine and returns findings; nothing is changed.
"""

from __future__ import annotations

from heapfit.doctor import cpu, installation, kernel, memory, metrics, noise
from heapfit.doctor.finding import Finding
from heapfit.doctor.program import examine as examine_program

__all__ = ["Finding", "examine", "examine_program"]


def examine() -> list[Finding]:
    """Return every finding about this machine; takes about two seconds."""
    return [
        *cpu.examine(),
        *memory.examine(),
        *kernel.examine(),
        *noise.examine(),
        *installation.examine(),
        *metrics.examine(),
    ]
