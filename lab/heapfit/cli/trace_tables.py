"""Print what `heapfit trace info` found."""

from collections.abc import Sequence

from heapfit.cli.output import results, table, warn
from heapfit.text import count, counted, size, visible
from heapfit.trace.convert import Summary, mean_sample
from heapfit.trace.native import Thread
from heapfit.trace.problems import sentences

# As many as a screen shows; --json has the others.
_MOST_THREADS = 24


def show(found: Summary, threads: Sequence[Thread]) -> None:
    """Print a trace's summary, its threads and its problems."""
    for line in [*_program(found), *_amount(found)]:
        results.print(visible(line))
    results.print()
    _print_threads(threads)
    for problem in sentences(found.problems):
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
