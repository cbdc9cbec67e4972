"""What a scraper reads, read back by the reference parser of OpenMetrics."""

from __future__ import annotations

import json
import math
import os

import pytest
from heapfit.export import openmetrics
from heapfit.host.proc import Process, find
from live_double import MIB, Double
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
