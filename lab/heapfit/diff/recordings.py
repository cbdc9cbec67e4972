"""Two recordings side by side: calls, bytes and what lives, in all and by call site.

A site is the same in both when the functions of its chain are: lines are left out, since they move
with every edit above them.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from heapfit.diff.model import SITE_SEPARATOR, Change, Diff, Figure, Span, facts, figure
from heapfit.profile.analyse import OnPart
from heapfit.profile.analyse import profile as profile_of
from heapfit.profile.files import count_file
from heapfit.profile.model import Amount, Profile
from heapfit.profile.sections import sites
from heapfit.profile.tally import ADDENDS, Tally, add_up, amount
from heapfit.profile.words import size
from heapfit.text import join_words, visible

_LINE = re.compile(r":\d+\)$")
# Of an estimate, how many of its standard errors to either side hold the truth with 95 %.
_ERRORS = 1.96
_NS_PER_S = 1e9
# Units of what the machine has a say in.
_OF_THE_MACHINE = ("s", "1/s")

# How a site is called of which no function is known: see profile/sections/sites.py.
_UNNAMED = re.compile(r"(^|\+)0x[0-9a-f]+$")
_TIMES = (
    "Times may not be compared: recording takes time itself, and each run saw another state of the "
    "machine. For that: heapfit compare --programs old=…,new=… -- {program}"
)

Chains = dict[tuple[str, ...], tuple[int, ...]]


def of_recordings(old: Path, new: Path, on_part: OnPart | None = None) -> Diff:
    """Return what two traces, or folders of their tables, are to each other.

    Raises HeapfitError for what cannot be read.
    """
    tallies = count_file(old, None, on_part), count_file(new, None, on_part)
    profiles = profile_of(tallies[0]), profile_of(tallies[1])
    changed = facts(*map(_described, profiles))
    began = [each.recordings[0].started_unix_ns / _NS_PER_S for each in profiles]
    chains = _chains(tallies[0]), _chains(tallies[1])
    differing = sorted(_sites(*chains), key=lambda each: -_distance(each))
    return Diff(
        kind="recordings",
        old=str(old),
        new=str(new),
        began=[datetime.fromtimestamp(each, UTC) if each else None for each in began],
        changed=changed,
        figures=list(_figures(*profiles)),
        sites=differing,
        conclusions=[
            *_conclusions(*profiles, [each.name for each in changed]),
            *_unnamed(chains),
            _TIMES,
        ],
    )


def _described(found: Profile) -> dict[str, str]:
    [of] = found.recordings
    described = {
        "program": of.program,
        "arguments": shlex.join(of.arguments[1:]),
        "allocator": of.allocator,
        "architecture": of.arch,
        "cores": str(of.cores),
        "page size": size(of.page_size),
        "noted": f"one allocation in {size(of.sample)}" if of.sample else "every call",
        "return addresses followed": str(of.sites),
        "threads": str(of.threads),
        "problems": join_words(of.problems),
    }
    return {name: visible(text) for name, text in described.items()}


def _figures(old: Profile, new: Profile) -> Iterator[Figure]:
    for (name, unit, before), (_, _, after) in zip(_spans(old), _spans(new), strict=True):
        yield figure("", name, unit, (before, after), own=unit not in _OF_THE_MACHINE)


def _spans(found: Profile) -> Iterator[tuple[str, str, Span]]:
    """Name, unit and span of each figure."""
    totals, [of] = found.totals, found.recordings
    for name, each in (
        ("Allocations", totals.allocations),
        ("Frees", totals.frees),
        ("Live at the peak", of.peak),
        ("Live at the end", of.end),
    ):
        yield name, "count", _objects(each)
        yield f"{name}: bytes", "bytes", _bytes(each)
    yield "Reallocations of known blocks", "count", _span(found.reallocs.known, 0.0)
    yield "Failed allocations", "count", _span(totals.failed, 0.0)
    yield "Duration", "s", _span(totals.duration_ns / _NS_PER_S, 0.0)
    yield "Allocations a second", "1/s", _span(totals.per_second or 0.0, 0.0)


def _objects(found: Amount) -> Span:
    return _span(found.objects, found.objects_error)


def _bytes(found: Amount) -> Span:
    return _span(found.bytes, found.bytes_error)


def _span(value: float, error: float) -> Span:
    return Span(value=value, low=value - _ERRORS * error, high=value + _ERRORS * error)


# ------------------------------------------------------------------ call sites


def _chains(tally: Tally) -> Chains:
    """The sums of all sites by the functions of their chains."""
    found: dict[tuple[str, ...], list[tuple[int, ...]]] = defaultdict(list)
    for (_, chain), row in sites.rows(tally):
        found[tuple(_LINE.sub(")", label) for label in chain)].append(row[: 2 * ADDENDS])
    return {chain: add_up(rows, 2 * ADDENDS) for chain, rows in found.items()}


def _sites(old: Chains, new: Chains) -> Iterator[Figure]:
    """The figures by which each site differs."""
    nothing = (0,) * 2 * ADDENDS
    for chain in dict.fromkeys([*old, *new]):
        before, after = old.get(chain, nothing), new.get(chain, nothing)
        of = visible(SITE_SEPARATOR.join(chain)) or "elsewhere"
        for name, place in (("allocated", 0), ("live at the end", ADDENDS)):
            amounts = amount(before, place), amount(after, place)
            for each in (
                figure(of, f"{name}: bytes", "bytes", list(map(_bytes, amounts))),
                figure(of, name, "count", list(map(_objects, amounts))),
            ):
                if each.change in (Change.LESS, Change.MORE):
                    yield each


def _distance(found: Figure) -> float:
    apart = abs(found.new.value - found.old.value)
    return apart if found.unit == "bytes" else apart / _NS_PER_S  # counts after all bytes


# -------------------------------------------------------------- what it means


def _conclusions(old: Profile, new: Profile, changed: list[str]) -> Iterator[str]:
    yield (
        "Calls, bytes and call sites are the program's own and may be compared, if both had the "
        "same work to do."
    )
    if "arguments" in changed:
        yield "The arguments differ: look whether that is the same work."
    recordings = [*old.recordings, *new.recordings]
    if any(each.threads > 1 for each in recordings):
        yield (
            "With several threads the peak and some counts differ from run to run: of one "
            "recording each, it is not known how much. Record each twice, and see what remains."
        )
    if any(each.sample for each in recordings):
        yield (
            "Sampled figures are estimates: only what their 95 % intervals tell apart is said to "
            "differ."
        )
    if {"allocator", "page size"} & set(changed):
        yield (
            "Sizes are as they were asked for; what the allocators make of them is not compared."
        )
    if any(each.problems for each in recordings):
        yield "A recording is not whole (see heapfit trace info): what it lacks seems to be less."


def _unnamed(both: Iterable[Chains]) -> Iterator[str]:
    innermost = (chain[0] for chains in both for chain in chains if chain)
    if any(_UNNAMED.search(label) for label in innermost):
        yield (
            "Some call sites have addresses for names: these match only where both recordings are "
            "of the same files. Programs with debug information have names."
        )
