"""Bursts: periods in which a thread allocates, and at whose end nearly all of that is free again.

A server's request and a compiler's function look like that: a transaction heap could free it all at
once. The number of live objects that a thread has allocated is followed in steps of time; where it
rises by `rise` or more and then falls back by SURVIVAL of that, there may be a burst. Small ripples
ride on large waves, so this is tried for rises of 64, 128, 256, ...: of those scales at which the
objects themselves confirm it (all but a tenth of those born in bursts die in the same burst), the
one is taken that explains most allocations, and of equally good ones the largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heapfit.profile.bins import life_bin, life_bounds
from heapfit.profile.model import EXAMPLES, Burst, Bursts, Transactions
from heapfit.profile.sections.recording import STEPS
from heapfit.profile.sections.sizes import thread_names, thread_sums
from heapfit.profile.tally import UNITS, Example, Key, Tally, share
from heapfit.profile.trace import OTHERS, Trace

FALL = 0.9  # of the rise, at least, that ends a burst
SURVIVORS = 0.1  # of the objects born in bursts, at most
LEAST_RISE = 64  # objects: less is everyday coming and going
LEAST_BURSTS = 3  # what happens twice is no rhythm yet
LEAST_SHARE = 0.1  # of a thread's allocations; less is not worth a word
NEARLY_BEST = 0.9  # of the best scale's share: as good
SCALES = 6  # that the objects are asked about
PLACES = 2 * STEPS  # more than the steps of a thread

# Places in a row of the table `bursts`; all but the first in UNITS, times in ns.
_N, _BORN, _BYTES, _DIED, _REMOTE, _REBORN, _RISE_BYTES, _DURATION, _DIED_WITHIN = range(9)

Ints = NDArray[np.int64]


class Turn(NamedTuple):
    """A lowest or highest number of live objects, and the first and last step that has it."""

    live: int
    first: int
    last: int


@dataclass
class Scale:
    """The bursts of a thread at one scale: from the step after `start` to the step `end`."""

    thread: int
    starts: Ints
    ends: Ints
    born: int = 0  # in them, as noted
    died_within: int = 0  # of these, in the same burst
    died_within_units: int = 0  # the objects that these stand for


@dataclass(frozen=True)
class Steps:
    """A thread's steps that have events, in order, and sums from the first to each."""

    step: Ints
    live: Ints  # as noted, at the step's end
    noted: Ints  # born, as noted
    sums: dict[str, Ints]


def count(trace: Trace, tally: Tally) -> None:
    """Find each thread's bursts and add them up."""
    threads = {index: _steps(trace, index) for index in trace.threads if index != OTHERS}
    chosen = {index: scales(index, steps) for index, steps in threads.items()}
    _ask_objects(trace, threads, [scale for each in chosen.values() for scale in each])
    for index, candidates in chosen.items():
        scale = best(candidates)
        if scale is not None:
            _add(trace, tally, threads[index], scale)


def _steps(trace: Trace, thread: int) -> Steps:
    names = ("born", "born_bytes", "reborn", "died", "died_bytes", "remote")
    found = trace.connection.execute(
        f"SELECT step, noted_born - noted_died AS live, noted_born, {', '.join(names)} "
        f"FROM steps WHERE thread = {thread} ORDER BY step"
    ).fetchnumpy()
    sums = {name: np.cumsum(found[name].astype(np.int64)) for name in names}
    live, noted = (np.cumsum(found[name].astype(np.int64)) for name in ("live", "noted_born"))
    return Steps(found["step"].astype(np.int64), live, noted, sums)


# ----------------------------------------------------------------- shapes


def scales(thread: int, steps: Steps) -> list[Scale]:
    """Return the scales at which the number of live objects looks like bursts, the best first."""
    turns, rise = extremes(steps.live), LEAST_RISE
    found: list[Scale] = []
    while turns and max(turn.live for turn in turns) - min(turn.live for turn in turns) >= rise:
        turns = turning_points(turns, rise)
        starts, ends = falls(turns)
        scale = Scale(thread, starts, ends)
        scale.born = _within(steps.noted, scale)
        if len(starts) >= LEAST_BURSTS and scale.born >= LEAST_SHARE * steps.noted[-1]:
            found.append(scale)
        rise *= 2
    found.sort(key=lambda scale: -scale.born)
    return found[:SCALES]


def _until(sums: Ints, places: Ints) -> Ints:
    """Return the sums up to those places, where -1 stands for before everything."""
    return np.where(places < 0, 0, sums[np.maximum(places, 0)])


def _within(sums: Ints, scale: Scale) -> int:
    """Return what the sums grow by within bursts."""
    return int((_until(sums, scale.ends) - _until(sums, scale.starts)).sum())


