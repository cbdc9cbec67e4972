"""The recording itself: what ran, how it went, what is wrong with the file. One for each file.

The course of time is counted in steps, what each thread's objects did in each: once, for the course
of a recording and for its bursts; and with it, when the most was live.
"""

from __future__ import annotations

from itertools import accumulate
from operator import sub

from heapfit.profile.model import Course, Recording
from heapfit.profile.sections.sizes import END, PEAK, WIDTH
from heapfit.profile.tally import Counted, Tally, amount, whole
from heapfit.profile.trace import REALLOC, Trace
from heapfit.trace.native import NO_SITES, Problems

COURSE_STEPS = 1 << 10  # of a course, at most
# Of a recording, at most; the finest in which a burst can be seen. Where there are more threads
# than THREADS_FINE they are fewer, so that all threads' steps together fit into memory.
STEPS = 1 << 18
THREADS_FINE = 8

_SUMS = ("noted_born", "born", "born_bytes", "reborn", "noted_died", "died", "died_bytes", "remote")


def count(trace: Trace, tally: Tally) -> None:
    """Add the recording; what is counted of it so far must be all that `tally` has."""
    summary, sizes = trace.summary, tally.total("sizes", WIDTH)
    course = _course(trace)
    resident = [each for each in course.resident if each is not None]
    taken = set(Recording.model_fields) & set(type(summary.info).model_fields)
    recording = Recording(
        **{name: getattr(summary.info, name) for name in taken},
        name=summary.file or trace.folder.name,
        duration_ns=summary.duration_ns,
        threads=sum(each.threads for each in trace.threads.values()),
        events=summary.totals.events,
        allocations=amount(sizes),
        peak=amount(sizes, PEAK),
        peak_ns=trace.peak_ns,
        end=amount(sizes, END),
        resident_most=max(resident, default=None),
        problems=problems(summary.problems, summary.totals.unmatched_frees),
        course=course,
    )
    tally.recordings.append(Counted(recording))
    counts = summary.totals
    lost = summary.problems.lost_events
    row = (counts.events, counts.failed, counts.unmatched_frees, lost, summary.duration_ns)
    tally.add("counts", (), row)


def problems(found: Problems, unmatched: int) -> list[str]:
    """Return what is wrong with a file, a sentence each."""
    told = (
        (found.cut_short, "The recording was cut short: what followed its last block is lost."),
        (
            found.damaged_blocks or found.damaged_bytes,
            f"{found.damaged_blocks:,} damaged blocks and {found.damaged_bytes:,} bytes between "
            "blocks were passed over.",
        ),
        (found.unknown_blocks, f"{found.unknown_blocks:,} blocks are of kinds unknown here."),
        (
            found.sites_limit,
            "There were more chains of calls than the recorder keeps: "
            + (
                "later ones have no site"
                if found.sites_limit == NO_SITES
                else "of later ones only the innermost address is known"
            )
            + ". Record with fewer --sites to have all.",
        ),
        (found.lost_events, f"The recorder could not keep {found.lost_events:,} events."),
        (found.late_events, f"{found.late_events:,} events came late: their time is inexact."),
        (found.backward_clocks, f"The clock went backwards {found.backward_clocks:,} times."),
        (
            unmatched,
            f"{unmatched:,} freed blocks are older than the recording, or their birth is lost.",
        ),
    )
    return [sentence for wrong, sentence in told if wrong]


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
    trace.peak_ns = _peak_ns(trace)


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
    return ((found[0][0] + 1) << trace.step_bits) - 1 if found else 0


def _named(columns: tuple[str, ...]) -> str:
    return ", ".join(f"{sql} AS {name}" for sql, name in zip(columns, _SUMS, strict=True))


def _each(form: str) -> str:
    return ", ".join(form.format(name) for name in _SUMS)
