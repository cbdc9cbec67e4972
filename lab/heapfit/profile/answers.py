"""Puts a profile into words: the facts that it begins with, and its sections.

_SHAPES lists the sections, each with its answer, its table and its advice.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from heapfit.host.interpreters import hiding, made_to_ask_malloc, names_lines
from heapfit.profile import tables
from heapfit.profile.advice import (
    MIB,
    Advice,
    began_late,
    calls,
    ended_early,
    fit_line,
    hidden_by,
    largest,
    memory,
    none,
    placement,
    sampled,
)
from heapfit.profile.content import Content, Fact, Section, Table
from heapfit.profile.model import (
    UNKNOWN,
    YOUNG_BYTES,
    Distribution,
    PinningSite,
    Profile,
    Recording,
)
from heapfit.profile.words import (
    blocks,
    bytes_with_error,
    count,
    objects_with_error,
    percent,
    size,
    size_range,
    size_text,
    span,
)
from heapfit.text import capitalised, counted, join_words, shell_word, visible

ASK = "Ask for more than is shown here"  # what a command is for
_NOTHING_TO_DO = "Nothing here calls for an option, a pool or another allocator."
_NOTHING_OF_OBJECTS = (
    "Only a recording without `--objects` shows whether an option, a pool or another allocator "
    "would help."
)
_NOTHING_GROWS = "Nothing is shown to grow in this recording."
_LIVE_BELOW = " The blocks still live at its end are below."
# So many programs' sizes are put into words; the table has more.
_MOST_PROGRAMS = 4
# A longer command line, such as one with a script in it, tells no more, ...
_LONGEST_COMMAND = 300
# ... and one longer than this is written CMD in sentences.
_LONGEST_IN_SENTENCE = 80
_HEAPFIT_COMMAND = re.compile(r"heapfit [\w= -]*-- CMD")
# `weight` is 1, and in a sample how many blocks of the program one stands for.
_QUERY = (
    '"select size, sum(weight) as blocks from objects group by size order by blocks desc limit 10"'
)


def content(profile: Profile, trace: str = "TRACE") -> Content:
    """Return what the profile shows. `trace` is the file that its commands name."""
    return Content(
        title=_programs(profile),
        command=_command(profile),
        circumstances=_circumstances(profile),
        headline=_headline(profile),
        facts=_facts(profile),
        problems=[_with_command(each, profile) for each in _problems(profile)],
        sections=[
            Section(
                name=name,
                title=shape.title,
                sentences=shape.sentences(profile),
                advice=_advice(shape, profile, trace),
                table=shape.table(profile),
                note=shape.note,
                course=shape.course(profile),
                beside=shape.beside,
                folds=shape.folds,
            )
            for name, shape in _shapes(profile).items()
        ],
        commands=_commands(profile, trace),
        nothing_proposed=_nothing_proposed(profile),
    )


def _nothing_proposed(profile: Profile) -> str:
    if hidden := hidden_by(profile.recordings):
        return (
            "This recording cannot show whether the program's objects grow: "
            f"{hidden.keeps}, and these are not recorded. To see it, {hidden.instead}."
        )
    if ended_early(profile):
        return _NOTHING_GROWS + _LIVE_BELOW * bool(profile.leaks.amount.objects)
    return _NOTHING_OF_OBJECTS if _of_each_object(profile) else _NOTHING_TO_DO


def advice(profile: Profile, trace: str = "TRACE") -> dict[str, Advice]:
    """Return the advice by section, in the order of the sections. `trace` is what commands name."""
    return {name: _advice(shape, profile, trace) for name, shape in _shapes(profile).items()}


def _advice(shape: _Shape, profile: Profile, trace: str) -> Advice:
    found = shape.advice(profile, trace)
    return found.model_copy(update={"sentence": _with_command(found.sentence, profile)})


def _with_command(sentence: str, profile: Profile) -> str:
    """Return a sentence with the recorded command in place of CMD, where one was recorded, and in
    front of heapfit the variables that made its interpreter ask malloc for each object."""
    if len(profile.recordings) > 1:
        return sentence
    variables = _variables(profile.recordings[0])
    sentence = _HEAPFIT_COMMAND.sub(lambda found: variables + found[0], sentence)
    arguments = profile.recordings[0].arguments
    if not arguments or _is_title(arguments):
        return sentence
    command = shlex.join(arguments)
    is_short = len(command) <= _LONGEST_IN_SENTENCE
    return sentence.replace("-- CMD", f"-- {command}") if is_short else sentence


def _of_each_object(profile: Profile) -> bool:
    """Whether the interpreters' own allocators were off."""
    return all(made_to_ask_malloc(e.program, e.environment) for e in profile.recordings)


