"""Print the ledger of a process: what its resident memory is there for."""

from pathlib import PurePath
from typing import Any

from heapfit import text
from heapfit.cli.output import results, table
from heapfit.live import Ledger, figures
from heapfit.live.ledger import Cause, ThreadShare

# As many threads and files as are worth a look; --json has them all.
_MOST_ROWS = 8
_BY_THREAD = ("live", "pools", "pinned", "kept", "cached", "on_the_way")


def show_ledger(ledger: Ledger) -> None:
    """Print the causes, then which threads and files have most."""
    _show_causes(ledger)
    _show_threads(ledger.threads())
    _show_files(ledger.files())
    if not ledger.complete:
        results.print(
            "\nThis is incomplete: the process has no /proc, or no memory for looking further."
        )


def described_ledger(ledger: Ledger) -> dict[str, Any]:
    """Return it as plain data."""
    return {
        "resident": ledger.resident,
        "heap_resident": ledger.heap_resident,
        "complete": ledger.complete,
        "causes": [
            {
                "cause": each.name,
                "in_heap": each.in_heap,
                "resident": each.resident,
                "swapped": each.swapped,
            }
            for each in ledger.causes()
        ],
        "rows": ledger.rows,
    }


def _show_causes(ledger: Ledger) -> None:
    causes = ledger.causes()
    swapped = any(each.swapped for each in causes)
    columns = ("resident", "share", *(["swapped"] if swapped else []))
    rows = table("cause", *columns, "what it is", right=columns)
    for in_heap, name in ((True, "the heap"), (False, "outside")):
        part = [each for each in causes if each.in_heap is in_heap]
        whole = Cause(name, in_heap, sum(e.resident for e in part), sum(e.swapped for e in part))
        rows.add_row(*_cells(whole, ledger, name, "", swapped=swapped), style="bold")
        for each in part:
            rows.add_row(
                *_cells(each, ledger, f"  {_words(each.name)}", each.meaning, swapped=swapped)
            )
    whole = Cause("", True, ledger.resident, sum(each.swapped for each in causes))
    rows.add_row(*_cells(whole, ledger, "resident", "", swapped=swapped), style="bold")
    results.print(rows)


def _cells(cause: Cause, ledger: Ledger, name: str, meaning: str, *, swapped: bool) -> list[str]:
    share = figures.share(cause.resident / ledger.resident if ledger.resident else None)
    sizes = [text.size(cause.resident), share]
    return [name, *sizes, *([text.size(cause.swapped)] if swapped else []), meaning]


def _words(cause: str) -> str:
    return cause.replace("_", " ")


def _show_threads(threads: list[ThreadShare]) -> None:
    there = [cause for cause in _BY_THREAD if any(each.resident.get(cause) for each in threads)]
    if not there:
        return
    columns = [_words(cause) for cause in there]
    rows = table("thread", *columns, right=columns)
    own = [each for each in threads if each.heap >= 0]
    for each in [*own[:_MOST_ROWS], *threads[len(own) :]]:
        sizes = [text.size(each.resident.get(cause, 0)) for cause in there]
        rows.add_row(figures.thread(each.heap, each.thread), *sizes)
    results.print()
    results.print(rows)
    _say_others(len(own))


def _show_files(files: list[tuple[str, int]]) -> None:
    if not files:
        return
    rows = table("file", "resident", right=["resident"])
    for name, resident in files[:_MOST_ROWS]:
        rows.add_row(PurePath(name).name, text.size(resident))
    results.print()
    results.print(rows)
    _say_others(len(files))


def _say_others(there: int) -> None:
    if there > _MOST_ROWS:
        results.print(f"… and {there - _MOST_ROWS} more", style="dim")
