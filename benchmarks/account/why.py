"""Which share of a real program's anonymous memory does `heapfit why` put under a cause?

The programs are those of ledger.py, under heapfit with control, at rest after some seconds of load.
Beside what the ledger says of heapfit's heap, `heapfit why` knows whose the other memory is: that
of a JVM or of V8 counts as put under a cause, though not more is known of it than that.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from account.common import Figures, Row, percent, say
from account.ledger import (
    AFTER,
    LEAST_SHARE,
    MOST_DIFFERENCE,
    PROGRAMS,
    TRIES,
    Scale,
    is_steady,
    kernels,
    missing,
)

# Of these no more is known than that the memory is there.
NO_CAUSE = ("mapped", "brk", "anonymous")


def looked_at(pid: int, why: Callable[[int], Figures]) -> Figures:
    """Compare what `heapfit why` says with what the kernel counts before and after. Where these
    differ, memory has come or gone meanwhile: then it is looked again, some times."""
    for _ in range(TRIES):
        before = kernels(pid)
        found = why(pid)
        after = kernels(pid)
        if is_steady({"smaps": [before.resident, after.resident]}):
            break
    parts = {each["cause"]: each["size"] for each in found["findings"] if not each["of_all"]}
    resident = (before.resident + after.resident) / 2
    without = sum(parts.get(each, 0) for each in NO_CAUSE)
    return {
        "smaps": [before.resident, after.resident],
        "share": round(1 - without / ((before.anonymous + after.anonymous) / 2), 4),
        "difference": round(abs(sum(parts.values()) - found["swapped"] - resident) / resident, 5),
        "causes": parts,
    }


def measure(folder: Path, why: Callable[[int], Figures]) -> Figures:
    """Look at real programs under heapfit, at rest after some seconds of load."""
    found: Figures = {}
    scale = Scale(seconds=2, looks=1)
    for name, program in PROGRAMS.items():
        if missing(program):
            say(f"{name} is left out: it is not installed")
            continue
        (folder / name).mkdir()
        for moment, pid in program.moments(folder / name, scale):
            if moment == AFTER:
                found[name] = one = looked_at(pid, why)
                say(f"{name}: {percent(one['share'])} has a cause; "
                    f"off smaps by {percent(one['difference'], 2)}")  # fmt: skip
    return found


def rows(found: Figures) -> list[Row]:
    """Return the lines of the table."""
    made = []
    for name, each in found.items():
        figure = f"`{name}` under heapfit: anonymous memory with a cause; off `smaps` by"
        goal = f"≥ {percent(LEAST_SHARE, 0)}; ≤ {percent(MOST_DIFFERENCE, 0)}"
        reached = each["share"] >= LEAST_SHARE and each["difference"] <= MOST_DIFFERENCE
        measured = f"{percent(each['share'])}; {percent(each['difference'], 2)}"
        made.append(Row(figure, goal, measured, reached))
    return made