def _variables(recording: Recording) -> str:
    if not made_to_ask_malloc(recording.program, recording.environment):
        return ""
    found = hiding(recording.program, {})
    name = found.variable if found else ""
    return f"{name}={shlex.quote(recording.environment[name])} "


def _shapes(profile: Profile) -> dict[str, _Shape]:
    """Return the sections, of a sample or of a part of a program with what it can tell alone."""
    if not profile.totals.allocations.objects:
        # Of nothing, no section says anything, but that it is not all that there is.
        only = {"memory": _SHAPES["memory"]}
        return only | {"end": _OF_A_PART} if memory.unseen(profile) else only
    shapes = _SHAPES | _OF_A_SAMPLE if sampled(profile.recordings) else _SHAPES
    if _of_each_object(profile):
        shapes = shapes | {
            name: replace(shapes[name], advice=advice) for name, advice in _OF_EACH_OBJECT.items()
        }
    return shapes | {"end": _OF_A_PART} if ended_early(profile) else shapes


# ----------------------------------------------------------------------- the head


def _programs(profile: Profile) -> str:
    """The recorded programs' names, each once, in the order of the files."""
    return join_words(list(dict.fromkeys(map(tables.program, profile.recordings))))


def _command(profile: Profile) -> str:
    first = profile.recordings[0]
    command = _as_called(first.arguments) if len(profile.recordings) == 1 else ""
    return command if len(command) <= _LONGEST_COMMAND else f"{command[: _LONGEST_COMMAND - 1]}…"


def _as_called(arguments: Sequence[str]) -> str:
    """Return a command as a shell would be given it, or the title that a program wrote over it: of
    that, one word is left, and empty ones where the others were.

    >>> _as_called(["cp", "a b", ""]), _as_called(["redis-server *:6379", "", ""])
    ("cp 'a b' ''", 'redis-server *:6379')
    """
    return arguments[0] if _is_title(arguments) else shlex.join(arguments)


def _is_title(arguments: Sequence[str]) -> bool:
    return len(arguments) > 1 and not any(arguments[1:])


def _circumstances(profile: Profile) -> list[str]:
    first = profile.recordings[0]
    known = [
        _started(first),
        _how_many(profile),
        f"recorded over {Path(first.allocator).name}" if first.allocator else "",
        f"{first.arch}, {counted(first.cores, 'core')}",
        f"call sites {first.sites} deep" if first.sites else "",
        f"a sample: one allocation per {size(first.sample)}, with standard errors behind ±"
        if first.sample
        else "",
    ]
    return [each for each in known if each]


def _processes(profile: Profile) -> list[list[Recording]]:
    """Return the recordings by their processes. One process has several if it became another
    program, or was recorded again; an anonymised recording tells no process."""
    found: dict[object, list[Recording]] = {}
    for index, each in enumerate(profile.recordings):
        found.setdefault(each.pid or f"recording {index}", []).append(each)
    return list(found.values())


def _how_many(profile: Profile) -> str:
    processes = len(_processes(profile))
    if len(profile.recordings) == 1:
        return ""
    several = processes < len(profile.recordings)
    recordings = f", {len(profile.recordings)} recordings" if several else ""
    return f"{processes} process{'es' * (processes > 1)}{recordings}"


def _started(recording: Recording) -> str:
    """When the recording began; an anonymised one does not tell."""
    if not recording.started_unix_ns:
        return ""
    return f"{datetime.fromtimestamp(recording.started_unix_ns / 1e9, UTC):%-d %B %Y, %H:%M UTC}"


def _nothing(profile: Profile) -> str:
    """A headline where no allocation is recorded, by what that means."""
    means = {each.sample for each in profile.recordings if each.sample}
    if ended_early(profile) and not began_late(profile):
        return f"Nothing of {_programs(profile)} is recorded: the recording was cut short."
    if means:
        return f"{_programs(profile)} allocated too little for a sample of {size(max(means))}."
    return f"{_programs(profile)} allocated nothing while it was recorded."


