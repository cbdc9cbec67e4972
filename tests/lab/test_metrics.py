"""The optional metric sources, each on a real program whose figure is known beforehand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_helpers import compiled, study_of, workload
from heapfit.records import Metric, Trial, TrialStatus, Workload
from heapfit.trial import metrics, perf, run_trial
from heapfit.trial.perf import PerfSource
from heapfit.trial.simulation import SimulatedCaches
from heapfit.trial.system_calls import StracedCalls, TracedCalls

pytestmark = pytest.mark.full


# Maps and unmaps N times, and starts itself once more to do it again in a child.
CALLER = """
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    for (int left = atoi(argv[1]); left > 0; left--) {
        void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(volatile char *)page = 1;
        munmap(page, 4096);
    }
    if (argc > 2 && fork() == 0) {
        execl(argv[0], argv[0], argv[1], NULL);
    }
    wait(NULL);
    return 0;
}
"""

# Walks over N pages, one cache line in each, M times.
WALKER = """
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv)
{
    size_t pages = strtoul(argv[1], NULL, 10), rounds = strtoul(argv[2], NULL, 10);
    int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
    volatile char *all = mmap(NULL, pages * 4096, access, kind, -1, 0);
    for (size_t round = 0; round < rounds; round++) {
        for (size_t page = 0; page < pages; page++) {
            all[page * 4096] = 1;
        }
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("caller") / "caller", CALLER)


def run_with(work: Workload, workspace: Path, wanted: Sequence[Metric]) -> Trial:
    study = study_of(work)
    study = study.model_copy(update={"metrics": [*study.metrics, *wanted]})
    return run_trial(study, study.plan[-1], workspace, None)  # the first is a warm-up


def ok(trial: Trial) -> dict[str, float]:
    assert trial.status is TrialStatus.OK, trial.reason
    return trial.metrics


def test_strace_counts_the_calls_of_the_whole_tree(tmp_path: Path, caller: Path) -> None:
    def calls(*arguments: str) -> dict[str, float]:
        return ok(run_with(workload(str(caller), *arguments), tmp_path, StracedCalls.metrics))

    few, many, twice = calls("10"), calls("310"), calls("310", "and again in a child")
    assert many["mmap_calls"] - few["mmap_calls"] == 300
    assert many["munmap_calls"] - few["munmap_calls"] == 300
    assert twice["munmap_calls"] == 2 * many["munmap_calls"]
    assert many["madvise_calls"] == 0


def test_a_program_that_fails_in_its_second_run_fails_the_trial(tmp_path: Path) -> None:
    once = f"test ! -e {tmp_path}/flag || {{ echo not again >&2; exit 4; }}; touch {tmp_path}/flag"
    trial = run_with(workload("sh", "-c", once), tmp_path, StracedCalls.metrics)
    assert trial.status is TrialStatus.FAILED
    assert trial.reason == "in the run for mmap_calls alone: exit code 4, 0 expected"
    assert "not again" in trial.stderr_tail
    assert trial.metrics == {}


def test_strace_that_is_missing_or_forbidden_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from heapfit.trial import system_calls

    monkeypatch.setenv("PATH", str(tmp_path))
    assert StracedCalls.unavailable() == "strace is not installed (apt: strace)"
    assert SimulatedCaches.unavailable() == "valgrind is not installed (apt: valgrind)"
    refusing = tmp_path / "strace"
    refusing.write_text("#!/bin/sh\necho strace: ptrace: Operation not permitted >&2\nexit 1\n")
    refusing.chmod(0o755)
    system_calls._strace_refusal.cache_clear()
    try:
        assert "Operation not permitted" in (StracedCalls.unavailable() or "")
    finally:
        system_calls._strace_refusal.cache_clear()


def test_simulated_instructions_repeat_and_follow_the_work(tmp_path: Path) -> None:
    walker = compiled(tmp_path / "walker", WALKER)

    def instructions(rounds: int) -> float:
        work = workload(str(walker), "10", str(rounds))
        return ok(run_with(work, tmp_path, SimulatedCaches.metrics))["instructions"]

    once, again, more = instructions(1000), instructions(1000), instructions(101_000)
    assert again == pytest.approx(once, rel=0.02)  # the layout of the address space varies
    assert 2 * 1_000_000 < more - once < 10 * 1_000_000  # a million stores in a loop


class CountedFaults(PerfSource):
    """Page faults as a counter of the kernel's: needs no hardware and no tracepoint."""

    metrics = (
        Metric(name="counted_faults", label="", unit="count", better="lower", source="counter"),
    )

    @classmethod
    def events(cls) -> dict[str, perf.Event]:
        page_faults = 2
        return {"counted_faults": perf.Event(perf.SOFTWARE, page_faults)}


@pytest.fixture
def counted_faults(monkeypatch: pytest.MonkeyPatch) -> Sequence[Metric]:
    reason = CountedFaults.unavailable()
    if reason is not None:
        pytest.skip(reason)
    sources = (*metrics.BUILTIN_SOURCES, CountedFaults)
    monkeypatch.setattr(metrics, "_ALL_SOURCES", sources)
    monkeypatch.setitem(metrics._reasons, CountedFaults, None)
    return CountedFaults.metrics


def test_counters_see_the_whole_tree_and_nothing_before_it(
    tmp_path: Path, caller: Path, counted_faults: Sequence[Metric]
) -> None:
    def faults(*arguments: str) -> float:
        work = workload(str(caller), *arguments)
        return ok(run_with(work, tmp_path, counted_faults))["counted_faults"]

    few, many, twice = faults("10"), faults("3010"), faults("3010", "and again in a child")
    assert 10 <= few < 1000  # the lab alone has more
    assert many - few == pytest.approx(3000, abs=50)
    assert twice - many == pytest.approx(many, abs=200)


def test_a_counter_that_is_refused_fails_the_trial_and_starts_nothing(
    tmp_path: Path, counted_faults: Sequence[Metric], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_such_event = {"counted_faults": perf.Event(perf.SOFTWARE, 1 << 40)}
    monkeypatch.setattr(CountedFaults, "events", classmethod(lambda _: no_such_event))
    started = tmp_path / "started"
    before = len(os.listdir("/proc/self/fd"))
    trial = run_with(workload("touch", str(started)), tmp_path / "w", counted_faults)
    assert trial.status is TrialStatus.FAILED
    assert "counted_faults cannot be counted" in trial.reason
    assert not started.exists()
    assert len(os.listdir("/proc/self/fd")) == before


# The kernel's page allocations in place of its rare fragmentation events, which none can provoke
# at will: the same group of tracepoints, the same way.
TRACEPOINTS_ARE_COUNTED = """
import sys
from pathlib import Path
from heapfit.trial import perf
from heapfit.trial.metrics import find_metrics
from heapfit.trial.system_calls import CALLS, StracedCalls, TracedCalls
from test_metrics import ok, run_with, workload

caller, folder = sys.argv[1], Path(sys.argv[2])
assert perf.KernelFragmentation.unavailable() is None
assert [metric.source for metric in find_metrics(["mmap_calls"])] == [TracedCalls.metrics[0].source]
work = workload(caller, "300", "and again in a child")
figures = ok(run_with(work, folder, find_metrics(["fragmentation_events"])))
assert figures["fragmentation_events"] >= 0
traced = ok(run_with(work, folder, TracedCalls.metrics))
straced = ok(run_with(work, folder, StracedCalls.metrics))
for call in CALLS:
    assert traced[f"{call}_calls"] == straced[f"{call}_calls"], call
assert traced["munmap_calls"] >= 600

perf.FRAGMENTATION = "kmem:mm_page_alloc"
few, many = (
    ok(run_with(workload(caller, str(n)), folder, perf.KernelFragmentation.metrics))
    for n in (100, 4100)
)
gained = many["fragmentation_events"] - few["fragmentation_events"]
# What starting a program takes is a few pages more or less in each run.
assert 3900 <= gained < 6000, gained
print("all counted")
"""


def test_tracepoints_are_counted_and_agree_with_strace(tmp_path: Path, caller: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TRACEPOINTS_ARE_COUNTED)
    command = [sys.executable, str(script), str(caller), str(tmp_path / "w")]
    if TracedCalls.unavailable() is not None:
        command = [*with_tracefs(), *command]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout == "all counted\n", done.stderr


def with_tracefs() -> list[str]:
    """Return the words before a command that give it a tracefs that nobody else sees."""
    mount = 'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"'
    words = ["unshare", "--mount", "sh", "-c", mount, "sh"]
    if shutil.which("unshare") is None:
        pytest.skip("tracepoints need root, or a tracefs that can be read")
    tried = subprocess.run([*words, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"tracepoints need root, or a tracefs that can be read: {tried.stderr.strip()}")
    return words
