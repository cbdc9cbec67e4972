"""Treatments that are more than a library.

A *variant* of a study is an allocator together with what the program is told (parameters of the
workload, variables of the environment, options of heapfit's) and what watches it (heapfit's
recorder, or a tool that starts it). Its name stands wherever a study names allocators, so it must
not be one of theirs.

Builds of the user's own *program* are variants of the allocators, which set the parameter `program`
of the workload; so what is measured, kept and compared is what it is for any variant.

A *word* says an allocator with what is set beside it: `NAME`, or `NAME:SETTING=VALUE,…`. It is what
`heapfit run --allocator` takes, and the reports write. A setting is an option of heapfit's, alone
or as `option.NAME`, or a variable of the environment, `env.NAME`: as factors are called.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from heapfit import options, paths
from heapfit.catalogue.allocators import find_allocators, load_allocators, resolve_allocators
from heapfit.errors import UsageError, unknown
from heapfit.host.elf import has_malloc
from heapfit.host.program import cannot_start
from heapfit.record import options as record_options
from heapfit.records import (
    ENVIRONMENT_PREFIX,
    OPTION_PREFIX,
    Allocator,
    AllocatorSetting,
    InstalledAllocator,
    StudyDefinition,
    Variant,
    Workload,
)
from heapfit.text import join_words
from heapfit.trial import preload
from heapfit.trial.preload import takes_options

# In a variant's wrapper: the folder of the study's file.
_STUDY = "{study}"

PROGRAM = "program"
PLACEHOLDER = f"{{{PROGRAM}}}"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

# What begins the settings behind an allocator, whose path may have colons, too.
_SETTINGS = re.compile(r":(?=[A-Za-z_][\w.]*=)")
# A variable's value may have commas; what follows one and sets nothing belongs to it.
_SEPARATOR = re.compile(r",(?=[^,=]*=)")


def check_variants(path: Path, study: StudyDefinition) -> None:
    """Raise UsageError for a variant that makes no sense whatever the workload is."""
    taken = {*load_allocators(), *(name_of(word) for word in study.allocators if "=" in word)}
    for variant in study.variants:
        where = f"variant {variant.name!r}"
        if variant.name in taken:
            raise UsageError(f"{path}: {where} has the name of an allocator; give it another one")
        if variant.allocator in {each.name for each in study.variants}:
            raise UsageError(f"{path}: {where} is of a variant; name that variant's allocator")
        try:
            find_allocators([library_word(study, variant.allocator)])
            for name, value in variant.options.items():
                options.check(name, str(value))
            record_options.check(_texts(variant.record or {}))
        except UsageError as error:
            raise UsageError(f"{path}: {where}: {error}") from error


def library_word(study: StudyDefinition, word: str) -> str:
    """Return `word`, as a study names an allocator, such that it means the same in any folder."""
    plain = plain_word(word)
    name, equals, path = plain.partition("=")
    return f"{name}={study.here / path}{word[len(plain) :]}" if equals else word


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
        plain = plain_word(word)
        if plain not in known and not _is_path(plain):
            raise unknown("allocator", plain, known)
        if plain != word and plain in behind:
            raise UsageError(f"{plain} is a variant, which has its settings already")
        found[word] = behind.get(word, plain)
    return found


def with_variants(
    study: StudyDefinition, libraries: Mapping[str, str], installed: Sequence[InstalledAllocator]
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
        else _under_its_word(by_name[entry.name], word)
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


def with_setting(allocator: InstalledAllocator, setting: AllocatorSetting) -> InstalledAllocator:
    """Return `allocator` with what its catalogue entry says may be set: `NAME+SETTING`."""
    return allocator.model_copy(
        update={
            "name": f"{allocator.name}+{setting.name}",
            "title": f"{allocator.title}, {setting.name}",
            "environment": {**allocator.environment, **setting.environment},
            "variant_of": allocator,
            "options": setting.options,
        }
    )


def _applied(variant: Variant, allocator: InstalledAllocator, here: Path) -> InstalledAllocator:
    if variant.options and not takes_options(allocator):
        raise UsageError(
            f"variant {variant.name!r} sets {min(variant.options)}, an option of heapfit's, "
            f"but its allocator is {allocator.name}"
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


# ------------------------------------------------------------------ programs


def resolve_programs(text: str) -> dict[str, str]:
    """Return the files that `old=./a,new=./b` names, by name, as absolute paths.

    Raises UsageError for what makes no sense, HeapfitError for a file that is not there.
    """
    found: dict[str, str] = {}
    for word in text.split(","):
        name, equals, file = (part.strip() for part in word.partition("="))
        if not equals or not file or not _NAME.fullmatch(name):
            raise UsageError(f"--programs takes NAME=FILE,NAME=FILE, not {word!r}")
        if name in found:
            raise UsageError(f"two programs are called {name!r}; give each a name of its own")
        found[name] = _file(name, file)
    if len(found) < 2:
        raise UsageError("--programs compares two or more: write --programs old=./a,new=./b")
    return found


def _file(name: str, file: str) -> str:
    path = paths.expanded(file).absolute() if "/" in file else Path(shutil.which(file) or file)
    if not path.is_file():
        raise UsageError(f"{name}: there is no program {file!r}; check its path, or build it")
    return str(path)


def with_programs(
    programs: Mapping[str, str], allocators: Sequence[InstalledAllocator]
) -> list[InstalledAllocator]:
    """Return each of the `programs` under each of the `allocators`, the first program first."""
    several = len(allocators) > 1
    return [
        allocator.model_copy(
            update={
                "name": f"{name}+{allocator.name}" if several else name,
                "title": f"{Path(path).name} under {allocator.title}",
                "variant_of": allocator,
                "program": name,
                "parameters": {PROGRAM: path},
            }
        )
        for name, path in programs.items()
        for allocator in allocators
    ]


def taking_programs(workload: Workload, programs: Mapping[str, str]) -> Workload:
    """Return `workload` with the parameter that its command shall have where a program stands.

    Raises UsageError where the command has no place for it, or for a file that may not be run in
    that place.
    """
    command = (workload.server or workload.run).command
    if not any(PLACEHOLDER in word for word in command):
        raise UsageError(
            f"the command does not use the programs: write {PLACEHOLDER} where it goes"
        )
    if command[0] == PLACEHOLDER:
        for name, path in programs.items():
            if not os.access(path, os.X_OK):
                raise UsageError(f"{name}: {cannot_start(path)}")
    parameters = {**workload.parameters, PROGRAM: next(iter(programs.values()))}
    title = f"{join_words(list(programs))}: {workload.title}"
    return workload.model_copy(update={"parameters": parameters, "title": title})


# --------------------------------------------------------------------- words


def resolve_treatment(word: str, more: Sequence[str] = ()) -> InstalledAllocator:
    """Return what `word` names, with `more` options of heapfit's, as this machine has it.

    Raises UsageError for a name or a setting that is unknown, HeapfitError for an allocator that
    is not installed.
    """
    [allocator] = resolve_allocators([plain_word(word)])
    return _treated(allocator, word, more)


def resolve_treatments(named: Sequence[str]) -> list[InstalledAllocator]:
    """Return what the words `named` name, each under its word if that sets something.

    Raises UsageError for a word that is given twice, and as `resolve_treatment`.
    """
    twice = next((each for each in named if list(named).count(each) > 1), None)
    if twice is not None:
        raise UsageError(f"the allocator {twice!r} is named twice")
    plain = list(dict.fromkeys(map(plain_word, named)))
    by_word = dict(zip(plain, resolve_allocators(plain), strict=True))
    return [_under_its_word(by_word[plain_word(each)], each) for each in named]


def _under_its_word(allocator: InstalledAllocator, word: str) -> InstalledAllocator:
    if plain_word(word) == word:
        return allocator
    changes = {"name": name_of(word), "variant_of": allocator}
    return _treated(allocator, word).model_copy(update=changes)


def plain_word(word: str) -> str:
    """Return the word for the allocator alone.

    >>> plain_word("heapfit:decay_ms=5"), plain_word("mine=/opt/a:b.so"), plain_word("glibc")
    ('heapfit', 'mine=/opt/a:b.so', 'glibc')
    """
    return _split(word)[0]


def _split(word: str) -> tuple[str, str]:
    """Return the word for the allocator alone, and what is set beside it."""
    found = _SETTINGS.search(word)
    if found is not None:
        return word[: found.start()], word[found.end() :]
    name, colon, settings = word.partition(":")
    return (name, settings) if colon and settings and "=" not in name else (word, "")


def name_of(word: str) -> str:
    """Return the name that goes with a word in a study.

    >>> name_of("heapfit:decay_ms=5"), name_of("mine=/mine.so"), name_of("mine=/mine.so:sample=1m")
    ('heapfit:decay_ms=5', 'mine', 'mine:sample=1m')
    """
    plain, settings = _split(word)
    name = plain.partition("=")[0]
    return f"{name}:{settings}" if settings else name


def split_words(text: str) -> list[str]:
    """Return the words of a comma-separated list, in which settings have commas between them, too.

    >>> split_words("glibc, heapfit:decay_ms=5,huge_pages=never,mine=./a.so")
    ['glibc', 'heapfit:decay_ms=5,huge_pages=never', 'mine=./a.so']
    >>> split_words("jemalloc:env.MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0,jemalok")
    ['jemalloc:env.MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0', 'jemalok']
    """
    words: list[str] = []
    for item in filter(None, map(str.strip, text.split(","))):
        if words and plain_word(words[-1]) != words[-1] and not _begins_a_word(item):
            words[-1] += f",{item}"
        else:
            words.append(item)
    return words


def _begins_a_word(item: str) -> bool:
    head = item.partition("=")[0]
    if head.startswith((OPTION_PREFIX, ENVIRONMENT_PREFIX)) or head in options.OPTIONS:
        return False
    if head.partition(":")[0] in load_allocators() or "/" in item:
        return True
    return not {":", "="} & set(item)  # else it is a part of a variable's value


def _treated(
    allocator: InstalledAllocator, word: str, more: Sequence[str] = ()
) -> InstalledAllocator:
    settings = _split(word)[1]
    words = [
        each.strip().removeprefix(OPTION_PREFIX) for each in _SEPARATOR.split(settings) if each
    ]
    variables = [each for each in words if each.startswith(ENVIRONMENT_PREFIX)]
    chosen = [*(each for each in words if each not in variables), *more]
    if chosen and not takes_options(allocator):
        raise UsageError(
            f"{allocator.name} has no option {chosen[0]!r}: options, --control and --guard "
            "work with heapfit only"
        )
    for each in variables:
        if "=" not in each:
            raise UsageError(f"a variable is set by env.NAME=VALUE, not by {each!r}")
    environment = (each.removeprefix(ENVIRONMENT_PREFIX).split("=", 1) for each in variables)
    return allocator.model_copy(
        update={
            "environment": {**allocator.environment, **dict(environment)},
            "options": options.parse_settings(chosen, _library_variant(allocator)),
        }
    )


def _library_variant(allocator: InstalledAllocator) -> str:
    """Return which of heapfit's libraries this is, whose options it has."""
    found = (name for name, each in paths.libraries().items() if each == allocator.library)
    return next(found, paths.DEFAULT_VARIANT)