def extremes(live: Ints) -> list[Turn]:
    """Return the start, every lowest and highest value, and the end of a course that begins at 0.

    >>> [turn.live for turn in extremes(np.array([1, 3, 3, 2, 5]))]
    [0, 3, 2, 5]
    """
    values = np.concatenate(([0], live))
    changed = np.concatenate(([True], values[1:] != values[:-1]))
    first = np.flatnonzero(changed)
    last = np.concatenate((first[1:], [len(values)])) - 1
    level = values[first]
    rising = np.diff(level) > 0
    keep = np.ones(len(level), bool)
    keep[1:-1] = rising[:-1] != rising[1:]
    rows = zip(level[keep], first[keep] - 1, last[keep] - 1, strict=True)
    return [Turn(int(a), int(b), int(c)) for a, b, c in rows]


def turning_points(turns: Sequence[Turn], rise: int) -> list[Turn]:
    """Return those of `turns` between which the course goes up and down by `rise` or more; the
    first and the last may be less.

    >>> [turn.live for turn in turning_points(extremes(np.array([9, 8, 9, 1, 8])), 5)]
    [0, 9, 1, 8]
    """
    kept: list[Turn] = []
    low = high = turns[0]  # A course begins at 0 and is never below.
    upwards = False
    for turn in turns[1:]:
        if upwards:
            high = _further(high, turn, turn.live > high.live)
            if high.live - turn.live >= rise:
                kept.append(high)
                upwards, low = False, turn
        else:
            low = _further(low, turn, turn.live < low.live)
            if turn.live - low.live >= rise:
                kept.append(low)
                upwards, high = True, turn
    return [*kept, high if upwards else low]


def _further(old: Turn, new: Turn, beyond: bool) -> Turn:
    """Return the further of two extremes; of equal ones, one from the first to the last."""
    if beyond:
        return new
    return Turn(old.live, old.first, new.last) if new.live == old.live else old


def falls(turns: Sequence[Turn]) -> tuple[Ints, Ints]:
    """Return the places before which bursts begin and at which they end, -1 for the beginning."""
    starts, ends = [], []
    for low, high, after in zip(turns, turns[1:], turns[2:], strict=False):
        if low.live < high.live and high.live - after.live >= FALL * (high.live - low.live):
            starts.append(low.last)
            ends.append(after.first)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def best(candidates: Sequence[Scale]) -> Scale | None:
    """Return the scale that is confirmed by its objects and explains most."""
    good = [each for each in candidates if each.died_within >= (1 - SURVIVORS) * each.born]
    most = max((each.born for each in good), default=0)
    nearly = [each for each in good if each.born >= NEARLY_BEST * most]
    return min(nearly, key=lambda each: len(each.starts), default=None)


# ----------------------------------------------------------------- objects


def _ask_objects(trace: Trace, threads: dict[int, Steps], candidates: list[Scale]) -> None:
    """Count of each scale the objects that die in the burst in which they are born."""
    if not candidates:
        return
    _make_numbers(trace, threads, candidates)
    width = max(sum(c.thread == s.thread for c in candidates) for s in candidates)
    inside = [f"b.s{i} > 0 AND b.s{i} = d.s{i}" for i in range(width)]
    columns = ", ".join(f"count(*) FILTER (WHERE {each}), {trace.objects(each)}" for each in inside)
    bits = trace.step_bits
    rows = trace.query(
        f"SELECT born_thread, {columns} FROM object "
        f"JOIN numbers b ON b.place = {_place('born_thread', f'(born_ns >> {bits})')} "
        f"JOIN numbers d ON d.place = {_place('born_thread', f'(died_ns >> {bits})')} "
        "GROUP BY ALL"
    )
    for thread, *counts in rows:
        own = [scale for scale in candidates if scale.thread == thread]
        for i, scale in enumerate(own):
            scale.died_within = int(counts[2 * i])
            scale.died_within_units = int(counts[2 * i + 1])


def _place(thread: str, step: str) -> str:
    """Return thread and step as one number: two columns to join by would have DuckDB join the steps
    of a thread with each other first, since they have the thread in common."""
    return f"(CAST({thread} AS BIGINT) * {PLACES} + {step})"


