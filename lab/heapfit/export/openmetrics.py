"""The figures of processes as OpenMetrics, for a scraper such as Prometheus.

Each sample is labelled with the process's number and name. The processes are asked when they are
scraped, side by side: one that does not answer makes the others wait no longer than its timeout.
"""

import re
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from threading import Thread
from typing import Any, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from heapfit.errors import HeapfitError
from heapfit.export import pprof_page
from heapfit.host.proc import Gone, Process
from heapfit.live.client import LEDGER_TIMEOUT_S, Client
from heapfit.live.records import LiveOption
from heapfit.live.snapshot import Snapshot, take

# Well below the ten seconds that a scraper waits.
_TIMEOUT_S = 2.0
# What a scraper says of how long it waits, of which other requests may take a part.
_SCRAPE_TIMEOUT, _FOR_OTHERS_S = "HTTP_X_PROMETHEUS_SCRAPE_TIMEOUT_SECONDS", 4.0
_ledger_timeout_s = ContextVar("ledger_timeout_s", default=LEDGER_TIMEOUT_S)
_AT_ONCE = 16
_LABELS = ("pid", "command")

# Members of `hf_stats`: the name of the metric behind `heapfit_`, and what it is.
_GAUGES = {
    "live_bytes": (
        "live_bytes",
        "Objects that the program has not freed, and free blocks kept by other threads.",
    ),
    "live_objects": ("live_objects", "How many these are."),
    "large_bytes": ("large_bytes", "Live objects that have spans of their own."),
    "free_bytes": ("free_bytes", "Free blocks among live ones."),
    "cached_bytes": ("cached_bytes", "Free spans that threads keep for themselves."),
    "dirty_bytes": ("dirty_bytes", "Free shared spans not yet returned to the kernel."),
    "zeroed_bytes": ("zeroed_bytes", "Cleared spans that wait for calloc."),
    "own_bytes": ("own_bytes", "The tables of heapfit itself."),
    "context_bytes": ("context_bytes", "Address space of contexts."),
    "footprint": ("footprint_bytes", "Memory that may be resident because of heapfit."),
    "resident": ("resident_bytes", "Committed memory of the heap that is resident."),
    "committed": ("committed_bytes", "Address space that is accessible."),
    "reserved": ("reserved_bytes", "Address space that is reserved."),
    "huge_bytes": ("huge_bytes", "Committed memory for which huge pages were asked for."),
    "heaps_idle": ("heaps_idle", "Thread heaps that wait for a thread."),
    "orphan_spans": ("orphan_spans", "Spans with objects of threads that have exited."),
    "contexts": ("contexts", "Contexts that exist."),
    "threads_sharing": ("threads_sharing", "Threads that share heaps under a lock."),
}
_COUNTERS = {
    "purged": ("purged_bytes", "Memory returned to the kernel, touched or not."),
    "purges": ("purges", "System calls that returned memory."),
    "commits": ("commits", "System calls that made address space accessible."),
    "advices": ("advices", "System calls about huge pages."),
    "refills": ("refills", "How often a bin of a thread was empty and was filled again."),
    "remote_batches": ("remote_batches", "Lists of blocks handed over to another heap."),
    "remote_blocks": ("remote_blocks", "Blocks in these lists."),
    "zeroed_hits": ("zeroed_hits", "callocs that were given memory known to be zero."),
    "zeroed_misses": ("zeroed_misses", "callocs above 1 KiB that had to clear theirs."),
    "heaps": ("heaps_made", "Thread heaps made."),
    "guard_samples": ("guard_samples", "Objects that were put against an inaccessible page."),
}

Find = Callable[[], Iterable[Process]]
_Asked = tuple[Process, Snapshot | None]


