"""Names of a study's settings, factors and levels, for whoever analyses, reports or runs it.

A setting is one combination of the levels of all factors but the allocator. Within a setting
allocators can be compared directly; every table and figure of a report belongs to one setting or
lines several of them up.
"""

from collections.abc import Iterable

from heapfit.records import (
    ALLOCATOR,
    CORES,
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    Estimate,
    Factor,
    Setting,
    Study,
)
from heapfit.text import capitalised, counted, visible

_UNSET = "unset"

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
    cores, further = setting
    return {CORES: f"{cores}", **dict(further)}


def setting_name(study: Study, setting: Setting) -> str:
    """Return a setting's name among those of its study: its levels that vary."""
    return levels_label(varied_levels(study, setting).items())


def varied_levels(study: Study, setting: Setting) -> dict[str, str]:
    """Return the level of every factor that has several."""
    levels = setting_levels(setting)
    return {factor.name: levels[factor.name] for factor in varied(study)}


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
