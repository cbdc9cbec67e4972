"""The recording itself: what ran, how it went, what is wrong with the file. One for each file.

The course of time is counted in steps, what each thread's objects did in each: once, for the course
of a recording and for its bursts; and with it, when the most was live.
"""

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from pathlib import Path

from heapfit.host.interpreters import hiding
from heapfit.host.program import STARTERS
from heapfit.profile.model import EIGHTHS, Amount, Course, Recording
from heapfit.profile.sections.sizes import END, PEAK, WIDTH
from heapfit.profile.tally import UNITS, Counted, Tally, amount, whole
from heapfit.profile.trace import IS_KNOWN, REALLOC, Info, Trace, live_at
from heapfit.text import capitalised, counted, join_words, size
from heapfit.trace.ending import ended_early
from heapfit.trace.native import Problems
from heapfit.trace.problems import sentences
from heapfit.trace.sites import parse_mappings

COURSE_STEPS = 1 << 10  # of a course, at most
# Of a recording, at most; the finest in which a burst can be seen. Where there are more threads
# than THREADS_FINE they are fewer, so that all threads' steps together fit into memory.
STEPS = 1 << 18
THREADS_FINE = 8

_MOST_FILES = 3  # are named
# The recorder looks at the memory when it begins; a later look may be of what is in the recording.
_FIRST_LOOK_NS = 10_000_000

# What libraries allocate before the recorder, at least, and of the peak.
_MENTIONED_BYTES, _MENTIONED = 1 << 20, 0.01

# So few older blocks are the C library's own, which nobody looks for.
_HANDFUL = 10

# With a larger relative error, the peak of a sample is called uncertain.
_LARGEST_ERROR = 0.5

_SUMS = ("noted_born", "born", "born_bytes", "reborn", "noted_died", "died", "died_bytes", "remote")


def count(trace: Trace, tally: Tally) -> None:
    """Add the recording; what is counted of it so far must be all that `tally` has."""
    summary, sizes = trace.summary, tally.total("sizes", WIDTH)
    course = _course(trace)
    early, late = ended_early(summary.end), summary.info.began_late
    resident = [each for each in course.resident if each is not None]
    # Looked at ten times a second at most, it may have been higher in between. Of a recording that
    # began late, what the kernel knows may be from before.
    ended = summary.end or {}
    resident += [ended["resident_most"]] if ended.get("resident_most") and not late else []
    taken = set(Recording.model_fields) & set(type(summary.info).model_fields)
    recording = Recording(
        **{name: getattr(summary.info, name) for name in taken},
        name=summary.file or trace.folder.name,
        duration_ns=summary.duration_ns,
        processor_ns=ended.get("processor_ns"),
        threads=sum(each.threads for each in trace.threads.values()),
        events=summary.totals.events,
        allocations=amount(sizes),
        peak=amount(sizes, PEAK),
        peak_ns=trace.peak_ns,
        rival_ns=trace.rival_ns,
        end=amount(sizes, END),
        resident_most=max(resident, default=None),
        problems=[
            *_of_others(summary.info),
            *(_began_late(_had_before(trace)) if late else _lacks(summary.info, sizes[PEAK + 1])),
            *sentences(summary.problems),
            *_older(0 if trace.sampled else summary.totals.unmatched_frees),
            *_few_noted(trace, amount(sizes, PEAK)),
            *_hidden(summary.info),
            *_changed(summary.changed),
            *_ended_before("" if summary.problems.cut_short else early),
        ],
        whole=summary.problems == Problems(),
        ended_early=bool(early),
        course=course,
        eighths_ns=_eighths_ns(trace),
    )
    mappings = parse_mappings(summary.modules)
    tally.recordings.append(
        Counted(
            recording,
            builds={each.path: each.build_id for each in mappings if each.build_id},
            sources=frozenset(
                Path(each.path.partition("\t")[0]).name
                for each in mappings
                if each.place(each.end) is not None
            ),
            changed=tuple(summary.changed),
        )
    )
    counts = summary.totals
    lost = summary.problems.lost_events
    unmatched = counts.unmatched_frees
    row = (counts.events, counts.failed, unmatched, lost, summary.duration_ns)
    tally.add("counts", (), (*row, unmatched - _unmatched_early(trace)))


def _unmatched_early(trace: Trace) -> int:
    """Return how many frees of older blocks are known to be of the first half of the work."""
    half = trace.summary.totals.allocations / 2
    [(early,)] = trace.query(
        f"SELECT max(unmatched_frees) FROM memory_table WHERE allocations <= {half}"
    )
    return int(early or 0)


def _eighths_ns(trace: Trace) -> tuple[int, ...]:
    rows = trace.query(
        f"SELECT {trace.allocated_part(EIGHTHS)} AS eighth, max(born_ns) FROM object "
        "GROUP BY eighth ORDER BY eighth"
    )
    return tuple(int(ns) for _, ns in rows)