class LiveCollector(Collector):
    """Asks the processes that `find` returns, anew at each scrape."""

    def __init__(self, find: Find, *, with_ledgers: bool) -> None:
        self._find = find
        self._with_ledgers = with_ledgers

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, with a sample for each process that there is."""
        ask = partial(self._ask, _ledger_timeout_s.get() if self._with_ledgers else None)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            asked = [each for each in pool.map(ask, self._find()) if each is not None]
        return _families(asked, with_ledgers=self._with_ledgers)

    @staticmethod
    def _ask(ledger_timeout_s: float | None, process: Process) -> _Asked | None:
        """Return what a process answers, nothing when it does not; None when it is gone."""
        try:
            return process, take(Client(process.pid, _TIMEOUT_S), ledger_timeout_s)
        except Gone:
            return None
        except HeapfitError:
            return process, None


def _families(asked: list[_Asked], *, with_ledgers: bool) -> Iterator[Metric]:
    """Yield the metrics of processes that were asked."""
    yield _up(asked)
    answered = [snapshot for _, snapshot in asked if snapshot]
    yield from _of_totals(answered)
    yield from _of_processes(answered)
    yield from _of_classes(answered)
    yield from _of_nodes(answered)
    yield _of_options(answered)
    if with_ledgers:
        yield from _of_ledgers(answered)


def text(find: Find, *, with_ledgers: bool = False) -> str:
    """Return what a scraper would be told now."""
    written: bytes = generate_latest(_registry(find, with_ledgers=with_ledgers))  # type: ignore[no-untyped-call]
    return written.decode()


def serve(
    find: Find, host: str, port: int, *, with_ledgers: bool = False
) -> tuple[WSGIServer, Thread]:
    """Serve the metrics, and profiles beside them, in threads of their own.

    OSError when the address cannot be listened at.
    """
    metrics = make_wsgi_app(_registry(find, with_ledgers=with_ledgers))
    served = _in_time(pprof_page.beside(metrics, find))
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    _Server.address_family, *_, address = socket.getaddrinfo(host, port, type=kind, flags=flags)[0]
    server = make_server(str(address[0]), port, served, _Server, _Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    return server, thread


class _Server(ThreadingWSGIServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Tell of errors, but for that of a client that leaves or says nothing in time."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(WSGIRequestHandler):
    timeout = 30  # seconds that it waits for a client; each has a thread and a descriptor

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _in_time(served: pprof_page.Application) -> pprof_page.Application:
    """Return an application that waits for ledgers as long as who asks it does."""

    def serve(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        said = environment.get(_SCRAPE_TIMEOUT, "")
        is_told = re.fullmatch(r"[0-9]+(\.[0-9]+)?", said)
        allowed = float(said) - _FOR_OTHERS_S if is_told else LEDGER_TIMEOUT_S
        _ledger_timeout_s.set(min(max(allowed, _TIMEOUT_S), LEDGER_TIMEOUT_S))
        return served(environment, start)

    return serve


def _registry(find: Find, *, with_ledgers: bool) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LiveCollector(find, with_ledgers=with_ledgers))
    return registry


# ------------------------------------------------------------------- the metrics


_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)


def _family(kind: type[_Family], name: str, what: str, *labels: str) -> _Family:
    unit = "bytes" if name.endswith("_bytes") else ""
    return kind(f"heapfit_{name}", what, labels=[*_LABELS, *labels], unit=unit)


_gauge = partial(_family, GaugeMetricFamily)
_counter = partial(_family, CounterMetricFamily)


def _who(process: Process) -> list[str]:
    return [str(process.pid), process.name]


def _up(asked: list[_Asked]) -> Metric:
    up = _gauge("up", "Whether the process answered.")
    for process, snapshot in asked:
        up.add_metric(_who(process), float(snapshot is not None))
    return up


def _of_totals(snapshots: list[Snapshot]) -> Iterator[Metric]:
    for make, table in ((_gauge, _GAUGES), (_counter, _COUNTERS)):
        for member, (name, what) in table.items():
            metric = make(name, what)
            for each in snapshots:
                metric.add_metric(_who(each.process), getattr(each.stats.total, member))
            yield metric


def _of_processes(snapshots: list[Snapshot]) -> Iterator[Metric]:
    shrunk = _gauge(
        "shrunk", "Whether free memory is returned within milliseconds, for the time being."
    )
    resident = _gauge("process_resident_bytes", "Resident memory of the whole process.")
    huge = _gauge("process_huge_bytes", "Memory of the process that huge pages back.")
    for each in snapshots:
        shrunk.add_metric(_who(each.process), float(each.stats.shrunk))
        if each.memory:
            resident.add_metric(_who(each.process), each.memory.resident)
            huge.add_metric(_who(each.process), each.memory.huge)
    yield from (shrunk, resident, huge)


def _of_classes(snapshots: list[Snapshot]) -> Iterator[Metric]:
    live = _gauge("class_live_objects", "Live objects by the size of their block.", "block_size")
    free = _gauge("class_free_objects", "Free blocks by their size.", "block_size")
    for each in snapshots:
        for row in (row for row in each.stats.classes if row.spans):
            labels = [*_who(each.process), str(row.block_size)]
            live.add_metric(labels, row.live_objects)
            free.add_metric(labels, row.free_objects)
    yield from (live, free)


def _of_nodes(snapshots: list[Snapshot]) -> Iterator[Metric]:
    dirty = _gauge("node_dirty_bytes", "Free spans by the NUMA node that they lie on.", "node")
    crossings = _counter("node_crossings", "Runs that went to another NUMA node.", "node")
    for each in snapshots:
        for row in each.stats.nodes:
            labels = [*_who(each.process), str(row.node)]
            dirty.add_metric(labels, row.dirty_bytes)
            crossings.add_metric(labels, row.crossings)
    yield from (dirty, crossings)


def _of_ledgers(snapshots: list[Snapshot]) -> Iterator[Metric]:
    metric = _gauge("ledger_bytes", "Resident memory by what it is there for.", "where", "cause")
    up = _gauge("ledger_up", "Whether the process gave its ledger while the scraper waited.")
    for each in snapshots:
        up.add_metric(_who(each.process), float(each.ledger is not None))
        for cause in each.ledger.causes() if each.ledger else []:
            where = "heap" if cause.in_heap else "outside"
            metric.add_metric([*_who(each.process), where, cause.name], cause.resident)
    yield from (metric, up)


def _of_options(snapshots: list[Snapshot]) -> Metric:
    metric = _gauge("option", "The active value of an option that is a number.", "name")
    for each in snapshots:
        for option in each.options:
            value = _number(option, option.in_force)
            if value is not None:
                metric.add_metric([*_who(each.process), option.name], value)
    return metric


def _number(option: LiveOption, value: str) -> float | None:
    """Return a value as a number, without a limit as infinity; None for a word."""
    if option.unlimited and value in ("unlimited", str(option.maximum)):
        return float("inf")
    return float(value) if option.kind != "choice" and value.isdecimal() else None
