"""Check what a study varies and what it sets: parameters, options of heapfit's, the environment.

Of a factor `option.NAME`, the trials of every allocator are run at each level, although only
heapfit reads its options. The others' cells are then repeats of one another. They are run all the
same: the analysis needs a complete design, each figure needs its baseline close by in time, in the
same block, and copies of figures would pass for measurements. What they differ by is a measure of
the noise. Whoever wants the options alone names heapfit alone as the allocators of an experiment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from heapfit import options
from heapfit.errors import UsageError, unknown
from heapfit.records import (
    ALLOCATOR,
    CORES,
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    InstalledAllocator,
    Study,
    Workload,
)
from heapfit.trial.placeholders import BUILTIN_NAMES
from heapfit.trial.preload import takes_options

# `stdout` is a placeholder of the commands that run after a trial.
_RESERVED = {*BUILTIN_NAMES, "stdout", ALLOCATOR}

_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_VARIABLE = re.compile(r"[^=\0]+")


def check_factors(study: Study) -> None:
    """Raise `UsageError` unless the study's factors and parameters make sense."""
    _check_declared(study.workload)
    names = [factor.name for factor in study.factors]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the factor {name!r} is given twice")
        if name in study.parameters:
            raise UsageError(f"{name!r} is both varied and set to {study.parameters[name]!r}")
    for factor in study.factors:
        check_levels(factor.name, factor.levels)
        _check_values(study, factor.name, factor.levels)
    for name, value in study.parameters.items():
        _check_values(study, name, [value])
    for allocator in study.allocators:
        _check_variant(study, allocator)


def _check_variant(study: Study, allocator: InstalledAllocator) -> None:
    """What a variant sets must be its own business, or its trials are not what their levels say."""
    known = study.workload.parameters
    for name in allocator.parameters:
        if name not in known:
            error = unknown(f"parameter of {study.workload.name}:", name, known)
            raise UsageError(f"variant {allocator.name!r}: {error}")
    if allocator.variant_of is None:
        return
    settled = {*(factor.name for factor in study.factors), *study.parameters}
    for name in _names_set(allocator):
        if name in settled:
            raise UsageError(f"{name!r} is set by the variant {allocator.name!r} and by the study")


def _names_set(variant: InstalledAllocator) -> list[str]:
    """What a variant sets, by the names of factors."""
    return [
        *variant.parameters,
        *(f"{OPTION_PREFIX}{name}" for name in variant.options),
        *(f"{ENVIRONMENT_PREFIX}{name}" for name in variant.environment),
    ]


def check_levels(name: str, levels: Iterable[str]) -> None:
    """Raise `UsageError` unless a factor has levels, each once."""
    seen: set[str] = set()
    for level in levels:
        if level in seen:
            raise UsageError(f"the factor {name!r} has the level {level!r} twice")
        seen.add(level)
    if not seen:
        raise UsageError(f"the factor {name!r} has no levels")


def remarks(study: Study) -> list[str]:
    """Say which trials will differ by chance alone; see the head of this file."""
    others = [each.name for each in study.allocators if not takes_options(each)]
    varied = [
        factor.name
        for factor in study.factors
        if factor.name.startswith(OPTION_PREFIX) and len(factor.levels) > 1
    ]
    if not others or not varied:
        return []
    return [
        f"only heapfit reads {', '.join(varied)}; each level is measured under "
        f"{', '.join(others)} all the same, and differences between those figures are noise"
    ]


def _check_declared(workload: Workload) -> None:
    for name in workload.parameters:
        if name in _RESERVED:
            raise UsageError(f"{workload.name}: no parameter may be called {name!r}")
        if not _PARAMETER.fullmatch(name):
            raise UsageError(
                f"{workload.name}: {name!r} cannot name a parameter; use letters, digits, - and _"
            )


def _check_values(study: Study, name: str, values: Iterable[str]) -> None:
    if name.startswith(OPTION_PREFIX):
        _check_option(study, name, values)
    elif name.startswith(ENVIRONMENT_PREFIX):
        if not _VARIABLE.fullmatch(name.removeprefix(ENVIRONMENT_PREFIX)):
            raise UsageError(f"{name!r} is not the name of an environment variable")
    elif name not in study.workload.parameters:
        raise _unknown(study.workload, name)


def _check_option(study: Study, name: str, values: Iterable[str]) -> None:
    for value in values:
        options.check(name.removeprefix(OPTION_PREFIX), value)
    if not any(map(takes_options, study.allocators)):
        raise UsageError(f"{name} is an option of heapfit, which is not among the allocators")


def _unknown(workload: Workload, name: str) -> UsageError:
    known = [ALLOCATOR, CORES, *workload.parameters, f"{OPTION_PREFIX}NAME"]
    own = ", ".join(workload.parameters) or "none"
    error = unknown("factor", name, [*known, f"{ENVIRONMENT_PREFIX}NAME"])
    return UsageError(f"{error} (the parameters of {workload.name}: {own})")