def _had_before(trace: Trace) -> int | None:
    """Return the resident bytes of the process's own that were there when the recording began; None
    where nobody looked then."""
    rows = trace.query(
        "SELECT resident_anonymous - allocated_bytes FROM memory_table "
        f"WHERE resident_anonymous > 0 AND ns <= {_FIRST_LOOK_NS} ORDER BY ns LIMIT 1"
    )
    return max(int(rows[0][0]), 0) if rows else None


def _few_noted(trace: Trace, peak: Amount) -> list[str]:
    """What a sample cannot tell that has few blocks of the peak, or none."""
    if not trace.sampled or (peak.bytes and peak.bytes_error <= _LARGEST_ERROR * peak.bytes):
        return []
    from scipy.special import gammaincinv  # It takes a while, and most profiles need it not.

    [(noted,)] = trace.query(f"SELECT count(*) FROM object WHERE {trace.at_peak()}")
    each = peak.bytes / noted if noted and peak.bytes else trace.summary.info.sample
    # The upper end of the exact 95 % interval of a Poisson mean (Garwood, Biometrika 1936).
    most = float(gammaincinv(noted + 1, 0.975)) * each
    known = counted(noted, "block") if noted else "no block"
    return [
        f"The peak is uncertain: the sample has {known} of it, and up to {size(most)} may have "
        "been live. Record with a smaller --sample, or without it, to tell."
    ]


def _of_others(info: Info) -> list[str]:
    name = Path(info.program).name
    if name not in STARTERS:
        return []
    return [
        f"{capitalised(name)} runs other programs: heapfit record --attach-children records each "
        "into a file of its own."
    ]


def _hidden(info: Info) -> list[str]:
    found = hiding(info.program, info.environment)
    if found is None:
        return []
    return [capitalised(f"{found.keeps}, and these are not recorded: {found.instead}.")]


def _changed(paths: Sequence[str]) -> list[str]:
    files = [each for each in paths if not Path(each).name.startswith("libheapfit-record.")]
    if not files:
        return []
    return [
        f"{file_names(files)} changed after the recording began: its functions and lines there are "
        "not known any more, and addresses stand in their place. Before you rebuild a program, "
        "keep them: heapfit profile TRACE --keep FOLDER."
    ]


def file_names(files: Sequence[str]) -> str:
    """Return the names of the first of these files, and how many more there are.

    >>> file_names(["/bin/a", "/bin/b"])
    'a and b'
    """
    named = [Path(each).name for each in files[:_MOST_FILES]]
    if len(files) > _MOST_FILES:
        named.append(counted(len(files) - _MOST_FILES, "other file"))
    return join_words(named)


def _began_late(before: int | None) -> list[str]:
    there = f", when {size(before)} of its own memory was resident" if before else ""
    return [
        f"The recording started while the process was running{there}. Blocks allocated before that "
        "are not in these figures, though they may still be in use. To see everything, record the "
        "program from its start: heapfit record -- CMD."
    ]


def _lacks(info: Info, peak_bytes: int) -> list[str]:
    """What the constructors of libraries allocated before the recorder, where it is no trifle."""
    if info.live_before < max(_MENTIONED_BYTES, _MENTIONED * peak_bytes):
        return []
    return [
        f"Libraries allocated {size(info.live_before)} in their constructors before the recorder "
        "began. These blocks are in no figure here, and when they are freed, their allocations are "
        "missing."
    ]


def _ended_before(why: str) -> list[str]:
    if not why:
        return []
    return [
        f"The recording ended before the program did ({why}): what was live then may have been "
        "freed later."
    ]


def _older(unmatched: int) -> list[str]:
    """What is said of frees without an allocation. In a sample a block's reallocation is noted
    though the block was not."""
    if unmatched <= _HANDFUL:
        return []
    return [
        "Frees of blocks that are older than the recording, or whose allocation was lost: "
        f"{unmatched:,}. What was allocated before the recorder began, for example by the dynamic "
        "linker, is in no figure here."
    ]


def _course(trace: Trace) -> Course:
    duration = trace.summary.duration_ns
    bits = max(step_bits(duration, COURSE_STEPS), trace.step_bits)
    length = (duration >> bits) + 1
    rows = trace.query(
        f"SELECT step >> {bits - trace.step_bits} AS wide, sum(born), sum(born_bytes), sum(died), "
        "sum(died_bytes) FROM steps GROUP BY wide"
    )
    sums = [[0] * length for _ in range(4)]
    for step, *row in rows:
        for column, number in zip(sums, row, strict=True):
            column[min(step, length - 1)] += int(number)
    born, born_bytes, died, died_bytes = sums
    resident, anonymous = _resident(trace, bits, length)
    return Course(
        step_ns=1 << bits,
        allocations=list(map(whole, born)),
        allocated_bytes=list(map(whole, born_bytes)),
        frees=list(map(whole, died)),
        live_bytes=_live(born_bytes, died_bytes),
        live_objects=_live(born, died),
        resident=resident,
        resident_anonymous=anonymous,
    )


