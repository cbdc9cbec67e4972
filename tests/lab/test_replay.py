"""The replayer makes the calls that were recorded, says what they took, and races with nobody."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
import shared_home
from engine_helpers import allowed_cores, run_once, system_allocator, workload
from replay_data import (
    COMPILED_FROM,
    COUNTER_SOURCE,
    EVENTS_SOURCE,
    FREE,
    MALLOC,
    PLAN_SOURCES,
    PLAYER_SOURCES,
    Event,
    PlanFile,
    compiled,
    random_events,
)

pytestmark = pytest.mark.full

# In the order of the kinds in a trace.
NAMES = ("free", "malloc", "calloc", "realloc", "aligned", "new", "new_aligned", "delete")

Counts = dict[str, tuple[int, int]]  # calls and bytes, by name


@pytest.fixture(scope="module")
def built() -> Path:
    """A folder with the replayer, what makes plans of events, and the malloc that counts."""
    return shared_home.programs("replay", [Path(__file__), *COMPILED_FROM], _compile_into)


def _compile_into(folder: Path) -> None:
    compiled(PLAYER_SOURCES, folder / "heapfit-replay", "-O2", "-Werror")
    compiled([*PLAN_SOURCES, EVENTS_SOURCE], folder / "replay_events", "-O2")
    compiled([COUNTER_SOURCE], folder / "counter.so", "-shared", "-fPIC")
    for name, sanitizers in (("thread", "thread"), ("address", "address,undefined")):
        flags = ("-g", "-O1", f"-fsanitize={sanitizers}")
        compiled(PLAYER_SOURCES, folder / f"replay-{name}", *flags)


def make_plan(built: Path, events: Iterable[Event], path: Path, *options: str) -> Path:
    text = "\n".join(map(str, events))
    subprocess.run([built / "replay_events", *options, path], input=text, text=True, check=True)
    return path


def play(
    program: Path, plan: Path, *options: str, cores: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Play a plan, on the first `cores` processors or on all."""
    cpus = ",".join(map(str, sorted(os.sched_getaffinity(0))[: cores or None]))
    return subprocess.run(
        ["taskset", "--cpu-list", cpus, program, *options, plan],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    assert done.returncode == 0, done.stderr
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: float(value) for name, value in lines if name != "plan"}


def counted(text: str) -> Counts:
    lines = (line.split() for line in text.splitlines())
    return {name: (int(calls), int(size)) for name, calls, size in lines}


def less(counts: Counts, others: Counts) -> Counts:
    return {
        name: (calls - others[name][0], size - others[name][1])
        for name, (calls, size) in counts.items()
    }


def recorded(events: Iterable[Event]) -> Counts:
    calls: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for event in events:
        name = NAMES[event.kind]
        calls[name] += 1
        sizes[name] += max(event.size, event.kind == NAMES.index("realloc"))
    return {name: (calls[name], sizes[name]) for name in NAMES}


@pytest.mark.parametrize(("threads", "options"), [(1, ()), (4, ("--one-thread",)), (16, ())])
@pytest.mark.gate
def test_exactly_the_recorded_calls_happen(
    built: Path, tmp_path: Path, threads: int, options: tuple[str, ...]
) -> None:
    """Under the lab's launcher, too. For a thread itself libc may take a calloc and a free."""
    events = random_events(threads, threads=threads, count=20_000)
    plan = make_plan(built, events, tmp_path / "plan", *options)
    nothing = make_plan(built, [Event(1, 0, MALLOC, 16, 0, 0)], tmp_path / "nothing")
    started = PlanFile(plan.read_bytes()).header["streams"] - 1
    counts = []
    for each in (plan, nothing):
        trial = run_once(
            workload(str(built / "heapfit-replay"), str(each), check={"stdout": "ignore"}),
            tmp_path / "trials",
            allocator=system_allocator("counter", built / "counter.so"),
            cores=allowed_cores(),
        )
        assert trial.status == "ok", trial.reason
        counts.append(counted(trial.stderr_tail))
    found = less(*counts)
    wanted = recorded(events)
    # That one is the plan's that has nothing else.
    wanted["malloc"] = (wanted["malloc"][0] - 1, wanted["malloc"][1])
    extra = {name: found[name][0] - wanted[name][0] for name in NAMES}
    assert 0 <= extra["calloc"] <= started
    assert 0 <= extra["free"] <= started
    assert not any(extra[name] for name in NAMES if name not in ("calloc", "free"))
    sizes = [name for name in NAMES if name not in ("calloc", "free", "delete")]
    assert {name: found[name][1] for name in sizes} == {name: wanted[name][1] for name in sizes}


