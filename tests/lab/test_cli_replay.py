"""`heapfit replay`: a trace becomes a study of allocators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Heapfit, assert_one_line
from study_files import trials_in
from trace_data import sampled, service

pytestmark = pytest.mark.usefixtures("library")

QUICK = ["--allocators", "glibc,heapfit", "--replicates", "2", "--cores", "1"]
FAST = [*QUICK, "--no-system-calls"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return service(requests=60).write(tmp_path_factory.mktemp("trace") / "service.hft")


def replayed(run_heapfit: Heapfit, trace: Path, *options: str | Path) -> dict[str, Any]:
    done = run_heapfit("replay", trace, "--json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_trace_is_replayed_under_each_allocator_and_the_page_written(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    done = run_heapfit("replay", trace, *QUICK, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Replay of service.hft" in done.stdout
    assert "frees of blocks born before the recording are left out" in done.stderr
    [folder] = (tmp_path / "heapfit-results").iterdir()
    page = done.stdout.splitlines()[-1].removeprefix("The page: ")
    text = (tmp_path / page).read_text()
    assert "Replayer&#39;s own time per event" in text or "Replayer's own time per event" in text
    trials = trials_in(folder)
    assert [trial["status"] for trial in trials] == ["ok"] * 6
    counted = [trial["metrics"] for trial in trials if not trial["planned"]["warmup"]]
    for figures in counted:
        assert figures["own_ns_per_event"] > 0
        assert figures["replay_peak_bytes"] > 0
        assert "peak_rss_bytes" not in figures  # the replayer's tables are in it


def test_what_goes_by_call_sites_is_replayed_only_by_name(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    quick = ["--replicates", "1", "--warmups", "0", "--cores", "1", "--no-system-calls"]
    out = tmp_path / "installed"
    done = run_heapfit("replay", trace, "--allocators", "installed", *quick, "--out", out)
    assert done.returncode == 0, done.stderr
    played = {each["planned"]["allocator"] for each in trials_in(out)}
    assert "heapfit" in played
    assert "heapfit-pools" not in played
    said = " ".join(done.stderr.split())
    assert "heapfit-pools is left out: it depends on call sites" in said
    out = tmp_path / "named"
    done = run_heapfit("replay", trace, "--allocators", "heapfit-pools", *quick, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "heapfit-pools can do no more than it does without them" in " ".join(done.stderr.split())
    assert "heapfit-pools" in {each["planned"]["allocator"] for each in trials_in(out)}


def test_memory_counts_once_in_a_replays_recommendation(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path
) -> None:
    found = replayed(run_heapfit, trace, *FAST, "--replicates", "3", "--out", tmp_path / "out")
    assert set(found["advice"]["metrics"]) == {"time", "memory"}


def test_the_ranking_is_set_beside_that_of_the_program(
    run_heapfit: Heapfit, library: Path, trace: Path, tmp_path: Path
) -> None:
    allocators = ["--allocators", f"glibc,heapfit,copy={library}", "--cores", "1"]
    program = [
        "awk",
        "BEGIN { while (i < 1000000) x[i++] }",
    ]  # Of one that does nothing no time is told.
    real = run_heapfit(
        "compare", *allocators, "--replicates", "2", "--out", tmp_path / "real", "--", *program
    )
    assert real.returncode == 0, real.stderr
    options = [*allocators, "--replicates", "2", "--no-system-calls", "--out", tmp_path / "out"]
    report = replayed(run_heapfit, trace, *options, "--against", tmp_path / "real")
    assert [each["what"] for each in report["against"]] == ["time", "memory"]
    for each in report["against"]:
        assert -1 <= each["tau"] <= 1
        assert len(each["places"]) == 3
    kept = json.loads((tmp_path / "out" / "against.json").read_text())
    assert kept == report["against"]
    said = run_heapfit("replay", trace, *options, "--against", tmp_path / "real").stdout
    assert "By time: Kendall's tau" in said
    assert "By memory: Kendall's tau" in said
    # Two can be ranked neither way; this is told before they are measured.
    few = [
        "--allocators",
        "glibc,heapfit",
        "--out",
        tmp_path / "few",
        "--against",
        tmp_path / "real",
    ]
    assert_one_line(run_heapfit("replay", trace, *few), 2, ["have 2 allocators in common"])
    assert not (tmp_path / "few").exists()


def test_a_sample_cannot_be_replayed(run_heapfit: Heapfit, tmp_path: Path) -> None:
    trace = sampled(service(requests=60), 4096).write(tmp_path / "sample.hft")
    done = run_heapfit("replay", trace, *FAST, folder=tmp_path)
    assert_one_line(done, 2, ["sample.hft", "a sample of the allocations cannot be replayed"])


@pytest.mark.parametrize(
    ("options", "said"), [(["--speed", "double"], "double"), (["--against", "."], "holds no study")]
)
def test_options_that_make_no_sense_are_refused(
    run_heapfit: Heapfit, trace: Path, tmp_path: Path, options: list[str], said: str
) -> None:
    done = run_heapfit("replay", trace, *FAST, *options, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "heapfit-results").exists()
