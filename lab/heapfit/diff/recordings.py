"""Two recordings side by side: calls, bytes and what lives, in all and by call site.

A site is the same in both when the functions of its chain are. Lines are left out, since they move
with every edit above them, unless both recordings are of the same build; and so is a file that has
another name where one site alone of each recording can be meant.
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from heapfit.diff.model import (
    CALLS_SHOWN,
    SITE_SEPARATOR,
    Change,
    Diff,
    Figure,
    Span,
    facts,
    figure,
)
from heapfit.profile.analyse import OnPart
from heapfit.profile.analyse import profile as profile_of
from heapfit.profile.files import count_file
from heapfit.profile.model import Amount, Profile
from heapfit.profile.sections import sites
from heapfit.profile.sections.recording import file_names
from heapfit.profile.tally import ADDENDS, Tally, add_up, amount, grouped
from heapfit.profile.words import size
from heapfit.text import readable, shell_word, visible
from heapfit.weighted import interval

_FILE = re.compile(r" \(([^:()]+):\d+")
_LINE = re.compile(r"( \([^:()]+):\d+((, .*)?\))$")
_NAMED_FILE = re.compile(r" \([^()]*\)$")
_NS_PER_S = 1e9
# Resident memory is looked at now and then: the share of it by which two runs of one program lie
# apart, and of little memory the bytes.
_LOOKED_AT, _LOOKED_AT_BYTES = 0.05, 1 << 20
_RESIDENT = ("Most resident", "Resident at the end")
# Of a sample, as many of these as were noted are known, and not how many there were.
_NOTED = ("Reallocations of known blocks", "Failed allocations")
_SHOWN_OF_BUILD = 12  # digits of a build ID
# Units of what the machine has a say in.
_OF_THE_MACHINE = ("s", "1/s")

# How a site is called of which no function is known: see profile/sections/sites.py.
_UNNAMED = re.compile(r"(^|\+)0x[0-9a-f]+$")
_TIMES = (
    "Times cannot be compared: recording itself takes time, and each run saw the machine in "
    "another state. To compare times: heapfit compare --programs old=…,new=… -- {program}"
)

_WIDTH = 4 * ADDENDS  # of a site's row, what is compared

Chains = dict[tuple[str, ...], tuple[int, ...]]


def of_recordings(old: Path, new: Path, on_part: OnPart | None = None) -> Diff:
    """Return what two traces, or folders of their tables, are to each other.

    Raises HeapfitError for what cannot be read.
    """
    tallies = count_file(old, None, on_part), count_file(new, None, on_part)
    return of_tallies(str(old), str(new), *tallies)


def of_tallies(old: str, new: str, *tallies: Tally) -> Diff:
    """Return what two recordings of these names are to each other, by what was counted of them."""
    old, new = readable(old), readable(new)
    before, after = profiles = [profile_of(each) for each in tallies]
    builds = _builds(*tallies), _builds(*reversed(tallies))
    changed = facts(*(_described(each) | of for each, of in zip(profiles, builds, strict=True)))
    began = [each.recordings[0].started_unix_ns / _NS_PER_S for each in profiles]
    lines = _same_build(*tallies)
    chains = _chains(tallies[0], lines=lines), _chains(tallies[1], lines=lines)
    if not lines:
        chains = chains[0], _under_old_names(*chains)
    samples = before.recordings[0].sample, after.recordings[0].sample
    return Diff(
        kind="recordings",
        old=old,
        new=new,
        began=[datetime.fromtimestamp(each, UTC) if each else None for each in began],
        changed=changed,
        figures=list(_figures(before, after)),
        sites=_sites(*chains, samples),
        abbreviated=_sites(_abbreviated(chains[0]), _abbreviated(chains[1]), samples),
        notes=list(_changed((old, new), tallies)),
        conclusions=[
            *_conclusions(before, after, [each.name for each in changed]),
            *_unnamed(chains),
            _TIMES,
        ],
    )


def _described(found: Profile) -> dict[str, str]:
    [of] = found.recordings
    described = {
        "program": of.program,
        # A title that the program wrote over them leaves empty ones.
        "arguments": shlex.join(of.arguments[1:]) if any(of.arguments[1:]) else "",
        "allocator": of.allocator,
        "architecture": of.arch,
        "cores": str(of.cores),
        "page size": size(of.page_size),
        "noted": f"one allocation in {size(of.sample)}" if of.sample else "every call",
        "return addresses followed": str(of.sites),
        "threads": str(of.threads),
        "problems": " ".join(of.problems),
    }
    return {name: visible(text) for name, text in described.items()}


def _builds(tally: Tally, other: Tally) -> dict[str, str]:
    """Return the build IDs of the program and of the libraries that the other run had, too."""
    of, others = tally.recordings[0], other.recordings[0].builds
    program = of.recording.program
    return {
        "build" if path == program else visible(f"build of {path}"): build[:_SHOWN_OF_BUILD]
        for path, build in of.builds.items()
        if path == program or path in others
    }


def _figures(old: Profile, new: Profile) -> Iterator[Figure]:
    is_sampled = any(each.recordings[0].sample for each in (old, new))
    for (name, unit, before), (_, _, after) in zip(_spans(old, new), _spans(new, old), strict=True):
        if name in _RESIDENT and not (before.value and after.value):  # nobody looked
            continue
        if name in _NOTED and is_sampled:
            continue
        yield figure("", name, unit, (before, after), own=unit not in _OF_THE_MACHINE)


def _spans(found: Profile, other: Profile) -> Iterator[tuple[str, str, Span]]:
    """Name, unit and span of each figure."""
    totals, [of] = found.totals, found.recordings
    for (name, each), (_, beside) in zip(_amounts(found), _amounts(other), strict=True):
        yield name, "count", _objects(each, beside, of.sample)
        yield f"{name}: bytes", "bytes", _bytes(each, beside, of.sample)
    for name, resident in zip(
        _RESIDENT, (of.resident_most, _last(of.course.resident)), strict=True
    ):
        yield name, "bytes", _looked_at(resident or 0)
    for name, count in zip(_NOTED, (found.reallocs.known, totals.failed), strict=True):
        yield name, "count", _span(count)
    yield "Duration", "s", _span(totals.duration_ns / _NS_PER_S)
    yield "Allocations a second", "1/s", _span(totals.per_second or 0.0)


def _amounts(found: Profile) -> Iterator[tuple[str, Amount]]:
    totals, [of] = found.totals, found.recordings
    yield "Allocations", totals.allocations
    yield "Frees", totals.frees
    yield "Live at the peak", of.peak
    yield "Live at the end", of.end


def _last(course: Sequence[int | None]) -> int | None:
    return next((each for each in reversed(course) if each is not None), None)


def _looked_at(size: int) -> Span:
    error = max(_LOOKED_AT * size, _LOOKED_AT_BYTES / 2)
    return Span(value=size, low=max(size - error, 0), high=size + error)


# Where a sample has nothing of what the other recording has, the program may have had it all the
# same: in as many bytes as one of the sample stands for, objects as large as the other's.


def _objects(found: Amount, other: Amount, sample: int) -> Span:
    size = max(other.bytes / max(other.objects, 1), 1)
    return _span(found.objects, found.objects_error, sample / size)


def _bytes(found: Amount, other: Amount, sample: int) -> Span:
    return _span(found.bytes, found.bytes_error, sample)


def _either(found: Span, other: Span) -> Span:
    low, high = min(found.low, other.low), max(found.high, other.high)
    return found.model_copy(update={"low": low, "high": high})


def _span(value: float, error: float = 0.0, sample: float = 0.0) -> Span:
    low, high = interval(value, error**2, None if value else sample)
    return Span(value=value, low=low, high=high)


# ------------------------------------------------------------------ call sites


def _same_build(old: Tally, new: Tally) -> bool:
    """Whether both are of the same program, to the byte, and its libraries are the same, too."""
    before, after = old.recordings[0], new.recordings[0]
    shared = before.builds.keys() & after.builds.keys()
    return before.recording.program in shared and all(
        before.builds[path] == after.builds[path] for path in shared
    )


def _changed(names: Sequence[str], tallies: Sequence[Tally]) -> Iterator[str]:
    """Say of which recording the names are lost, and how to keep them."""
    kept = [
        "FOLDER" if tally.recordings[0].changed else shell_word(name)
        for name, tally in zip(names, tallies, strict=True)
    ]
    for name, tally in zip(names, tallies, strict=True):
        if files := tally.recordings[0].changed:
            yield (
                f"{visible(file_names(files))} changed after {visible(name)} was recorded: its "
                "functions have addresses instead of names and match nothing. Before you "
                f"rebuild a program, keep the names: heapfit profile {shell_word(name)} "
                f"--keep FOLDER; then: heapfit diff {' '.join(kept)}"
            )


def _chains(tally: Tally, *, lines: bool) -> Chains:
    """The sums of all sites by the functions of their chains; with `lines` by their lines, too,
    but for those of interpreted programs, whose files may have changed since."""
    found: dict[tuple[str, ...], list[tuple[int, ...]]] = defaultdict(list)
    sources = tally.recordings[0].sources
    for (_, chain), row in sites.rows(tally):
        calls = [
            each if lines and not _is_in(each, sources) else _without_line(each) for each in chain
        ]
        found[tuple(calls)].append(row[:_WIDTH])
    return {chain: add_up(rows, _WIDTH) for chain, rows in found.items()}


def _under_old_names(old: Chains, new: Chains) -> Chains:
    """Return the sites of a new recording: those in files of other names under their old names."""
    names: dict[tuple[str, ...], list[list[tuple[str, ...]]]] = defaultdict(lambda: [[], []])
    for which, (chains, others) in enumerate([(old, new), (new, old)]):
        for chain in chains.keys() - others.keys():
            names[tuple(_NAMED_FILE.sub("", each) for each in chain)][which].append(chain)
    moved = {
        after[0]: before[0]
        for before, after in names.values()
        if len(before) == 1 and len(after) == 1
    }
    return {moved.get(chain, chain): row for chain, row in new.items()}


# What is told of a site, and the places in the row of its amount, and of what it may be as well.
_AMOUNTS = (
    ("allocated", sites.ALL, sites.ALL),
    ("live at the end", sites.END, sites.END),
    ("live at the peak", sites.PEAK, sites.RIVAL),
)


def _abbreviated(chains: Chains) -> Chains:
    """The sums by the innermost calls."""
    return grouped(chains, lambda *chain: chain[:CALLS_SHOWN], _WIDTH)


def _sites(old: Chains, new: Chains, samples: Sequence[int]) -> list[Figure]:
    """The figures by which each site differs, those by most first."""
    # By name where they differ by as much: tables have no order of their own.
    return sorted(
        _differing(old, new, samples), key=lambda each: (-_distance(each), each.of, each.name)
    )


def _differing(old: Chains, new: Chains, samples: Sequence[int]) -> Iterator[Figure]:
    nothing = (0,) * _WIDTH
    # Else a site that one of them does not have need not be new, or gone.
    all_old, all_new = (
        not sample and not any(each.get((), ()))
        for sample, each in zip(samples, (old, new), strict=True)
    )
    for chain in dict.fromkeys([*old, *new]):
        before, after = old.get(chain, nothing), new.get(chain, nothing)
        is_new, is_gone = all_old and not before[sites.ALL], all_new and not after[sites.ALL]
        of = visible(SITE_SEPARATOR.join(chain)) or "elsewhere"
        for name, place, other in _AMOUNTS:
            for title, unit, span in (
                (f"{name}: bytes", "bytes", _bytes),
                (name, "count", _objects),
            ):
                spans = [
                    _either(
                        *(
                            span(amount(row, at), amount(beside, at), sample)
                            for at in (place, other)
                        )
                    )
                    for row, beside, sample in zip(
                        (before, after), (after, before), samples, strict=True
                    )
                ]
                each = figure(of, title, unit, spans)
                if each.change is Change.MORE:
                    yield each.model_copy(update={"change": Change.NEW}) if is_new else each
                elif each.change is Change.LESS:
                    yield each.model_copy(update={"change": Change.GONE}) if is_gone else each


def _distance(found: Figure) -> float:
    apart = abs(found.new.value - found.old.value)
    return apart if found.unit == "bytes" else apart / _NS_PER_S  # counts after all bytes


# -------------------------------------------------------------- what it means


def _conclusions(old: Profile, new: Profile, changed: list[str]) -> Iterator[str]:
    yield (
        "Calls, bytes and call sites are the program's own and can be compared, if both runs "
        "had the same work to do."
    )
    if "arguments" in changed:
        yield "The arguments differ: check whether both are the same work."
    recordings = [*old.recordings, *new.recordings]
    if any(each.threads > 1 for each in recordings):
        yield (
            "With several threads, the peak and some counts differ from run to run, and one "
            "recording of each does not tell by how much. Record each twice, and see which "
            "differences remain."
        )
    else:
        yield (
            "Each recording is of one run, which does not tell which figures vary. Record each "
            "twice, and see which differences remain."
        )
    if any(each.sample for each in recordings):
        yield (
            "Sampled figures are estimates: they are said to differ only where their 95 % "
            "intervals do not overlap."
        )
    if {"allocator", "page size"} & set(changed):
        yield (
            "Sizes are those that the program asked for; only resident memory shows what the "
            "allocators make of them."
        )
    if not all(each.whole for each in recordings):
        yield (
            "A recording is incomplete (see heapfit trace info): a missing part looks like a "
            "decrease."
        )
    if any(each.began_late or each.ended_early for each in recordings):
        yield (
            "A recording is of a part of its process (see heapfit profile): what came before it, "
            "or after it, looks like a decrease."
        )


def _is_in(call: str, files: Collection[str]) -> bool:
    found = _FILE.search(call)
    return found is not None and found[1] in files


def _without_line(call: str) -> str:
    """Return a call as it is in another version of the program, where lines have moved."""
    return _LINE.sub(r"\1\2", call)


def _unnamed(both: Iterable[Chains]) -> Iterator[str]:
    innermost = (chain[0] for chains in both for chain in chains if chain)
    if any(_UNNAMED.search(label) for label in innermost):
        yield (
            "Some call sites have addresses instead of names: these match only if both "
            "recordings are of the same files. Programs with debug information have names."
        )
