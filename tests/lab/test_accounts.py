"""The benchmark of the account of memory: its parts at a tiny scale, and what they make of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import load_benchmark
from heapfit.live.records import LedgerRow

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
BENCHMARK = ROOT / "benchmarks" / "accounts.py"


@pytest.fixture(scope="module")
def accounts() -> ModuleType:
    return load_benchmark(BENCHMARK)


def run(
    accounts: ModuleType, monkeypatch: pytest.MonkeyPatch, kept: Path, *words: str
) -> dict[str, Any]:
    """Run the benchmark at a tiny scale, and return what it keeps."""
    monkeypatch.setattr(sys, "argv", ["accounts.py", "--small", "--json", str(kept), *words])
    assert accounts.main() == 0
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def test_the_ledger_of_a_real_program_is_held_against_the_kernel(
    accounts: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--only", "ledger", "--programs", "python3"]
    found = run(accounts, monkeypatch, tmp_path / "kept.json", *words)["ledger"]
    of = found["programs"]["python3"]
    assert set(of) == {"load", "after"}
    assert of["after"]["share"] >= 0.95
    assert of["after"]["difference"] <= 0.01
    [look] = of["after"]["looks"]
    assert look["ledger"] == sum(look["causes"].values())
    assert "| `python3`, under load" in capsys.readouterr().out


def test_memory_of_which_no_more_is_known_than_that_it_is_there_has_no_cause(
    accounts: ModuleType,
) -> None:
    ledger = accounts.ledger
    rows = [
        {"cause": "live", "in_heap": True, "resident": 700},
        {"cause": "anonymous", "in_heap": False, "resident": 200, "name": "[anon:x]"},
        {"cause": "brk", "in_heap": False, "resident": 100, "name": "[heap]"},
        {"cause": "file", "in_heap": False, "resident": 50},
    ]
    told = ledger.Ledger([LedgerRow.model_validate(each) for each in rows], complete=True)
    look = ledger.judged(told, ledger.Kernels(1000, 1000), ledger.Kernels(1100, 1000))
    assert look["share"] == 0.7
    assert look["difference"] == 0.0
    assert look["without"] == {"[anon:x]": 200, "[heap]": 100}
    assert not ledger.is_steady(look)


def test_a_program_that_is_missing_is_named_and_left_out(
    accounts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = accounts.ledger.Program(("no-such-command",), accounts.ledger.nginx)
    monkeypatch.setitem(accounts.ledger.PROGRAMS, "nginx", missing)
    words = ["--only", "ledger", "--programs", "nginx"]
    found = run(accounts, monkeypatch, tmp_path / "kept.json", *words)["ledger"]
    assert found["skipped"] == {"nginx": ["no-such-command"]}
    assert found["programs"] == {}


def test_the_site_that_pins_is_compared_with_the_one_that_is_named(
    accounts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = run(accounts, monkeypatch, tmp_path / "kept.json", "--only", "pinners")["pinners"]
    assert [each["is_first"] for each in found["programs"]] == [True, True]
    assert [each["culprit"] for each in found["programs"]] == [
        f"site_{each['plan']['culprit']}" for each in found["programs"]
    ]


def test_a_generated_program_follows_from_its_seed(accounts: ModuleType) -> None:
    planned = accounts.pinners.planned
    assert planned(7, 1 << 20) == planned(7, 1 << 20) != planned(8, 1 << 20)
    roles = [each.role for each in planned(7, 1 << 20).parts]
    assert roles[:2] == ["culprit", "lesser"]
    assert {"peak", "dense"} & set(roles)


def test_intervals_of_a_sample_are_held_against_a_full_recording(
    accounts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = run(accounts, monkeypatch, tmp_path / "kept.json", "--only", "sums")["sums"]
    [program] = found["programs"]
    assert program["bytes"] >= 32 << 20
    assert len(program["sites"]) >= 5
    assert all(0 <= each["held"]["bytes"] <= 2 for each in program["sites"].values())
    held, pairs = accounts.sums.counts(found["programs"], "bytes")
    assert pairs == 2 * len(program["sites"])
    assert held >= pairs / 2


def test_a_recording_becomes_a_page_and_other_parts_stay(
    accounts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps({"sums": {"seed": 1, "sample": "64k", "programs": []}}))
    words = ["--only", "flames", "--events", "20000"]
    found = run(accounts, monkeypatch, kept, *words)
    assert set(found) == {"sums", "flames"}
    assert found["flames"]["page_bytes"] > 100_000
    assert found["flames"]["profile"]["peak"] > 10 << 20
    assert all(row.is_reached is None for row in accounts.flames.rows(found["flames"]))


def test_what_is_taken_out_of_the_source_is_there(accounts: ModuleType) -> None:
    """So that who changes these lines learns that the benchmark knows them."""
    sampler = accounts.sampler
    for file in sampler._TAKEN_OUT:
        text = (ROOT / "allocator" / file).read_text()
        assert sampler.taken_out(text, file) != text
    with pytest.raises(SystemExit, match="up to date"):
        sampler.taken_out("", "heap/sample.h")


@pytest.mark.full
def test_the_samplers_instructions_are_counted(
    accounts: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ["--only", "sampler", "--commands", "churn-pairs"]
    found = run(accounts, monkeypatch, tmp_path / "kept.json", *words)["sampler"]
    one = found["programs"]["churn-pairs"]
    assert one["unset"] == pytest.approx(1, abs=0.001)
    assert one["off"] == pytest.approx(1, abs=0.002)
    assert 1 < one["on"] < 1.2