def _headline(profile: Profile) -> str:
    peak = profile.peak.amount
    if not profile.totals.allocations.objects:
        return _nothing(profile)
    held = f"{_programs(profile)} held at most {size(peak.bytes)} in {blocks(peak.objects)}"
    if began_late(profile):
        held += " of what it allocated while it was recorded"
    if len(profile.recordings) > 1:
        what = "process" if len(_processes(profile)) == len(profile.recordings) else "recording"
        return f"{held}, each {what} at its own peak."
    most = profile.recordings[0].resident_most
    compares = most and not began_late(profile)
    return f"{held}, with {size(most or 0)} resident." if compares else f"{held}."


def _facts(profile: Profile) -> list[Fact]:
    totals, main = profile.totals, largest(profile)
    threads = sum(max(each.threads for each in process) for process in _processes(profile))
    several = len(profile.recordings) > 1
    about = _about(profile)
    of_it = " of those recorded" if began_late(profile) else ""
    return [
        Fact(
            "Recorded",
            span(totals.duration_ns),
            f"{counted(threads, 'thread')}, {count(totals.events)} events",
            always=True,
        ),
        Fact(
            "Allocations",
            objects_with_error(totals.allocations),
            f"{about}{count(totals.per_second or 0.0)}/s"
            + (f", {count(most)}/s at the busiest" if (most := totals.per_second_most) else ""),
        ),
        Fact(
            "Requested",
            bytes_with_error(totals.allocations),
            f"{size(totals.mean_size or 0.0)} on average",
        ),
        Fact(
            "Peak live",
            bytes_with_error(profile.peak.amount),
            f"{blocks(profile.peak.amount.objects)}{of_it}, "
            + ("each at its own peak" if several else f"after {span(main.peak_ns)}"),
            always=True,
        ),
        Fact("Peak resident", *_resident(profile)),
        Fact(
            "Live when the recording ended" if ended_early(profile) else "Live at the end",
            bytes_with_error(profile.leaks.amount),
            f"{blocks(profile.leaks.amount.objects)}{of_it}",
            always=True,
        ),
        *_pinner(profile),
        *_holder(profile),
        Fact(
            "Freed by another thread", _share(profile.sharing.remote_share), "of the freed blocks"
        ),
        *([] if sampled(profile.recordings) else [_short_lived(profile)]),
    ]


def _pinner(profile: Profile) -> list[Fact]:
    """Return whose few blocks keep most free memory, where that is more than what is live."""
    pinned, first = profile.pinned, _first_pinner(profile)
    if first is None or pinned.bytes < max(MIB, 2 * pinned.amount.bytes):
        return []
    live = bytes_with_error(first.amount)
    note = f"{first.name}: pinned by {live} of its blocks"
    return [Fact("Pins free memory", size(first.bytes), note, always=True)]


def _first_pinner(profile: Profile) -> PinningSite | None:
    return next((each for each in profile.pinned.sites if each.name != UNKNOWN), None)


def _holder(profile: Profile) -> list[Fact]:
    """Return who holds most: at the end, where that is most of the peak, else at the peak. Before
    that comes who holds more and more, if that is somebody else."""
    at_end = 2 * profile.leaks.amount.bytes > profile.peak.amount.bytes
    holders = profile.leaks.functions if at_end else profile.peak.functions
    when = "at the peak"
    if at_end:
        when = "when the recording ended" if ended_early(profile) else "at the end"
    first = next((each for each in holders if each.name != UNKNOWN), None)
    if first is None:
        return []
    note = f"{first.name}: {percent(first.share)} {when}"
    most = Fact("Largest holder", bytes_with_error(first.amount), note, always=True)
    growing = memory.grower(profile)
    if growing is None or growing.name == first.name:
        return [most]
    how = memory.how_it_grew(growing, profile).removeprefix("which ")
    grew = Fact("Grew", bytes_with_error(growing.amount), f"{growing.name}: {how}")
    # In a recording that began late, most may have taken the place of blocks from before.
    return [grew] if began_late(profile) else [grew, most]


def _short_lived(profile: Profile) -> Fact:
    return Fact(
        "Short-lived",
        _share(profile.lifetimes.young_share),
        f"freed before another {size(YOUNG_BYTES)} was allocated",
    )


def _about(profile: Profile) -> str:
    """What stands before a rate: in a sample it is estimated."""
    return "about " if sampled(profile.recordings) else ""


