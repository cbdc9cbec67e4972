"""Get what a measurement needs before it starts: allocators, programs, a folder for its results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heapfit import catalogue
from heapfit.catalogue.allocators import find_allocators
from heapfit.cli.arguments import split_list
from heapfit.cli.output import say
from heapfit.errors import HeapfitError, UsageError
from heapfit.records import InstalledAllocator, Workload

if TYPE_CHECKING:  # Dask takes a while to load, and few need it.
    from heapfit.study.cluster import Cluster

# In place of names: of all that would be compared, what this machine has.
INSTALLED = "installed"

RESULTS = Path("heapfit-results")


def named_allocators(option: str | None, usual: Mapping[str, str], *, installed: bool) -> list[str]:
    """Return the allocators that the `option` names, without it the `usual` ones.

    Of the usual ones, each with the allocator behind it, which is another one for a variant. With
    `installed`, as with `--allocators installed`, these are the usual ones that this machine has.
    """
    if option is not None and option != INSTALLED:
        return split_list(option)
    if option is None and not installed:
        return list(usual)
    entries = zip(usual, find_allocators(usual.values()), strict=True)
    return [word for word, entry in entries if catalogue.find_installed(entry)]


def with_baseline(named: list[str], baseline: str) -> list[str]:
    """Return the allocators as the user names them, the baseline among them.

    >>> with_baseline(["jemalloc"], "glibc"), with_baseline(["a", "b=./b.so"], "b=./b.so")
    (['glibc', 'jemalloc'], ['a', 'b=./b.so'])
    """
    names = [word.partition("=")[0] for word in named]
    return named if baseline.partition("=")[0] in names else [baseline, *named]


def provide_allocators(named: Sequence[str], *, install: bool) -> list[InstalledAllocator]:
    """Return the allocators that `named` names; HeapfitError names those that are missing."""
    entries = find_allocators(named)
    missing = [entry.name for entry in entries if catalogue.find_installed(entry) is None]
    if install:
        for entry in entries:
            if entry.name in missing:
                catalogue.install_allocator(entry, say)
    elif len(missing) > 1:  # Of one, resolve_allocators says more.
        raise HeapfitError(
            f"{', '.join(missing)} are not installed; add --install, leave them out by "
            f"--allocators {INSTALLED}, or run: heapfit allocators install {' '.join(missing)}"
        )
    return catalogue.resolve_allocators(named)


def provide_programs(workloads: Sequence[Workload], *, install: bool) -> None:
    """Make sure of the programs that the workloads need; HeapfitError names what is missing."""
    lacking = {each.name: missing for each in workloads if (missing := catalogue.missing_for(each))}
    if lacking and not install:
        needs = "; ".join(f"{name} needs {', '.join(what)}" for name, what in lacking.items())
        raise HeapfitError(
            f"{needs}; add --install, or run: heapfit workloads install {' '.join(lacking)}"
        )
    for workload in workloads:
        if workload.name in lacking:
            catalogue.install_workload(workload, say)


def join_cluster(address: str | None, *, install: bool) -> Cluster | None:
    """Return the cluster that a study is to run on; None for this machine."""
    if address is None:
        return None
    from heapfit.study.cluster import Cluster

    return Cluster(address, say, install=install)


def results_folder(name: str, check: Callable[[Path], object]) -> Path:
    """Return the folder `name` of the results, or one beside it where that has another study.

    `check` raises UsageError for a folder that holds another study.
    """

    def takes(folder: Path) -> bool:
        try:
            check(folder)
        except UsageError:
            return False
        return True

    names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
    return next(RESULTS / each for each in names if takes(RESULTS / each))
