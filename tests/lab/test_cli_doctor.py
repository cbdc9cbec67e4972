"""`heapfit doctor` looks at this machine and says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit import catalogue, doctor
from heapfit.doctor import checks
from heapfit.records import Allocator

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]


def test_every_finding_is_ok_or_says_what_to_do(run_heapfit: Heapfit) -> None:
    result = run_heapfit("doctor", "--json")
    assert result.returncode == 0, result.stderr
    findings = {each["topic"]: each for each in json.loads(result.stdout)}
    assert {"cores", "load now", "huge pages", "swap", "noise", "hardware counters"} <= set(
        findings
    )
    for finding in findings.values():
        assert finding["state"]
        assert finding["ok"] == (finding["advice"] == "")
    assert findings["heapfit's library"]["ok"]
    assert " equal runs of a short loop of heapfit's own" in findings["noise"]["state"]


@pytest.mark.parametrize(
    ("installed", "wanted"),
    [({"glibc", "heapfit", "heapfit-pools"}, True), ({"glibc", "heapfit", "jemalloc"}, False)],
)
def test_other_allocators_are_wanted_only_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, installed: set[str], wanted: bool
) -> None:
    def found(entry: Allocator) -> Path | None:
        return Path("/lib.so") if entry.name in installed else None

    monkeypatch.setattr(catalogue, "find_installed", found)
    [finding] = [each for each in doctor.examine() if each.topic == "allocators"]
    assert finding.ok != wanted
    for name in finding.advice.split()[4:]:
        assert catalogue.load_allocators()[name].source.kind != "yours"


def test_that_there_are_no_hardware_counters_is_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason = "the processor shows no such counter"
    found = {**checks.unavailable_metrics(), "cycles": reason, "futex": "x"}
    monkeypatch.setattr(checks, "unavailable_metrics", lambda: found)
    monkeypatch.setattr(checks.Instructions, "unavailable", lambda: reason)
    warnings = [each for each in doctor.examine() if not each.ok]
    [told] = [each for each in warnings if reason in each.state + each.advice]
    assert told.topic == "hardware counters"
    assert "so the metric cycles cannot be measured" in told.state
