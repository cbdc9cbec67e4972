"""The variants of a study: treatments that are more than a library.

A variant is an allocator together with what the program is told (parameters of the workload,
variables of the environment, options of heapfit's) and what watches it (heapfit's recorder, or a
tool that starts it). Its name stands wherever a study names allocators, so it must not be one of
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from heapfit.catalogue.allocators import find_allocators, load_allocators
from heapfit.errors import UsageError, unknown
from heapfit.options import OPTIONS
from heapfit.record import options as record_options
from heapfit.records import InstalledAllocator, StudyDefinition, Variant
from heapfit.trial.preload import takes_options

# In a variant's wrapper: the folder of the study's file.
_STUDY = "{study}"


def check_variants(path: Path, study: StudyDefinition) -> None:
    """Raise UsageError for a variant that makes no sense whatever the workload is."""
    taken = {*load_allocators(), *(_name(word) for word in study.allocators if "=" in word)}
    for variant in study.variants:
        where = f"variant {variant.name!r}"
        if variant.name in taken:
            raise UsageError(f"{path}: {where} has the name of an allocator; call it otherwise")
        if variant.allocator in {each.name for each in study.variants}:
            raise UsageError(f"{path}: {where} is of a variant; name the allocator of that")
        try:
            find_allocators([library_word(study, variant.allocator)])
            _check_options(variant)
            record_options.check(_texts(variant.record or {}))
        except UsageError as error:
            raise UsageError(f"{path}: {where}: {error}") from error


def _check_options(variant: Variant) -> None:
    for name, value in variant.options.items():
        if name not in OPTIONS:
            raise unknown("option", name, OPTIONS)
        OPTIONS[name].check(str(value))


def library_word(study: StudyDefinition, word: str) -> str:
    """Return `word`, as a study names an allocator, such that it means the same in any folder."""
    name, equals, path = word.partition("=")
    return f"{name}={study.here / path}" if equals else word


def libraries_of(study: StudyDefinition, named: Iterable[str]) -> dict[str, str]:
    """Return by each of `named`, names of variants or of allocators, the allocator behind it.

    Raises UsageError for a name that is neither, and for one that is given twice.
    """
    behind = {each.name: library_word(study, each.allocator) for each in study.variants}
    known = {*load_allocators(), *behind}
    found: dict[str, str] = {}
    for word in named:
        if word in found:
            raise UsageError(f"the allocator {word!r} is named twice")
        if word not in known and not _is_path(word):
            raise unknown("allocator", word, known)
        found[word] = behind.get(word, word)
    return found


def with_variants(
    study: StudyDefinition,
    libraries: Mapping[str, str],
    installed: Sequence[InstalledAllocator],
) -> list[InstalledAllocator]:
    """Return what `libraries_of` gave as this machine has it, variants as their allocators made so.

    `installed` are the allocators behind it, each once. Raises UsageError for options of heapfit's
    in a variant of another allocator.
    """
    variants = {each.name: each for each in study.variants}
    entries = find_allocators(libraries.values())
    by_name = {each.name: each for each in installed}
    return [
        _applied(variants[word], by_name[entry.name], study.here)
        if word in variants
        else by_name[entry.name]
        for word, entry in zip(libraries, entries, strict=True)
    ]


def once_more(allocator: InstalledAllocator) -> InstalledAllocator:
    """Return the same allocator under another name: a variant that sets nothing."""
    return allocator.model_copy(
        update={
            "name": f"{allocator.name}-again",
            "title": f"{allocator.title} once more",
            "variant_of": allocator,
        }
    )


def _applied(variant: Variant, allocator: InstalledAllocator, here: Path) -> InstalledAllocator:
    if variant.options and not takes_options(allocator):
        raise UsageError(
            f"variant {variant.name!r} sets {min(variant.options)}, an option of heapfit's, but is "
            f"of {allocator.name}"
        )
    return allocator.model_copy(
        update={
            "name": variant.name,
            "title": variant.title,
            "environment": {**allocator.environment, **variant.environment},
            "variant_of": allocator,
            "parameters": _texts(variant.parameters),
            "options": _texts(variant.options),
            "record": None if variant.record is None else _texts(variant.record),
            "wrapper": [word.replace(_STUDY, str(here)) for word in variant.wrapper],
        }
    )


def _texts(values: Mapping[str, str | int | float]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _is_path(word: str) -> bool:
    return "=" in word or "/" in word or word.endswith(".toml")


def _name(word: str) -> str:
    return word.partition("=")[0]