def _resident(profile: Profile) -> tuple[str, str]:
    processes = [max(each.resident_most or 0 for each in own) for own in _processes(profile)]
    if not any(processes):
        return "not known", "it was not recorded"
    before = "earlier allocations, " if began_late(profile) else ""
    shared = "; shared memory counts in each process" if len(processes) > 1 else ""
    note = f"includes {before}code, libraries, stacks and mappings{shared}"
    return size(sum(processes)), note


def _share(value: float | None) -> str:
    return "none" if value is None else percent(value)


def _problems(profile: Profile) -> list[str]:
    several = len(profile.recordings) > 1
    return [
        f"{each.name}: {problem}" if several else problem
        for each in profile.recordings
        for problem in each.problems
    ] + _without_lines(profile)


# Of all bytes: what has no line below is not what anybody looks for.
_LINES_MISSED = 0.05


def _without_lines(profile: Profile) -> list[str]:
    found = dict(profile.sites.without_lines)
    said = []
    for each in profile.recordings:
        lines = names_lines(each.program)
        missed = found.pop(Path(each.program).name, 0.0) if lines else 0.0
        if missed >= _LINES_MISSED:
            said.append(
                f"{tables.program(each)} is an interpreter: {percent(missed)} of the bytes come "
                f"from its own functions, not from lines of the script; {lines}."
            )
    # One file may be several programs, told apart by how they are called.
    of_module = {Path(each.program).name: each for each in profile.recordings}
    for module in [*found]:
        program = of_module[module].program if module in of_module else ""
        if program and found[module] >= _LINES_MISSED and not Path(program).exists():
            said.append(
                f"{percent(found.pop(module))} of the bytes come from {visible(program)}, which is "
                "not on this machine, so that their functions and lines are not known: copy the "
                "file there, or read the recording where it is."
            )
    missed = sum(found.values())
    if missed < _LINES_MISSED:
        return said
    names = [
        tables.program(of_module[each]) if each in of_module else each or "code that is gone"
        for each in list(found)[:_MOST_PROGRAMS]
    ]
    return [
        *said,
        f"{percent(missed)} of the bytes come from code without line numbers, in "
        f"{join_words(names)}: install its debug symbols, or compile it with -g.",
    ]


def _commands(profile: Profile, trace: str) -> list[tuple[str, str]]:
    name = shell_word(trace)
    if began_late(profile) and not profile.totals.allocations.objects:
        return [("See what the process holds", f"heapfit why {largest(profile).pid or 'PID'}")]
    ask = (ASK, f"heapfit profile {name} --sql {_QUERY}")
    if memory.grows(profile):
        return [ask]
    kept = memory.kept_after_peak(profile)
    setting = " --control --set background=on" if kept and kept.feature == memory.BACKGROUND else ""
    run = _with_command(f"heapfit run{setting} -- CMD", profile)
    replay = ("Replay it under other allocators", f"heapfit replay {name}")
    return [
        # A replay has no idle time, in which memory is returned.
        *([] if sampled(profile.recordings) or kept else [replay]),
        ask,
        (
            ("Try allocators on the service's calls", fit_line(profile, trace))
            if began_late(profile)
            else ("Run the program under heapfit", run)
        ),
    ]


# --------------------------------------------------------------------- the answers


def _memory(profile: Profile) -> list[str]:
    main = largest(profile)
    course = main.course
    sentences = [
        f"{_in(main, profile)}{'recorded ' if main.began_late else ''}live memory peaked at "
        f"{size(main.peak.bytes)} in {count(main.peak.objects)} blocks, after "
        f"{span(main.peak_ns)} of {span(main.duration_ns)}; {size(main.end.bytes)} at the end."
    ]
    if main.resident_most is None:
        return [capitalised(sentences[0]), "Resident memory was not recorded."]
    anonymous = max((each for each in course.resident_anonymous if each is not None), default=None)
    part = "" if anonymous is None else f", {size(anonymous)} of it anonymous"
    before = ", including earlier allocations" if main.began_late else ""
    sentences.append(f"Peak resident memory was {size(main.resident_most)}{part}{before}.")
    return [capitalised(each) for each in sentences]


def _in(recording: Recording, profile: Profile) -> str:
    several = len(profile.recordings) > 1
    return f"in {tables.process(recording)}, " if several else ""


