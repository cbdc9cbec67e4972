"""What readers see of a study's variants, and of the machine."""

from collections.abc import Iterable
from pathlib import Path

from heapfit.records import InstalledAllocator, Machine
from heapfit.text import bytes_text, counted, visible

# An interpreter and its script say what a tool is; what follows are its arguments.
_WORDS_OF_A_TOOL = 2


def settings_of_variant(allocator: InstalledAllocator) -> list[str]:
    """Return what a variant sets, each as `name = value`; nothing of a plain allocator."""
    if allocator.variant_of is None:
        return []
    plain = allocator.variant_of.environment
    environment = {k: v for k, v in allocator.environment.items() if plain.get(k) != v}
    every = {**allocator.parameters, **allocator.options, **environment}
    settings = [f"{visible(name)} = {visible(value)}" for name, value in every.items()]
    return [*settings, *_watchers(allocator)]


def _watchers(allocator: InstalledAllocator) -> list[str]:
    recorded = [f"{visible(k)} = {visible(v)}" for k, v in (allocator.record or {}).items()]
    recorder = [] if allocator.record is None else [" ".join(["recorded", *recorded])]
    tool = " ".join(visible(Path(word).name) for word in allocator.wrapper[:_WORDS_OF_A_TOOL])
    return [*recorder, *([f"under {tool}"] if tool else [])]


def explained(allocator: InstalledAllocator) -> str:
    """Return a variant's title with what it consists of; of a plain allocator, its title."""
    if allocator.variant_of is None:
        return visible(allocator.title)
    parts = [visible(allocator.variant_of.name), *settings_of_variant(allocator)]
    return f"{visible(allocator.title)} ({', '.join(parts)})"


def library_text(allocator: InstalledAllocator) -> str:
    """Return where an allocator's library is."""
    return str(allocator.library) if allocator.library else "the system's own"


def explanations(allocators: Iterable[InstalledAllocator]) -> list[str]:
    """Return a line for each variant: its name, and what it is."""
    return [f"{visible(each.name)}: {explained(each)}" for each in allocators if each.variant_of]


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
