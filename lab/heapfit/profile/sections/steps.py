"""The course of time in steps: what each thread's objects did in each. Counted once, for the course
of a recording and for its bursts; and with it, when the most was live.
"""

from __future__ import annotations

from heapfit.profile.tally import Tally
from heapfit.profile.trace import REALLOC, Trace

# Of a recording, at most; the finest in which a burst can be seen. Where there are more threads
# than THREADS_FINE they are fewer, so that all threads' steps together fit into memory.
STEPS = 1 << 18
THREADS_FINE = 8

_SUMS = ("noted_born", "born", "born_bytes", "reborn", "noted_died", "died", "died_bytes", "remote")


def step_bits(duration_ns: int, steps: int) -> int:
    """Return the binary logarithm of the step, in ns, of which the duration has at most `steps`.

    >>> step_bits(1023, 1024), step_bits(1024, 1024), step_bits(10**9, 1024)
    (0, 1, 20)
    """
    return max(0, duration_ns.bit_length() - (steps.bit_length() - 1))


def count(trace: Trace, tally: Tally) -> None:
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