def _peak(profile: Profile) -> list[str]:
    peak = profile.peak
    if not peak.amount.objects:
        return ["Nothing was live."]
    mean = peak.amount.bytes / peak.amount.objects
    sentences = [
        f"At the peak {blocks(peak.amount.objects)} of {size(mean)} on average "
        f"{'was' if peak.amount.objects == 1 else 'were'} live; the program requested "
        f"{size(peak.amount.bytes)}, the allocator gave {size(peak.usable_bytes)}."
    ]
    if peak.sizes:
        most = max(peak.sizes, key=lambda each: each.amount.bytes)
        sentences.append(
            f"Its largest part, {percent(most.share)}, is in blocks of {size_range(most.size)}."
        )
    if peak.rival is not None:
        sentences.append(
            f"After {span(profile.recordings[0].rival_ns or 0)}, when {peak.rival.name} holds "
            f"{size(peak.rival.amount.bytes)}, memory is as high, within sampling error."
        )
    if peak.ages:
        sentences.append(
            f"{percent(peak.ages[0].share)} of the peak was allocated in the last tenth of the "
            "time before it."
        )
    return sentences


def _pinned(profile: Profile) -> list[str]:
    pinned = profile.pinned
    if not pinned.known:
        return ["How much free memory live blocks pin is not known."]
    if not pinned.bytes:
        return ["Live blocks pinned no free memory at any moment examined."]
    when = "" if pinned.at_ns is None else f"After {span(pinned.at_ns)}, "
    sentences = [
        f"{when}{size(pinned.bytes)} of free memory lay on pages with only "
        f"{size(pinned.amount.bytes)} of live blocks: the most at any moment examined."
    ]
    if first := _first_pinner(profile):
        sentences.append(
            f"{size(first.amount.bytes)} of blocks that {first.name} allocates keep "
            f"{size(first.bytes)} of it from being returned; they were "
            f"{span(first.mean_age_ns)} old on average."
        )
    return sentences


def _sizes(profile: Profile) -> list[str]:
    programs = profile.sizes.programs
    return [_distribution(each, len(programs) > 1) for each in programs[:_MOST_PROGRAMS]]


def _distribution(each: Distribution, named: bool) -> str:
    return (
        f"{f'{each.name}: half' if named else 'Half'} of the allocations are of at most "
        f"{size_text(each.median)}, 9 of 10 of at most {size_text(each.p90)}, 99 of 100 of at most "
        f"{size_text(each.p99)}; {counted(each.distinct, 'different size')}, the largest "
        f"{size_text(each.largest)}."
    )


def _rounding(profile: Profile) -> list[str]:
    waste = profile.waste
    sentences = [
        f"Rounding to size classes adds {size(each.peak_bytes)} "
        f"({percent(each.peak_waste or 0.0)}) at the peak under {each.title}."
        for each in waste.allocators
        if each.recorded
    ]
    if not sentences:
        sentences = ["For the allocator that the program ran under, this is not known."]
    if waste.unknown:
        sentences.append(f"Without a figure: {'; '.join(waste.unknown)}.")
    return sentences


def _rate(profile: Profile) -> list[str]:
    totals = profile.totals
    if totals.per_second is None:
        return ["The recording has no length."]
    most, about = totals.per_second_most, _about(profile)
    peak = "" if most is None else f", {count(most)} in the busiest step of the figure"
    said = f"{about}{count(totals.per_second)} allocations a second on average{peak}."
    return [capitalised(said)]


def _lifetimes(profile: Profile) -> list[str]:
    every, young = profile.lifetimes.all, profile.lifetimes.young_share
    if not every.amount.objects:
        return ["No block was recorded."]
    half = (
        "Most blocks outlive the recording"
        if every.ns.p50 is None
        else (f"Half of the blocks live no longer than {span(every.ns.p50)}")
    )
    most = "" if every.ns.p90 is None else f", 9 of 10 no longer than {span(every.ns.p90)}"
    said = f"{half}{most}; {percent(every.living.objects, every.amount.objects)} live at the end."
    if sampled(profile.recordings):
        return [said]
    return [said, f"{_share(young)} are freed before another {size(YOUNG_BYTES)} is allocated."]


def _bursts(profile: Profile) -> list[str]:
    found = profile.transactions
    if not found.threads:
        return [
            "No thread works in bursts: periods by whose end 90 % of what was allocated in them is "
            "freed."
        ]
    first = max(found.threads, key=lambda each: each.bursts * each.allocations)
    return [
        f"{_share(found.share)} of all allocations are within bursts: periods by whose end 90 % of "
        "what was allocated in them is freed.",
        f"{first.thread} has {counted(first.bursts, 'burst')} of {count(first.allocations)} "
        f"allocations and {size(first.bytes)} on average, of which {size(first.most_live_bytes)} "
        f"are live at a time; {_share(first.survivor_share)} of the blocks live on.",
    ]


