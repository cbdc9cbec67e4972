"""A plan has each recorded call once, in its thread, and no thread gets stuck in it."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from heapfit.replay import plan
from replay_data import (
    DELETE,
    EVENTS_SOURCE,
    FREE,
    MALLOC,
    PLAN_SOURCES,
    REALLOC,
    START,
    STEP,
    Event,
    Op,
    PlanFile,
    compiled,
    random_events,
)

A, B, C = 0x1000, 0x2000, 0x3000


Planner = Callable[..., PlanFile]  # of events and the planner's options


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Planner:
    folder = tmp_path_factory.mktemp("plans")
    program = compiled(
        [*PLAN_SOURCES, EVENTS_SOURCE],
        folder / "replay_events",
        *("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"),
    )

    def make(events: Iterable[Event], *options: str) -> PlanFile:
        path = folder / "plan"
        text = "\n".join(map(str, events))
        subprocess.run(
            [program, *options, path], input=text, text=True, check=True, preexec_fn=_hurry
        )
        return PlanFile(path.read_bytes())

    return make


def _hurry() -> None:
    """Allow a plan far more of the processor's time than any here takes."""
    resource.setrlimit(resource.RLIMIT_CPU, (40, 40))


def played(plan: PlanFile) -> list[tuple[int, Op]]:
    """Play a plan, each thread as far as it comes in turn; all of it must come to be played."""
    streams = plan.streams()
    at = [0] * len(streams)
    begun = {plan.header["main"], 0}
    turns = dict.fromkeys(range(plan.header["slots"]), 0)
    done: list[tuple[int, Op]] = []
    came_on = True
    while came_on:
        came_on = False
        for number in sorted(begun):
            for op in streams[number][at[number] :]:
                if op.kind <= DELETE and turns[op.slot] != op.turn:
                    assert turns[op.slot] < op.turn, "its turn is over"
                    break
                if op.kind <= DELETE:
                    turns[op.slot] += 1
                    done.append((number, op))
                begun |= {op.slot} if op.kind == START else set()
                at[number] += 1
                came_on = True
    assert [len(stream) for stream in streams] == at
    return done


def test_frees_of_blocks_that_were_born_before_are_left_out(plan_of: Planner) -> None:
    plan = plan_of([Event(1, 0, FREE, A), Event(2, 0, MALLOC, A, 0, 8), Event(3, 0, FREE, B)])
    assert [op.kind for op in plan.stream(0) if op.kind <= DELETE] == [MALLOC]
    assert plan.header["unmatched_frees"] == 2
    assert plan.header["frees"] == 0


@pytest.mark.parametrize("options", [(), ("--one-thread",)])
def test_a_block_moves_to_where_another_is_freed_meanwhile(
    plan_of: Planner, options: Sequence[str]
) -> None:
    """The realloc's event is its call, and the block at its new address dies after that."""
    plan = plan_of(
        [
            Event(1, 0, MALLOC, A, 0, 8),
            Event(2, 1, MALLOC, B, 0, 9),
            Event(3, 0, REALLOC, B, A, 10, lasted_ns=5),
            Event(4, 1, FREE, B),
            Event(9, 0, FREE, B),
        ],
        *options,
    )
    assert plan.header["lost_frees"] == plan.header["unmatched_frees"] == 0
    died = [op.size for _, op in played(plan) if op.kind == FREE]
    assert sorted(died) == [9, 10]


def test_two_threads_get_one_address_from_realloc_in_turn(plan_of: Planner) -> None:
    """The block of the call that returned last was born first, and was freed for the other."""
    plan = plan_of(
        [
            Event(1, 0, MALLOC, A, 0, 8),
            Event(2, 1, MALLOC, C, 0, 9),
            Event(3, 0, REALLOC, B, A, 100, lasted_ns=20),
            Event(5, 1, REALLOC, B, C, 11, lasted_ns=2),
            Event(9, 1, REALLOC, C, B, 12, lasted_ns=1),
            Event(30, 0, FREE, B),
            Event(31, 1, FREE, C),
        ]
    )
    assert plan.header["lost_frees"] == plan.header["unmatched_reallocs"] == 0
    assert [op.size for _, op in played(plan) if op.kind == FREE] == [100, 12]
    assert plan.header["peak_bytes"] == 100 + 12


@pytest.mark.parametrize("threads", [2, 16])
def test_no_thread_gets_stuck(plan_of: Planner, threads: int) -> None:
    events = random_events(threads, threads=threads, count=30_000)
    plan = plan_of(events)
    assert plan.header["events"] == len(played(plan)) == len(events)
    assert plan.header["lost_frees"] == plan.header["unmatched_frees"] == 0


def test_the_course_is_that_of_the_recording(plan_of: Planner) -> None:
    events = random_events(8, threads=3, count=20_000)
    plan = plan_of(events)
    sizes: dict[int, int] = {}
    live = [0]
    for event in events:
        sizes.pop(event.old if event.kind == REALLOC else event.address, None)
        if event.kind not in (FREE, DELETE):
            sizes[event.address] = event.size
        live.append(sum(sizes.values()))
    assert plan.course == live[:-1:STEP]
    assert plan.header["peak_bytes"] == max(live)
    assert live[plan.header["peak_order"]] == max(live)
    assert live[plan.header["peak_look"]] >= max(live) * 127 / 128
    assert plan.header["left_bytes"] == live[-1]


DAY_S = 24 * 3600


def test_the_plans_unused_for_longest_go_and_those_in_use_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "MOST_BYTES", 250)
    for days in (0, 1, 10, 20, 30):
        folder = tmp_path / f"{days} days"
        folder.mkdir()
        (folder / "plan").write_bytes(b"x" * 100)
        os.utime(folder, (0, (40 - days) * DAY_S))
    plan._evict(tmp_path, 40 * DAY_S)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["0 days", "1 days"]
    monkeypatch.setattr(plan, "MOST_BYTES", 1)
    plan._evict(tmp_path, 40 * DAY_S)
    assert len(list(tmp_path.iterdir())) == 2
