"""What a scraper reads, read back by the reference parser of OpenMetrics."""

from __future__ import annotations

import json
import math
import os
import socket
from urllib.request import Request, urlopen

import pytest
from heapfit.errors import HeapfitError
from heapfit.export import openmetrics, pprof_page
from heapfit.host.proc import Process, find
from live_double import MIB, Double
from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

ME = os.getpid()


def me() -> list[Process]:
    found = find(ME)
    assert found is not None
    return [found]


def scraped(**options: bool) -> dict[str, Metric]:
    text = openmetrics.text(me, **options)
    assert text.endswith("# EOF\n")
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(family: Metric, **labels: str) -> float:
    (found,) = [each for each in family.samples if labels.items() <= each.labels.items()]
    return float(found.value)


def test_options_are_the_values_in_force(double: Double) -> None:
    options = scraped()["heapfit_option"]
    assert value(options, name="thread_span_threshold") == 4194304
    assert value(options, name="decay_ms") == 500
    assert math.isinf(value(options, name="free_page_threshold"))
    assert not any(each.labels["name"] == "huge_pages" for each in options.samples)
    double.shrunk = True
    families = scraped()
    assert value(families["heapfit_option"], name="decay_ms") == 10
    assert value(families["heapfit_shrunk"]) == 1


@pytest.mark.parametrize("said", [10**400, -1])
def test_a_figure_that_no_library_gives_is_no_obstacle_to_the_others(
    double: Double, said: int
) -> None:
    figures = double.stats()
    figures["total"]["live_bytes"] = said
    double.behave = lambda _: json.dumps({"ok": True, "stats": figures}).encode() + b"\n"
    families = scraped()
    assert value(families["heapfit_up"]) == 0
    assert families["heapfit_live_bytes"].samples == []


def test_a_scraper_gets_the_ledger_if_it_is_asked_for(double: Double) -> None:
    assert "heapfit_ledger_bytes" not in scraped()
    ledger = scraped(with_ledgers=True)["heapfit_ledger_bytes"]
    assert value(ledger, where="heap", cause="live") == 60 * MIB
    assert value(ledger, where="outside", cause="file") == 5 * MIB


def test_a_ledger_that_is_not_given_in_time_is_told_of(double: Double) -> None:
    assert "heapfit_ledger_up" not in scraped()
    assert value(scraped(with_ledgers=True)["heapfit_ledger_up"]) == 1
    double.behave = lambda asked: None if asked == "ledger" else double.answer(asked)
    families = scraped(with_ledgers=True)
    assert value(families["heapfit_ledger_up"]) == 0
    assert value(families["heapfit_up"]) == 1


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/debug/pprof/heap", "404", "there is no such process to ask"),
        ("GET", "/debug/pprof/allocs", "404", "there is only /debug/pprof/heap"),
        ("HEAD", "/debug/pprof/heap", "405", "use OPTIONS or GET"),
        ("GET", "/debug", "200", ""),
        ("GET", "/metrics", "200", ""),
    ],
)
def test_a_profile_that_there_is_not_is_neither_metrics_nor_worked_for(
    method: str, path: str, status: str, said: str
) -> None:
    told: list[str] = []
    served = pprof_page.beside(make_wsgi_app(CollectorRegistry()), list)
    environment = {"REQUEST_METHOD": method, "PATH_INFO": path}
    [body] = served(environment, lambda status, _: told.append(status))
    assert told[0].split()[0] == status
    assert said in body.decode()


@pytest.mark.parametrize(
    ("said", "allowed_s"), [("10", 6), ("120", 60), ("1.5", 2), ("no number", 60), (None, 60)]
)
def test_a_ledger_has_as_long_as_the_scraper_waits(
    monkeypatch: pytest.MonkeyPatch, said: str | None, allowed_s: float
) -> None:
    allowed: list[float | None] = []

    def take(_: object, ledger_timeout_s: float | None) -> None:
        allowed.append(ledger_timeout_s)
        raise HeapfitError("no answer")

    monkeypatch.setattr(openmetrics, "take", take)
    server, thread = openmetrics.serve(me, "127.0.0.1", 0, with_ledgers=True)
    header = {} if said is None else {"X-Prometheus-Scrape-Timeout-Seconds": said}
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    try:
        urlopen(Request(url, headers=header)).close()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert allowed == [allowed_s]


def test_a_client_that_says_nothing_or_leaves_holds_nothing_and_is_no_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(openmetrics._Handler, "timeout", 0.1)
    server, thread = openmetrics.serve(list, "127.0.0.1", 0)
    try:
        with socket.create_connection(server.server_address[:2]) as client:
            assert client.recv(1) == b""  # closed
        monkeypatch.undo()
        urlopen(f"http://127.0.0.1:{server.server_port}/metrics").close()
        for error in (ConnectionResetError(), TimeoutError(), ValueError()):
            assert capfd.readouterr().err == ""
            try:
                raise error
            except Exception:
                server.handle_error(None, ("127.0.0.1", 1))
        assert "ValueError" in capfd.readouterr().err
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