def _threads(profile: Profile) -> list[str]:
    sharing = profile.sharing
    if not sharing.freed.objects:
        return ["Nothing was freed."]
    if len(sharing.threads) < 2:
        return ["One thread allocates and frees."]
    return [
        f"{_share(sharing.remote_share)} of the freed blocks, and "
        f"{_share(sharing.remote_bytes_share)} of their bytes, are freed by another thread "
        "than the one that allocated them."
    ]


def _realloc(profile: Profile) -> list[str]:
    reallocs = profile.reallocs
    if not reallocs.calls.objects:
        return ["The program reallocates nothing."]
    each = ""
    if reallocs.per_block is not None:
        each = f", {reallocs.per_block:.1f} per reallocated block"
    return [
        f"{_share(reallocs.share)} of the allocations are reallocations{each}. Of "
        f"{count(reallocs.calls.objects)}, {count(reallocs.grown)} grew a block and "
        f"{count(reallocs.shrunk)} shrank one; the largest result was {size(reallocs.largest)}.",
        f"{_share(reallocs.in_place_share)} stayed in place, and moving the others copied "
        f"{size(reallocs.copied_bytes)}.",
    ]


def _sampled_reallocs(profile: Profile) -> list[str]:
    reallocs = profile.reallocs
    if not reallocs.calls.objects:
        return ["No reallocation is in the sample."]
    return [
        f"{_share(reallocs.share)} of the allocations are reallocations: "
        f"{objects_with_error(reallocs.calls)}, of {bytes_with_error(reallocs.calls)}."
    ]


def _calloc(profile: Profile) -> list[str]:
    totals = profile.totals
    if not totals.calloc.objects:
        return ["The program asks for no cleared memory."]
    return [
        f"{_share(totals.calloc_share)} of the allocations are callocs, of "
        f"{size(totals.calloc.bytes)} in all; {count(totals.calloc_pages.objects)} of them are of "
        f"4 KiB and more, of {size(totals.calloc_pages.bytes)}."
    ]


def _sites(profile: Profile) -> list[str]:
    sites = profile.sites
    if not sites.recorded:
        return ["Call sites were not recorded."]
    return [
        f"{counted(sites.distinct, 'call site')}; {_share(sites.interleaving)} of the "
        "allocations come after one of another site, of the same thread and of similar size.",
    ]


def _sampled_sites(profile: Profile) -> list[str]:
    if not profile.sites.recorded:
        return ["Call sites were not recorded."]
    return [f"{counted(profile.sites.distinct, 'call site')} in the sample."]


def _end(profile: Profile) -> list[str]:
    leaks = profile.leaks
    if not leaks.amount.objects:
        of = " that was allocated while it was recorded" if began_late(profile) else ""
        return [f"Everything{of} was freed."]
    left = "live when the recording ended" if ended_early(profile) else "not freed"
    return [
        f"{bytes_with_error(leaks.amount)} in {blocks(leaks.amount.objects)} "
        f"{'was' if leaks.amount.objects == 1 else 'were'} {left}, "
        f"{_share(leaks.share)} of all that was requested."
    ]


# ---------------------------------------------------------------------- the shapes


@dataclass(frozen=True)
class _Shape:
    """What a section is made of."""

    title: str
    sentences: Callable[[Profile], list[str]]
    advice: Callable[[Profile, str], Advice]
    table: Callable[[Profile], Table | None] = lambda _: None
    note: str = ""
    course: Callable[[Profile], Sequence[float]] = lambda _: ()
    beside: bool = False
    folds: bool = False