def _live(born: list[int], died: list[int]) -> list[int]:
    return list(map(whole, accumulate(map(sub, born, died))))


def _resident(trace: Trace, bits: int, length: int) -> tuple[list[int | None], list[int | None]]:
    columns: tuple[list[int | None], list[int | None]] = ([None] * length, [None] * length)
    rows = trace.query(
        f"SELECT CAST(ns AS BIGINT) >> {bits} AS step, max(resident), max(resident_anonymous) "
        "FROM memory_table WHERE resident IS NOT NULL GROUP BY step ORDER BY step"
    )
    for step, *found in rows:
        for column, most in zip(columns, found, strict=True):
            place = min(step, length - 1)
            column[place] = most if column[place] is None else max(column[place] or 0, most or 0)
    return columns


# ----------------------------------------------------------------- steps of time


def step_bits(duration_ns: int, steps: int) -> int:
    """Return the binary logarithm of the step, in ns, of which the duration has at most `steps`.

    >>> step_bits(1023, 1024), step_bits(1024, 1024), step_bits(10**9, 1024)
    (0, 1, 20)
    """
    return max(0, duration_ns.bit_length() - (steps.bit_length() - 1))


def count_steps(trace: Trace, tally: Tally) -> None:
    """Make the table `steps`, and find the time of the peak if nobody has noted it."""
    bits = step_bits(trace.summary.duration_ns, STEPS) + _coarser(len(trace.threads))
    reborn = trace.objects(f"born_kind = {REALLOC}")
    born = ("count(*)", trace.objects(), trace.total("size"), reborn, *["0"] * 4)
    died = (*["0"] * 4, "count(*)", trace.objects(), trace.total("size"), trace.objects("remote"))
    trace.make(
        "steps",
        f"SELECT thread, step, {_each('CAST(sum({0}) AS BIGINT) AS {0}')} FROM ("
        f"SELECT born_thread AS thread, born_ns >> {bits} AS step, {_named(born)} "
        "FROM object GROUP BY ALL UNION ALL "
        f"SELECT born_thread AS thread, died_ns >> {bits} AS step, {_named(died)} "
        "FROM object WHERE died_ns IS NOT NULL GROUP BY ALL) GROUP BY ALL",
    )
    trace.step_bits = bits
    _set_peak(trace)


def _coarser(threads: int) -> int:
    """Return how often steps are doubled for so many threads."""
    return max(0, (threads - 1).bit_length() - (THREADS_FINE - 1).bit_length())


def _peak_ns(trace: Trace) -> int:
    """Return when most bytes were live: as the reader saw it; of a sample, as it is estimated."""
    totals = trace.summary.totals
    if totals.peak_bytes and not trace.sampled:
        return totals.peak_ns
    found = trace.query(
        "SELECT step FROM (SELECT step, sum(sum(born_bytes - died_bytes)) OVER (ORDER BY step) "
        "AS live FROM steps GROUP BY step) ORDER BY live DESC, step LIMIT 1"
    )
    # Within a step blocks may have come and gone.
    found += trace.query(
        f"SELECT born_ns FROM object ORDER BY {'units * size' if trace.sampled else 'size'} DESC, "
        "born_ns LIMIT 1"
    )
    if not found:
        return 0
    moments: list[int] = [_end_of_step(trace, found[0][0]), found[1][0]]
    return max(moments, key=lambda ns: _bytes(trace, live_at(ns)))


def _end_of_step(trace: Trace, step: int) -> int:
    return ((step + 1) << trace.step_bits) - 1


# Parts of a sample, at random, since numbers that follow each other take turns in time.
_PARTS = 8
_PART = f"(hash(id) >> 20) % {_PARTS}"
# Two moments at which less than half is the same are two peaks; so many standard errors part them.
_THE_SAME, _ERRORS = 0.5, 3.0


def _set_peak(trace: Trace) -> None:
    """Set when most was live, and what corrects a sample's estimate of it.

    The highest of many estimates is one that chance has made too high, the more so the longer a
    recording is. So what is live is also estimated when all but one part of the sample have most.
    Where the parts disagree on when that is, this is too low: the truth is between the two.
    """
    trace.peak_ns = _peak_ns(trace)
    if not trace.sampled:
        return
    most, left = _bytes(trace, trace.at_peak()), _bytes(trace, "died_ns IS NULL")
    counted = _counted_apart(trace)
    if left >= counted:
        trace.peak_ns, most, counted = trace.summary.duration_ns, left, left
    _set_rival(trace, most)
    if counted < most:
        _correct(trace, most, counted)