@pytest.mark.parametrize(("touch", "cores"), [("page", 1), ("line", 0)])
def test_no_two_threads_race(built: Path, tmp_path: Path, touch: str, cores: int) -> None:
    program = built / "replay-thread"
    plan = make_plan(built, random_events(3, threads=12, count=20_000), tmp_path / "plan")
    done = play(program, plan, "--touch", touch, cores=cores, TSAN_OPTIONS="halt_on_error=1")
    assert done.returncode == 0, done.stderr


def test_it_touches_no_memory_that_is_not_its_own(built: Path, tmp_path: Path) -> None:
    program = built / "replay-address"
    plan = make_plan(built, random_events(4, threads=6, count=20_000), tmp_path / "plan")
    for touch in ("page", "line"):
        # What the program left, the replay leaves.
        done = play(program, plan, "--touch", touch, ASAN_OPTIONS="detect_leaks=0")
        assert done.returncode == 0, done.stderr
        assert "runtime error" not in done.stderr


def blocks_of(size: int, count: int) -> list[Event]:
    born = [Event(i, 0, MALLOC, (i + 1) * size * 2, 0, size) for i in range(count)]
    return [*born, *(Event(count + i, 0, FREE, each.address) for i, each in enumerate(born))]


def test_an_aged_heap_is_the_same_for_every_allocator(built: Path, tmp_path: Path) -> None:
    plan = make_plan(built, random_events(5, threads=3, count=20_000), tmp_path / "plan")
    program = built / "heapfit-replay"
    fresh, aged, again, counted_too = (
        figures(play(program, plan, "--age", age, LD_PRELOAD=str(library or "")))
        for age, library in (("0", ""), ("8", ""), ("8", ""), ("8", built / "counter.so"))
    )
    assert fresh["aged_bytes"] == 0
    assert aged["aged_bytes"] == again["aged_bytes"] == counted_too["aged_bytes"] > 0
    assert aged["peak_live_bytes"] == fresh["peak_live_bytes"] + aged["aged_bytes"]
    assert aged["replay_peak_bytes"] > fresh["replay_peak_bytes"]
    # An eighth is left of what was filled to eight times the peak, more or less by chance.
    assert 0.5 < aged["aged_bytes"] / fresh["peak_live_bytes"] < 2
    assert play(program, plan, "--age", "x").returncode == 2
    sanitized = play(built / "replay-address", plan, "--age", "8",
                     ASAN_OPTIONS="detect_leaks=0")  # fmt: skip
    assert "runtime error" not in sanitized.stderr
    assert sanitized.returncode == 0


def test_what_is_no_plan_is_refused(built: Path, tmp_path: Path) -> None:
    whole = make_plan(built, blocks_of(64, 10), tmp_path / "plan").read_bytes()
    damaged = bytearray(whole)
    damaged[-40] ^= 1
    bad = tmp_path / "bad"
    for content in (b"", b"hfplan", whole[:-8], whole[:300], bytes(damaged), b"\0" * 4096):
        bad.write_bytes(content)
        done = play(built / "heapfit-replay", bad)
        assert (done.returncode, done.stdout) == (2, "")
        assert "no plan that this version can play" in done.stderr
    done = play(built / "heapfit-replay", tmp_path / "missing")
    assert done.returncode == 2
    assert "No such file" in done.stderr


def test_allocations_that_fail_now_make_the_replay_fail(built: Path, tmp_path: Path) -> None:
    events = [
        Event(1, 0, MALLOC, 64, 0, 1 << 47),
        Event(2, 0, MALLOC, 128, 0, 8),
        Event(3, 0, 3, 192, 128, 1 << 47),
        Event(4, 0, FREE, 64),
        Event(5, 0, FREE, 192),
    ]
    done = play(built / "heapfit-replay", make_plan(built, events, tmp_path / "plan"))
    assert done.returncode == 1
    assert "2 allocations failed that succeeded when they were recorded" in done.stderr