_SHAPES = {
    "memory": _Shape(
        "Memory over time",
        _memory,
        memory.memory,
        tables.recordings,
        course=lambda profile: largest(profile).course.live_bytes,
    ),
    "peak": _Shape("What the peak is made of", _peak, memory.peak, tables.peak, beside=True),
    "pinned": _Shape(
        "Free memory pinned by live blocks",
        _pinned,
        placement.pinned,
        tables.pinned,
        "What is free on a page is divided evenly among the blocks on it.",
    ),
    "sizes": _Shape(
        "Sizes",
        _sizes,
        calls.sizes,
        tables.sizes,
        "A line's height at a size is the share of allocations that are no larger. Thin lines are "
        "threads.",
        beside=True,
    ),
    "rounding": _Shape(
        "Rounding by allocators",
        _rounding,
        memory.rounding,
        tables.rounding,
        "As malloc_usable_size reports it; fragmentation, and the block headers of glibc, "
        "dlmalloc, Scudo and TLSF, come on top. Orange is what the program ran under.",
        beside=True,
    ),
    "rate": _Shape(
        "Allocations over time",
        _rate,
        calls.rate,
        note="Orange marks above the curve are the bursts of each thread, where there are any.",
        course=lambda profile: largest(profile).course.allocations,
    ),
    "lifetimes": _Shape(
        "Lifetimes",
        _lifetimes,
        placement.lifetimes,
        tables.lifetimes,
        "Each row is a size, and adds up to 100 %: how much of it lives how long.",
        folds=True,
    ),
    "bursts": _Shape("Bursts", _bursts, placement.bursts, tables.bursts),
    "threads": _Shape(
        "Frees by other threads",
        _threads,
        placement.threads,
        tables.threads,
        "Numbers are per cent of all frees; those of a thread's own blocks are on the diagonal.",
        beside=True,
    ),
    "realloc": _Shape("Reallocation", _realloc, calls.realloc, tables.realloc),
    "calloc": _Shape("Calls, and cleared memory", _calloc, calls.calloc, tables.calls),
    "sites": _Shape(
        "Call sites",
        _sites,
        placement.sites,
        tables.sites,
        "Interleaved: how many of a site's allocations came after one of another site, of the "
        "same thread and of similar size, so that blocks of the two lie side by side.",
    ),
    "end": _Shape("Live at the end", _end, memory.end, tables.end, beside=True),
}

# In place of the last, where the program went on.
_OF_A_PART = replace(_SHAPES["end"], title="Live when the recording ended")


def _told_by_a_full_recording(what: str) -> Callable[[Profile, str], Advice]:
    """Return advice that says what a sample, which has single objects, cannot know."""
    sentence = f"A sample does not show {what}: record it again without `--sample`."
    return lambda _profile, _trace: none(sentence)


def _told_as_usual(what: str) -> Callable[[Profile, str], Advice]:
    """Return advice that says what a recording of an interpreter's every object cannot know."""
    sentence = (
        "No advice: the interpreter allocated every object by malloc, which is unusual. Record the "
        f"program without `--objects` to learn {what}."
    )
    return lambda _profile, _trace: none(sentence)


def _kept_of_each_object(profile: Profile, trace: str) -> Advice:
    kept = memory.kept_after_peak(profile)
    if kept is None:
        return _told_as_usual("how much is resident")(profile, trace)
    without = "With the interpreter's own allocator, which was off here, less may be resident."
    return kept.model_copy(update={"sentence": f"{kept.sentence} {without}"})


# In place of these, where the interpreter's own allocator was off.
_OF_EACH_OBJECT = {
    "memory": _kept_of_each_object,
    "pinned": _told_as_usual("what its blocks pin"),
    "rounding": _told_as_usual("what rounding adds to its blocks"),
    "rate": _told_as_usual("what its calls cost"),
    "lifetimes": _told_as_usual("whether pools help"),
    "bursts": _told_as_usual("whether contexts help"),
    "sites": _told_as_usual("whether pools help"),
}
# In place of these: of blocks that follow each other a sample has one here and there.
_OF_A_SAMPLE = {
    "lifetimes": replace(
        _SHAPES["lifetimes"],
        advice=_told_by_a_full_recording("how much is allocated while a block lives"),
        table=tables.sampled_lifetimes,
    ),
    "bursts": _Shape(
        "Bursts",
        lambda _: ["Whether threads work in bursts is not known."],
        _told_by_a_full_recording("which allocations follow each other"),
    ),
    "pinned": _Shape(
        "Free memory pinned by live blocks",
        _pinned,
        _told_by_a_full_recording("which blocks lie on a page"),
    ),
    "realloc": _Shape(
        "Reallocation",
        _sampled_reallocs,
        _told_by_a_full_recording("how often a block is reallocated, and how often it is moved"),
    ),
    "sites": _Shape(
        "Call sites",
        _sampled_sites,
        _told_by_a_full_recording("whose blocks lie side by side, and so whether pools help"),
        tables.sampled_sites,
    ),
}