def _make_numbers(trace: Trace, threads: dict[int, Steps], candidates: list[Scale]) -> None:
    """Make the table `numbers`: of each step, the number of its burst at each scale, or 0."""
    import pyarrow as pa

    width = max(sum(c.thread == s.thread for c in candidates) for s in candidates)
    parts = []
    for thread in dict.fromkeys(scale.thread for scale in candidates):
        steps = threads[thread]
        own = [scale for scale in candidates if scale.thread == thread]
        columns = [numbered(len(steps.step), scale) for scale in own]
        columns += [np.zeros(len(steps.step), np.int32)] * (width - len(own))
        inside = np.any(np.stack(columns), axis=0)
        of_scales = {f"s{i}": column[inside] for i, column in enumerate(columns)}
        parts.append(pa.table({"place": thread * PLACES + steps.step[inside], **of_scales}))
    trace.connection.register("numbers", pa.concat_tables(parts))


def numbered(length: int, scale: Scale) -> NDArray[np.int32]:
    """Return for each of `length` steps the number of the burst that it is in, from 1, or 0."""
    numbers = np.zeros(length, np.int32)
    for number, (start, end) in enumerate(zip(scale.starts, scale.ends, strict=True), 1):
        numbers[start + 1 : end + 1] = number
    return numbers


# ----------------------------------------------------------------- sums


def _add(trace: Trace, tally: Tally, steps: Steps, scale: Scale) -> None:
    """Add a thread's bursts to the tally."""
    key = trace.thread_key(scale.thread)
    within = {name: _within(sums, scale) for name, sums in steps.sums.items()}
    starts, ends = _times(trace, steps, scale)
    live = steps.sums["born_bytes"] - steps.sums["died_bytes"]
    rises = [
        int(live[start + 1 : end + 1].max()) - int(_until(live, np.array([start]))[0])
        for start, end in zip(scale.starts, scale.ends, strict=True)
    ]
    row = (
        len(scale.starts),
        *(within[name] for name in ("born", "born_bytes", "died", "remote", "reborn")),
        sum(rises),
        int((ends - starts).sum()),
        scale.died_within_units,
    )
    tally.add("bursts", key, row)
    for duration in map(int, ends - starts):
        tally.add("burst_durations", (key, life_bin(duration)), (1,))
        tally.raise_to("bursts", key, (duration,))
    if tally.recordings:
        first = zip(starts[:EXAMPLES], ends[:EXAMPLES], strict=True)
        tally.recordings[-1].examples += [Example(key, int(a), int(b)) for a, b in first]


def _times(trace: Trace, steps: Steps, scale: Scale) -> tuple[Ints, Ints]:
    """Return when bursts begin, with the first step that is in them, and when their last ends."""
    starts = steps.step[scale.starts + 1] << trace.step_bits
    ends = (steps.step[scale.ends] + 1) << trace.step_bits
    return starts, ends


def finish(tally: Tally) -> Transactions:
    """Return the bursts of each thread, as means over them."""
    allocated = thread_sums(tally)
    table = tally.sums["bursts"]
    names = thread_names(tally)
    leading = sorted(table, key=lambda key: (-table[key][_BORN], key))
    places = {key: i for i, key in enumerate(leading)}
    everything = sum(row[0] for row in allocated.values())
    return Transactions(
        threads=[_bursts(tally, names[key], key, allocated[key][0]) for key in leading],
        examples=[
            Burst(
                thread=places[each.thread], recording=i, start_ns=each.start_ns, end_ns=each.end_ns
            )
            for i, counted in enumerate(tally.recordings)
            for each in counted.examples
        ][:EXAMPLES],
        share=share(sum(row[_BORN] for row in table.values()), everything),
    )


def _bursts(tally: Tally, name: str, key: Key, allocated: int) -> Bursts:
    row = tally.sums["bursts"][key]
    number = row[_N]
    mean = [sums / UNITS / number for sums in row]
    survivors = row[_BORN] - row[_DIED_WITHIN]
    return Bursts(
        thread=name,
        bursts=number,
        share=share(row[_BORN], allocated),
        allocations=mean[_BORN],
        bytes=mean[_BYTES],
        frees=mean[_DIED],
        reallocs=mean[_REBORN],
        most_live_bytes=mean[_RISE_BYTES],
        duration_ns=row[_DURATION] / number,
        duration_median_ns=_median_duration(tally, key),
        duration_most_ns=tally.most["bursts"][key][0],
        survivors=survivors / UNITS / number,
        survivor_share=share(survivors, row[_BORN]),
        remote_share=share(row[_REMOTE], row[_DIED]),
    )


def _median_duration(tally: Tally, key: Key) -> float:
    bins = {
        bounds: row[0]
        for (thread, bounds), row in tally.sums["burst_durations"].items()
        if thread == key
    }
    below, half = 0, sum(bins.values()) / 2
    for number in sorted(bins):
        below += bins[number]
        if below >= half:
            return sum(life_bounds(number)) / 2
    return 0.0
