"""Print what is known of running processes, once, as tables."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from rich.table import Table

from heapfit import text
from heapfit.cli.ledger_tables import described_ledger
from heapfit.cli.output import results, table, warn
from heapfit.errors import HeapfitError
from heapfit.live import Client, Rates, Snapshot, figures, take
from heapfit.live.figures import Figure, Sheet

# As many heaps as a screen shows; --json has them all.
_MOST_ROWS = 24
_WIDE = 1000  # columns, more than any of these tables needs


def show_snapshot(snapshot: Snapshot, rates: Rates | None, every: bool = True) -> None:
    """Print what is known of a process, of classes, heaps and nodes where `every` figure is asked
    for; without rates what it did since its start."""
    results.print(_headline(snapshot), soft_wrap=True)
    activity = _pairs("activity", figures.activity(snapshot, rates))
    if rates is None:
        activity = _pairs("since the start", figures.since_start(snapshot))
    memory = _pairs("memory", figures.memory(snapshot))
    _print_beside(memory, activity, _named("active", figures.thresholds(snapshot)))
    if not every:
        results.print(
            "\n--all adds size classes, heaps and nodes; --json has every figure.", style="dim"
        )
        return
    for sheet in (figures.classes(snapshot), figures.heaps(snapshot, rates)):
        _print_largest(sheet)
    nodes = figures.nodes(snapshot)
    if nodes.rows:
        _print_largest(nodes)


def show_processes(clients: list[Client]) -> None:
    """Print a line for each process."""
    numbers = ("PID", "live", "resident", "footprint", "purges")
    rows = table(*numbers, "command", right=numbers)
    for each in clients:
        line = each.process.command_line
        rows.add_row(str(each.process.pid), *_main_figures(_taken(each)), line)
    results.print(rows)


def _taken(client: Client) -> Snapshot | None:
    try:
        return take(client)
    except HeapfitError:
        return None  # it does not answer, or has ended


def snapshots_of(
    clients: Iterable[Client], ledger_timeout_s: float | None = None
) -> Iterator[Snapshot]:
    """Yield what is known of each process; one that has ended since is told, and stops no other."""
    for client in clients:
        try:
            yield take(client, ledger_timeout_s)
        except HeapfitError as error:
            warn(str(error))


def described(snapshot: Snapshot) -> dict[str, Any]:
    """Return everything that is known of a process as plain data."""
    memory = snapshot.memory
    return {
        "pid": snapshot.process.pid,
        "command": list(snapshot.process.command),
        "stats": snapshot.stats,
        "options": snapshot.options,
        "memory": {"resident": memory.resident, "huge": memory.huge} if memory else None,
        **({"ledger": described_ledger(snapshot.ledger)} if snapshot.ledger else {}),
    }


def show_options(snapshot: Snapshot) -> None:
    """Print the options of a process."""
    results.print(_filled(figures.options(snapshot)))


def _headline(snapshot: Snapshot) -> str:
    state = ", shrunk: free memory is returned within milliseconds" if snapshot.stats.shrunk else ""
    process = snapshot.process
    return f"{process.pid} {process.command_line} (heapfit {snapshot.stats.version}{state})\n"


def _main_figures(snapshot: Snapshot | None) -> list[str]:
    if snapshot is None:
        return ["no answer", "", "", ""]
    total = snapshot.stats.total
    sizes = [total.live_bytes, total.resident, total.footprint]
    return [*map(text.size, sizes), text.count(total.purges)]


def _pairs(title: str, found: list[Figure]) -> Table:
    return _named(title, [(figure.name, figure.text) for figure in found])


def _print_beside(*tables: Table) -> None:
    """Print tables side by side, or one below the other where they would be cut."""
    beside = Table.grid(padding=(0, 2))
    beside.add_row(*tables)
    if results.measure(beside, options=results.options.update(max_width=_WIDE)).maximum > (
        results.width
    ):
        beside = Table.grid(padding=(0, 0, 1, 0))
        for each in tables:
            beside.add_row(each)
    results.print(beside)


def _named(title: str, pairs: list[tuple[str, str]]) -> Table:
    rows = table(title, "")
    rows.padding = (0, 1, 0, 0)  # The three of them just fit into 80 columns.
    rows.columns[1].justify = "right"
    for column in rows.columns:
        column.no_wrap = True
    for name, value in pairs:
        rows.add_row(name, value)
    return rows


def _print_largest(sheet: Sheet) -> None:
    """Print the rows that matter most, and say how many others there are."""
    by = sheet.columns.index(sheet.main)
    largest = sorted(sheet.rows, key=lambda row: row[by].value, reverse=True)[:_MOST_ROWS]
    results.print()
    results.print(_filled(replace(sheet, rows=largest)))
    others = len(sheet.rows) - len(largest)
    if others:
        results.print(f"… and {others} more", style="dim")


def _filled(sheet: Sheet) -> Table:
    rows = table(*sheet.columns, right=set(sheet.columns) - set(sheet.words))
    for row in sheet.rows:
        rows.add_row(*(cell.text for cell in row))
    return rows
