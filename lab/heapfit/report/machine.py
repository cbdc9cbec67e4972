"""The machine's description as label and value, the same in every report."""

from __future__ import annotations

from heapfit.records import Machine
from heapfit.report.units import bytes_text
from heapfit.text import counted, visible


def machine_facts(machine: Machine) -> list[tuple[str, str]]:
    """Return the machine's description as label and value, without what is not known."""
    facts = [
        ("CPU", f"{machine.cpu}, {counted(machine.cores, 'core')}"),
        ("Memory", bytes_text(machine.memory_bytes)),
        ("Swap", bytes_text(machine.swap_bytes) if machine.swap_bytes else "none"),
        ("Kernel", machine.kernel),
        ("Distribution", machine.distribution),
        ("C library", machine.libc),
        ("Virtual machine", machine.virtual or ""),
        ("Frequency governor", machine.governor or ""),
        ("Transparent huge pages", machine.huge_pages or ""),
        ("Host", machine.hostname),
    ]
    return [(label, visible(value)) for label, value in facts if value] + [
        ("Note", visible(note)) for note in machine.notes
    ]
