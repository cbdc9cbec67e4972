"""Print what `heapfit trace info` found."""

from __future__ import annotations

import os
from collections.abc import Sequence

from heapfit.cli.output import results, table, warn
from heapfit.text import count, counted, size, visible
from heapfit.trace.convert import Summary, mean_sample
from heapfit.trace.native import NO_SITES, Problems, Thread

# As many as a screen shows; --json has the others.
_MOST_THREADS = 24


def show(found: Summary, threads: Sequence[Thread]) -> None:
    """Print a trace's summary, its threads and its problems."""
    for line in [*_program(found), *_amount(found)]:
        results.print(visible(line))
    results.print()
    _print_threads(threads)
    for problem in problems(found.problems):
        warn(problem)


def _program(found: Summary) -> list[str]:
    info = found.info
    command = " ".join(info.get("arguments", [])) or info.get("program") or "?"
    who = f"{command} (process {info.get('pid', '?')})"
    if info.get("anonymous"):
        who = "an anonymous program"
    lines = [f"{who}, recorded by heapfit {info.get('heapfit', '?')}"]
    sample = mean_sample(info)
    noted = f"one allocation in {size(sample)}" if sample else "every call"
    sites = f"{found.sites:,} call sites" if found.sites else "no call sites"
    allocator = f"; allocator {info['allocator']}" if info.get("allocator") else ""
    lines.append(f"noted: {noted}, {sites}{allocator}")
    if found.end:
        lines.append(f"ended: {found.end.get('reason', '?')}")
    return lines


def _amount(found: Summary) -> list[str]:
    totals, seconds = found.totals, found.duration_ns / 1e9
    rate = f", {count(totals.events / seconds)} a second" if seconds else ""
    return [
        f"{totals.events:,} events in {seconds:.3g} s{rate}, of {counted(found.threads, 'thread')}",
        f"{totals.allocations:,} allocations ({size(totals.bytes)}, {totals.reallocs:,} of them "
        f"reallocs), {totals.frees:,} frees",
        f"at most {size(totals.peak_bytes)} live in {counted(totals.peak_objects, 'block')} "
        f"(after {totals.peak_ns / 1e9:.3g} s), {size(totals.end_bytes)} in "
        f"{counted(totals.end_objects, 'block')} at the end",
    ]


def _print_threads(threads: Sequence[Thread]) -> None:
    shown = sorted(threads, key=lambda thread: -thread.events)[:_MOST_THREADS]
    rows = table("thread", "name", "tid", "events", "from", "to")
    for thread in shown:
        times = [f"{ns / 1e9:.3f} s" for ns in (thread.first_ns, thread.last_ns)]
        rows.add_row(
            str(thread.index), visible(thread.name), str(thread.tid), f"{thread.events:,}", *times
        )
    results.print(rows)
    if len(threads) > len(shown):
        results.print(f"… and {len(threads) - len(shown)} more; --json shows them", style="dim")


def problems(found: Problems) -> list[str]:
    """Return a sentence for each thing that is wrong with a file.

    >>> problems(Problems(lost_events=1, cut_short=True))
    ['1 event could not be kept while recording', 'the recording was cut short: it has no end']
    """
    numbers = {
        "{} of the file cannot be read and were skipped": found.damaged_bytes
        and counted(found.damaged_bytes, "byte"),
        "{}, which were left out": found.damaged_blocks
        and counted(found.damaged_blocks, "damaged block"),
        "{} of the file are missing": found.missing_blocks
        and counted(found.missing_blocks, "block"),
        "{} of a newer kind, which were left out": found.unknown_blocks
        and counted(found.unknown_blocks, "block"),
        "{} came too late to be put into the order of time": found.late_events
        and counted(found.late_events, "event"),
        "the clock went backwards at {}": found.backward_clocks
        and counted(found.backward_clocks, "event"),
        "{} could not be kept while recording": found.lost_events
        and counted(found.lost_events, "event"),
    }
    said = [sentence.format(what) for sentence, what in numbers.items() if what]
    if found.sites_limit:
        said.append(
            "there were too many chains of calls: later ones have no call site"
            if found.sites_limit == NO_SITES
            else "there were too many chains of calls: of later ones, only the innermost address "
            "is known; record with fewer --sites"
        )
    if found.gap_ns:
        seconds = found.gap_ns / 1e9
        said.append(
            f"nothing was recorded for {seconds:.3g} s between merged parts: blocks that were live "
            "then count as freed"
        )
    if found.cut_short:
        said.append("the recording was cut short: it has no end")
    if found.error:
        said.append(f"reading ended early: {os.strerror(found.error).lower()}")
    return said