def _bytes(trace: Trace, where: str) -> int:
    [(found,)] = trace.query(f"SELECT {trace.total('size', where)} FROM object")
    return int(found)


def _peaks_without_parts(trace: Trace) -> dict[int, int]:
    """Return, by part of the sample, when the other parts have most."""
    # What is known well is of all of them.
    parts = ((_PART, f"NOT {IS_KNOWN}", _PARTS), ("-1", IS_KNOWN, _PARTS - 1))
    changes = " UNION ALL ".join(
        f"SELECT {part} AS part, {when} >> {trace.step_bits} AS step, "
        f"{trace.total('size')} * {sign * factor} AS bytes FROM object "
        f"WHERE {when} IS NOT NULL AND {which} GROUP BY ALL"
        for part, which, factor in parts
        for when, sign in (("born_ns", 1), ("died_ns", -1))
    )
    live = "sum(sum(bytes)) OVER (PARTITION BY without ORDER BY step)"
    found = trace.query(
        f"SELECT without, step FROM (SELECT without, step, {live} AS live "
        f"FROM ({changes}), range({_PARTS}) parts(without) WHERE part <> without "
        "GROUP BY without, step) "
        "WHERE live > 0 "
        "QUALIFY row_number() OVER (PARTITION BY without ORDER BY live DESC, step) = 1"
    )
    return {part: _end_of_step(trace, step) for part, step in found}


def _counted_apart(trace: Trace) -> int:
    """Return what is live, on average, when all parts of the sample but one have most.

    An object of these others was there then, for certain. One that is of none of them is of the
    part with a probability of 1 / (PARTS * weight - PARTS + 1), and counts as so many. If the part
    alone were counted, few objects that take turns would be none.
    """
    found = _peaks_without_parts(trace)
    live = [live_at(found.get(part, trace.peak_ns)) for part in range(_PARTS)]
    average = f"({' + '.join(f'CAST({each} AS INTEGER)' for each in live)}) * {UNITS // _PARTS}"
    own = " ".join(f"WHEN {part} THEN {each}" for part, each in enumerate(live))
    in_all = f"{average} + CASE WHEN CASE {_PART} {own} END THEN units - {UNITS} ELSE 0 END"
    [(counted,)] = trace.query(f"SELECT coalesce(sum(size * ({in_all})), 0) FROM object")
    return int(counted)


def _correct(trace: Trace, most: int, counted: int) -> None:
    """Have what is live at the peak add up to what was counted, with an error that holds what was
    seen at most, too."""
    at_peak = f"NOT {IS_KNOWN} AND {trace.at_peak()}"
    [(known_less, spread)] = trace.query(
        f"SELECT {trace.total('size', at_peak)}, sum(bytes_spread) FILTER (WHERE {at_peak}) "
        "FROM object"
    )
    if not known_less:
        return
    factor = max(1 - (most - counted) / int(known_less), 0.0)
    gap = (most - counted) / UNITS
    trace.peak_factor = round(factor * UNITS)
    trace.peak_spread_factor = round((factor**2 + gap**2 / max(int(spread), 1)) * UNITS)


def _set_rival(trace: Trace, most: int) -> None:
    """Find the highest moment at which most is not what is live at the peak; if it is not clearly
    lower, the peak may have been then."""
    at_peak = trace.at_peak()
    changes = " UNION ALL ".join(
        f"SELECT {when} >> {trace.step_bits} AS step, {trace.total('size')} * {sign} AS bytes, "
        f"coalesce(sum(units * size) FILTER (WHERE {at_peak}), 0) * {sign} AS same FROM object "
        f"WHERE {when} IS NOT NULL GROUP BY ALL"
        for when, sign in (("born_ns", 1), ("died_ns", -1))
    )
    live, same = (f"sum(sum({each})) OVER (ORDER BY step)" for each in ("bytes", "same"))
    found = trace.query(
        f"SELECT step, live FROM (SELECT step, {live} AS live, {same} AS same FROM ({changes}) "
        f"GROUP BY step) WHERE same < {_THE_SAME} * {most} ORDER BY live DESC, step LIMIT 1"
    )
    if not found:
        return
    moment = _end_of_step(trace, found[0][0])
    [(spread,)] = trace.query(
        f"SELECT coalesce(sum(bytes_spread), 0) FROM object WHERE {at_peak} <> {live_at(moment)}"
    )
    if (most - int(found[0][1])) / UNITS <= _ERRORS * math.sqrt(spread):
        trace.rival_ns = moment


def _named(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{sql} AS {name}" for sql, name in zip(columns, _SUMS, strict=True))


def _each(form: str) -> str:
    return ", ".join(form.format(name) for name in _SUMS)
