"""`heapfit top`: watch running processes in the terminal."""

import os
import time
from typing import Annotated

import typer

from heapfit.cli.arguments import AsJson, process_number, seconds
from heapfit.cli.commands import new_app
from heapfit.cli.live_tables import described, show_processes, show_snapshot, snapshots_of
from heapfit.cli.output import print_json
from heapfit.errors import UsageError
from heapfit.live import Client, rates_between, some_clients, take

app = new_app()

_LEAST_INTERVAL_S = 0.1


@app.command(epilog="Example:  heapfit top 12345 --interval 0.5")
def top(
    pid: Annotated[
        str | None,
        typer.Argument(
            metavar="PID",
            help="A process, by ID or name. Default: the only one with control:on; asks if there "
            "are several.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(metavar="SECONDS", callback=seconds, help="Seconds between two samples."),
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print the figures of one interval and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Watch the heap of a running process: memory, rates, thresholds, size classes and threads.

    Key s shrinks the heap, r restores it, p pauses, q quits. The process must be yours, and started
    by heapfit run --control, or with control:on among its HEAPFIT_OPTIONS.
    """
    if interval < _LEAST_INTERVAL_S:
        raise UsageError(f"--interval {interval:g} is too short; at least {_LEAST_INTERVAL_S} s")
    clients = [Client(process_number(pid))] if pid else some_clients()
    if as_json:
        snapshots = [take(clients[0])] if pid else snapshots_of(clients)
        print_json([described(each) for each in snapshots])
    elif once:
        _print(clients, interval)
    else:
        _watch(clients, interval)


def _print(clients: list[Client], interval_s: float) -> None:
    if len(clients) > 1:
        show_processes(clients)
        return
    before = take(clients[0])
    time.sleep(interval_s)
    now = take(clients[0])
    show_snapshot(now, rates_between(before.stats, now.stats))


def _watch(clients: list[Client], interval_s: float) -> None:
    if not all(map(os.isatty, range(3))):
        raise UsageError("top needs a terminal; to print the figures: heapfit top --once")
    if len(clients) == 1:
        clients[0].stats()  # What is wrong is told before the screen is taken.
    from heapfit.live.top import TopApp

    TopApp(clients[0] if len(clients) == 1 else None, interval_s).run()
