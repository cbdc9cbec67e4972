"""`heapfit doctor` looks at this machine and says what to do."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import Heapfit, heapfit_command
from heapfit.trial import METRIC_NAMES, unavailable_metrics

pytestmark = pytest.mark.usefixtures("library")


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


def test_every_metric_is_listed_with_how_or_why_not(run_heapfit: Heapfit) -> None:
    result = run_heapfit("doctor", "--json")
    findings = {each["topic"]: each for each in json.loads(result.stdout)}
    missing = unavailable_metrics()
    for name in METRIC_NAMES:
        finding = findings[f"metric {name}"]
        assert finding["ok"] == (name not in missing)
        assert finding["advice"] == missing.get(name, "")
    assert "getrusage" in findings["metric user_s"]["state"]


def test_people_get_a_line_per_topic(run_heapfit: Heapfit) -> None:
    result = run_heapfit("doctor")
    assert result.returncode == 0
    assert "address randomisation" in result.stdout
    assert "ok" in result.stdout


def test_a_limit_on_address_space_is_noticed(
    clean_environment: dict[str, str],
) -> None:
    limited = [
        "sh",
        "-c",
        'ulimit -v 8000000; exec "$@"',
        "sh",
        *heapfit_command("doctor", "--json"),
    ]
    result = subprocess.run(limited, env=clean_environment, capture_output=True, text=True)
    findings = {each["topic"]: each for each in json.loads(result.stdout)}
    assert "ulimit -v unlimited" in findings["address space"]["advice"]
