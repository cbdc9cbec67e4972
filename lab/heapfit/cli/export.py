"""`heapfit export`: the figures of running processes, for a scraper."""

import errno
import os
import signal
import socket
from collections.abc import Iterator
from typing import Annotated

import typer

from heapfit.cli.arguments import AsJson, process_number
from heapfit.cli.commands import new_app
from heapfit.cli.live_tables import described, snapshots_of
from heapfit.cli.output import print_json, say
from heapfit.errors import HeapfitError, UsageError
from heapfit.host.proc import Process, find
from heapfit.live import Client, Snapshot, all_clients, listening, take
from heapfit.live.client import LEDGER_TIMEOUT_S

app = new_app()

# As registered for exporters of Prometheus: none has it.
_PORT = 9464
_ENDS = (signal.SIGTERM, signal.SIGINT)


@app.command(epilog="Example:  heapfit export --prometheus --port 9464")
def export(
    pids: Annotated[
        list[str] | None,
        typer.Argument(metavar="PID...", help="Default: every process of yours with control:on."),
    ] = None,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Serve OpenMetrics at http://HOST:PORT/metrics.")
    ] = False,
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="The address to listen on; anybody who can reach it can read the figures.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="The port to listen on; 0 picks a free one."
        ),
    ] = _PORT,
    once: Annotated[
        bool, typer.Option("--once", help="Print what would be served now and exit.")
    ] = False,
    ledger: Annotated[
        bool,
        typer.Option(
            "--ledger",
            help="Also serve the ledger of resident memory, which scans all of it each time.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Serve the figures of running processes to a scraper, until SIGTERM or Ctrl-C.

    Processes that start later are included, and those that have ended are left out. With --json
    the figures are printed once. In addition to the metrics, the live heap profiles of processes
    that take samples (the option sample) are at /debug/pprof/heap?pid=PID, for go tool pprof.
    """
    if not prometheus and not as_json:
        raise UsageError("in which form? write: heapfit export --prometheus, or --json")
    numbers = [*dict.fromkeys(process_number(pid) for pid in pids or [])]  # each once
    if as_json:
        print_json(
            [
                described(snapshot)
                for snapshot in _snapshots(numbers, LEDGER_TIMEOUT_S if ledger else None)
            ]
        )
        return
    for number in numbers:
        Client(number).stats()  # Told now, where somebody sees it, rather than to the scraper.
    if once:
        _print(numbers, with_ledgers=ledger)
    else:
        _serve(numbers, host, port, with_ledgers=ledger)


def _snapshots(numbers: list[int], ledger_timeout_s: float | None) -> Iterator[Snapshot]:
    """Yield what is known of each process: of those named, or of all that listen."""
    if numbers:
        yield from (take(Client(number), ledger_timeout_s) for number in numbers)
        return
    yield from snapshots_of(all_clients(), ledger_timeout_s)


def _found(numbers: list[int]) -> list[Process]:
    """Return the processes to ask now: those named that are still there, or all that listen."""
    if not numbers:
        return listening()
    return [process for number in numbers if (process := find(number))]


def _print(numbers: list[int], *, with_ledgers: bool) -> None:
    from heapfit.export import openmetrics

    print(openmetrics.text(lambda: _found(numbers), with_ledgers=with_ledgers), end="")


def _serve(numbers: list[int], host: str, port: int, *, with_ledgers: bool) -> None:
    from heapfit.export import openmetrics

    # Blocked before any thread is made, so that they all are, and the signal comes to us.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    try:
        server, thread = openmetrics.serve(
            lambda: _found(numbers), host, port, with_ledgers=with_ledgers
        )
    except OSError as error:
        raise _cannot_listen(error, host, port) from error
    say(f"serving http://{_address(host, server.server_port)}/metrics; Ctrl-C ends it")
    signal.sigwait(_ENDS)
    server.shutdown()
    server.server_close()
    thread.join()
    os._exit(0)  # Whoever is being asked would be waited for, as long as a ledger may take.


def _cannot_listen(error: OSError, host: str, port: int) -> HeapfitError:
    if isinstance(error, socket.gaierror):
        return UsageError(f"--host {host}: there is no such address")
    advice = {
        errno.EADDRINUSE: "it is in use; choose another by --port",
        errno.EACCES: "ports below 1024 are for root; choose another by --port",
        errno.EADDRNOTAVAIL: "this machine does not have that address; choose another by --host",
    }.get(error.errno or 0, str(error))
    return HeapfitError(f"cannot listen at {_address(host, port)}: {advice}")


def _address(host: str, port: int) -> str:
    """As a URL has it.

    >>> _address("127.0.0.1", 9464), _address("::1", 9464)
    ('127.0.0.1:9464', '[::1]:9464')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
