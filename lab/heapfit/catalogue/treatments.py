"""An allocator with what is set beside it, in one word: `NAME`, or `NAME:SETTING=VALUE,…`.

`heapfit run --allocator` takes such a word, and the reports write it. A setting is an option of
heapfit's, alone or as `option.NAME`, or a variable of the environment, `env.NAME`: as factors are
called.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from heapfit import options, paths
from heapfit.catalogue.allocators import load_allocators, resolve_allocators
from heapfit.errors import UsageError
from heapfit.records import ENVIRONMENT_PREFIX, OPTION_PREFIX, InstalledAllocator
from heapfit.trial import preload

# A variable's value may have commas; what follows one and sets nothing belongs to it.
_SEPARATOR = re.compile(r",(?=[^,=]*=)")


def resolve_treatment(word: str, more: Sequence[str] = ()) -> InstalledAllocator:
    """Return what `word` names, with `more` options of heapfit's, as this machine has it.

    Raises UsageError for a name or a setting that is unknown, HeapfitError for an allocator that
    is not installed.
    """
    name, _, settings = word.partition(":")
    [allocator] = resolve_allocators([name])
    words = [
        each.strip().removeprefix(OPTION_PREFIX) for each in _SEPARATOR.split(settings) if each
    ]
    variables = [each for each in words if each.startswith(ENVIRONMENT_PREFIX)]
    chosen = [*(each for each in words if each not in variables), *more]
    if chosen and not preload.takes_options(allocator):
        raise UsageError(f"{allocator.name} has no option {chosen[0]!r}: only heapfit's can be set")
    for each in variables:
        if "=" not in each:
            raise UsageError(f"a variable is set by env.NAME=VALUE, not by {each!r}")
    environment = (each.removeprefix(ENVIRONMENT_PREFIX).split("=", 1) for each in variables)
    return allocator.model_copy(
        update={
            "environment": {**allocator.environment, **dict(environment)},
            "options": options.parse_settings(chosen, _variant(allocator)) if chosen else {},
        }
    )


def _variant(allocator: InstalledAllocator) -> str:
    """Return which of heapfit's libraries this is, whose options it has."""
    found = (name for name, each in paths.libraries().items() if each == allocator.library)
    return next(found, paths.DEFAULT_VARIANT)


def environment_under(allocator: InstalledAllocator) -> dict[str, str]:
    """Return what a program's environment has under `allocator` beyond ours."""
    preloaded = os.environ.get(preload.VARIABLE)
    return preload.environment_changes(
        allocator, {preload.VARIABLE: preloaded} if preloaded else {}
    )


def treatment_word(allocator: InstalledAllocator) -> str:
    """Return the word that names `allocator`, a variant too, wherever it was described."""
    plain = allocator.variant_of or allocator
    entry = load_allocators().get(plain.name)
    is_known = entry is not None and entry.title == plain.title
    usual = entry.environment if entry and is_known else {}
    name = plain.name if is_known else f"{plain.name}={plain.library}"
    settings = [f"{key}={value}" for key, value in allocator.options.items()]
    settings += [
        f"{ENVIRONMENT_PREFIX}{key}={value}"
        for key, value in allocator.environment.items()
        if usual.get(key) != value
    ]
    return f"{name}:{','.join(settings)}" if settings else name