def environment_under(allocator: InstalledAllocator) -> dict[str, str]:
    """Return what a program's environment has under `allocator` beyond ours."""
    preloaded = os.environ.get(preload.VARIABLE)
    return preload.environment_changes(
        allocator, {preload.VARIABLE: preloaded} if preloaded else {}
    )


def already_preloaded(allocator: InstalledAllocator) -> str:
    """Return what to say where `allocator` preloads nothing, and what is preloaded here may serve
    the program instead; "" where nothing does."""
    named = preload.names_in(os.environ.get(preload.VARIABLE, ""))
    # The loader finds one that is named without its folder.
    served_by = next((each for each in named if "/" not in each or has_malloc(Path(each))), "")
    if allocator.library or not served_by:
        return ""
    return (
        f"{allocator.name} preloads nothing, and {served_by}, which {preload.VARIABLE} names here, "
        "may serve the program; unset that"
    )


def entry_of(allocator: InstalledAllocator) -> Allocator | None:
    """Return the catalogue's entry that `allocator`, or what it is a variant of, was made from;
    None for a file of the user's, which may have such a name."""
    plain = allocator.variant_of or allocator
    entry = load_allocators().get(plain.name)
    return entry if entry and entry.title == plain.title else None


def treatment_word(allocator: InstalledAllocator) -> str:
    """Return the word that names `allocator`, a variant too, wherever it was described."""
    plain, entry = allocator.variant_of or allocator, entry_of(allocator)
    usual = entry.environment if entry else {}
    name = plain.name if entry else f"{plain.name}={plain.library}"
    settings = [f"{key}={value}" for key, value in allocator.options.items()]
    settings += [
        f"{ENVIRONMENT_PREFIX}{key}={value}"
        for key, value in allocator.environment.items()
        if usual.get(key) != value
    ]
    return f"{name}:{','.join(settings)}" if settings else name
