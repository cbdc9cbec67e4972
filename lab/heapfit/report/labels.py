"""What readers see of a study's settings, factors, levels and variants, and of the machine.

A setting is one combination of the levels of all factors but the allocator. Within a setting
allocators can be compared directly; every table and figure of a report belongs to one setting or
lines several of them up.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from heapfit.records import (
    ALLOCATOR,
    CORES,
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    Estimate,
    Factor,
    InstalledAllocator,
    Machine,
    Setting,
    Study,
)
from heapfit.statistics.verdict import levels_of
from heapfit.text import bytes_text, capitalised, counted, visible

_UNSET = "unset"

# An interpreter and its script say what a tool is; what follows are its arguments.
_WORDS_OF_A_TOOL = 2

# Levels of factors, the cores among them, as records of an analysis hold them.
Levels = Iterable[tuple[str, str]]


def setting_of(estimate: Estimate) -> Setting:
    """Return the setting that an estimate belongs to."""
    return estimate.cores, tuple(estimate.levels.items())


def setting_label(setting: Setting) -> str:
    """Return a setting as a reader names it.

    >>> setting_label((2, (("threads", "8"),)))
    '2 cores, threads 8'
    """
    return levels_label(setting_levels(setting).items())


def setting_levels(setting: Setting) -> dict[str, str]:
    """Return the level of every factor of a setting, the cores first."""
    return dict(levels_of(setting))


def levels_label(levels: Levels) -> str:
    """Name levels of any factors, the cores among them.

    >>> levels_label([("cores", "1"), ("env.MODE", "")])
    '1 core, MODE unset'
    """
    return ", ".join(level_label(name, level) for name, level in levels)


def level_label(factor: str, level: str) -> str:
    """Return one level with its factor."""
    if factor == CORES:
        return counted(int(level), "core")
    return visible(level) if factor == ALLOCATOR else f"{factor_label(factor)} {level_text(level)}"


def level_text(level: str) -> str:
    """Return a level alone; the empty one of an environment variable is named."""
    return visible(level) or _UNSET


def factor_label(name: str) -> str:
    """Return a factor's name without its kind.

    >>> factor_label("option.huge_pages")
    'huge_pages'
    """
    return visible(name.removeprefix(OPTION_PREFIX).removeprefix(ENVIRONMENT_PREFIX))


def factor_title(name: str) -> str:
    """Return a factor's name as it heads a table or an axis; a variable's stays as it is."""
    shown = factor_label(name)
    return shown if shown != name else capitalised(shown)


def varied(study: Study) -> list[Factor]:
    """Return the factors of more than one level, without the allocator."""
    return [factor for factor in study.design()[1:] if len(factor.levels) > 1]


# ------------------------------------------------------- variants and the machine


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
