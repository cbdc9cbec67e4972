"""A plan has each recorded call once, in its thread, and no thread gets stuck in it."""

from __future__ import annotations

import random
import resource
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import pytest
from replay_data import (
    CALLOC,
    DELETE,
    EVENTS_SOURCE,
    FAILED,
    FREE,
    MALLOC,
    NEW,
    NEW_ALIGNED,
    PACE,
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


class Planner(Protocol):
    """Makes a plan of events."""

    def __call__(self, events: Iterable[Event], *options: str) -> PlanFile: ...


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


def kinds(ops: Sequence[Op]) -> list[int]:
    return [op.kind for op in ops]


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


# ------------------------------------------------------------------------------------ small ones


def test_each_thread_has_its_calls_in_order(plan_of: Planner) -> None:
    plan = plan_of(
        [
            Event(10, 0, MALLOC, A, 0, 100),
            Event(20, 7, CALLOC, B, 0, 50),
            Event(30, 7, FREE, A),
            Event(40, 0, REALLOC, C, B, 70),
            Event(50, 0, FREE, C),
        ]
    )
    # The first paces begin threads; the others look at what may be the peak.
    assert kinds(plan.stream(0)) == [PACE, MALLOC, PACE, START, REALLOC, FREE]
    assert kinds(plan.stream(1)) == [PACE, CALLOC, PACE, FREE]
    assert plan.header["peak_look"] == plan.header["peak_order"] == 2
    assert [op.size for op in plan.calls(0)] == [100, 70, 70]
    assert [op.size for op in plan.calls(1)] == [50, 100]
    header = plan.header
    assert (header["allocations"], header["reallocs"], header["frees"]) == (2, 1, 2)
    assert (header["bytes"], header["peak_bytes"], header["peak_blocks"]) == (220, 150, 2)
    assert (header["left_blocks"], header["left_bytes"]) == (0, 0)
    assert header["duration_ns"] == 40


def test_a_slot_serves_another_block_when_its_block_is_dead(plan_of: Planner) -> None:
    events = []
    for i in range(1000):
        events += [Event(2 * i, 0, MALLOC, A, 0, 8), Event(2 * i + 1, 0, FREE, A)]
    plan = plan_of(events)
    assert {op.slot for op in plan.calls(0)} == {0}
    assert [op.turn for op in plan.calls(0)] == list(range(2000))


def test_what_another_thread_frees_does_not_make_this_one_wait(plan_of: Planner) -> None:
    """A new block gets no slot that another thread has just emptied."""
    plan = plan_of(
        [Event(1, 0, MALLOC, A, 0, 8), Event(2, 1, FREE, A), Event(3, 0, MALLOC, A, 0, 8)]
    )
    first, second = plan.calls(0)
    assert first.slot != second.slot


def test_slots_do_not_grow_with_what_passes_from_thread_to_thread(plan_of: Planner) -> None:
    events = []
    for i in range(100_000):
        events += [Event(2 * i, 0, MALLOC, A, 0, 8), Event(2 * i + 1, 1, FREE, A)]
    assert plan_of(events).header["slots"] < 20_000


def test_aligned_blocks_of_cpp_are_deleted_as_such(plan_of: Planner) -> None:
    plan = plan_of(
        [
            Event(1, 0, NEW_ALIGNED, A, 0, 8, 6),
            Event(2, 0, DELETE, A),
            Event(3, 0, NEW, A, 0, 8),
            Event(4, 0, DELETE, A),
        ]
    )
    assert [op.alignment for op in plan.calls(0)] == [6, 6, 0, 0]


# ------------------------------------------------------------------------- what does not fit


def test_frees_of_blocks_that_were_born_before_are_left_out(plan_of: Planner) -> None:
    plan = plan_of([Event(1, 0, FREE, A), Event(2, 0, MALLOC, A, 0, 8), Event(3, 0, FREE, B)])
    assert kinds(plan.calls(0)) == [MALLOC]
    assert plan.header["unmatched_frees"] == 2
    assert plan.header["frees"] == 0


def test_a_realloc_of_such_a_block_is_an_allocation(plan_of: Planner) -> None:
    plan = plan_of([Event(1, 0, REALLOC, B, A, 30), Event(2, 0, FREE, B)])
    assert kinds(plan.calls(0)) == [MALLOC, FREE]
    assert plan.header["unmatched_reallocs"] == 1


def test_calls_that_failed_are_left_out_and_the_old_block_stays(plan_of: Planner) -> None:
    plan = plan_of(
        [
            Event(1, 0, MALLOC | FAILED, 0, 0, 1 << 60),
            Event(2, 0, MALLOC, A, 0, 8),
            Event(3, 0, REALLOC | FAILED, 0, A, 1 << 60),
            Event(4, 0, FREE, A),
        ]
    )
    assert kinds(plan.calls(0)) == [MALLOC, FREE]
    assert plan.header["failed"] == 2


def test_a_free_that_the_trace_lost_is_made_up(plan_of: Planner) -> None:
    plan = plan_of(
        [
            Event(1, 0, NEW, A, 0, 8),
            Event(2, 1, MALLOC, A, 0, 9),
            Event(3, 1, FREE, A),
        ]
    )
    assert kinds(plan.calls(1)) == [DELETE, MALLOC, FREE]
    assert plan.header["lost_frees"] == 1
    assert plan.header["left_blocks"] == 0


def test_what_lives_at_the_end_is_left(plan_of: Planner) -> None:
    plan = plan_of([Event(1, 0, MALLOC, A, 0, 8), Event(2, 0, REALLOC, B, A, 20)])
    assert kinds(plan.calls(0)) == [MALLOC, REALLOC]
    assert (plan.header["left_blocks"], plan.header["left_bytes"]) == (1, 20)


def test_a_clock_that_goes_back_does_not_shorten_the_recording(plan_of: Planner) -> None:
    plan = plan_of([Event(50, 0, MALLOC, A, 0, 8), Event(90, 0, FREE, A), Event(60, 0, FREE, B)])
    assert plan.header["duration_ns"] == 40


# ------------------------------------------------- a realloc lasts, and others act meanwhile


@pytest.mark.parametrize("options", [(), ("--one-thread",)])
def test_a_block_moves_to_where_another_is_freed_meanwhile(
    plan_of: Planner, options: Sequence[str]
) -> None:
    """The realloc's event is its call, and the block at its new address dies after that."""
    plan = plan_of(
        [
            Event(1, 0, MALLOC, A, 0, 8),
            Event(2, 1, MALLOC, B, 0, 9),
            Event(3, 0, REALLOC, B, A, 10),
            Event(4, 1, FREE, B),
            Event(9, 0, FREE, B),
        ],
        *options,
    )
    assert plan.header["lost_frees"] == plan.header["unmatched_frees"] == 0
    died = [op.size for _, op in played(plan) if op.kind == FREE]
    assert sorted(died) == [9, 10]


def test_another_thread_may_free_the_moved_block_first(plan_of: Planner) -> None:
    plan = plan_of(
        [Event(1, 0, MALLOC, A, 0, 8), Event(3, 0, REALLOC, B, A, 10), Event(9, 1, FREE, B)]
    )
    assert [op.size for op in plan.calls(1)] == [10]
    assert plan.header["left_blocks"] == 0


def test_two_threads_may_await_the_same_block(plan_of: Planner) -> None:
    """No program does, but a trace may say it: the one that came first is freed unseen."""
    plan = plan_of(
        [
            Event(1, 0, MALLOC, A, 0, 8),
            Event(2, 1, MALLOC, B, 0, 9),
            Event(3, 0, REALLOC, C, A, 10),
            Event(4, 1, REALLOC, C, B, 11),
            Event(5, 0, FREE, A),
            Event(6, 1, FREE, C),
        ]
    )
    assert plan.header["lost_frees"] == 1
    assert [op.size for _, op in played(plan) if op.kind == FREE] == [10, 11]
    assert plan.header["left_blocks"] == 0


# ------------------------------------------------------------------------------------ large ones


def test_a_free_of_an_unknown_block_looks_at_no_thread(plan_of: Planner) -> None:
    """While a realloc lasts, it looked at each of a million: 5 * 10^10 looks, minutes of them."""
    frees = [Event(9, 1, FREE, (1 << 20) + 16 * i) for i in range(50_000)]
    plan = plan_of(
        [
            Event(1, 0, MALLOC, A, 0, 8),
            Event(2, (1 << 20) - 1, MALLOC, C, 0, 8),
            Event(3, 0, REALLOC, A + 64, A, 10),
            *frees,
        ],
        "--one-thread",
    )
    assert plan.header["unmatched_frees"] == len(frees)


@pytest.mark.full
def test_hundreds_of_thousands_of_blocks_may_live_at_once(plan_of: Planner) -> None:
    count = 150_000
    addresses = [64 * (i + 1) for i in range(count)]
    events = [Event(i, 0, MALLOC, address, 0, i) for i, address in enumerate(addresses)]
    random.Random(1).shuffle(addresses)
    events += [Event(count + i, 0, FREE, address) for i, address in enumerate(addresses)]
    plan = plan_of(events)
    assert plan.header["unmatched_frees"] == plan.header["lost_frees"] == 0
    assert plan.header["peak_blocks"] == count
    assert [op.size for op in plan.calls(0)[count:]] == [at // 64 - 1 for at in addresses]


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_no_thread_gets_stuck(plan_of: Planner, threads: int) -> None:
    events = random_events(threads, threads=threads, count=30_000)
    plan = plan_of(events)
    assert plan.header["events"] == len(played(plan)) == len(events)
    assert plan.header["lost_frees"] == plan.header["unmatched_frees"] == 0


def test_every_call_keeps_its_thread_size_and_alignment(plan_of: Planner) -> None:
    events = random_events(5, threads=6, count=20_000)
    plan = plan_of(events)
    recorded = list(dict.fromkeys(event.thread for event in events))
    sizes = {}
    for event in events:  # a free says no size: the block knows
        sizes[event.address] = event.size if event.kind not in (FREE, DELETE) else 0
    for number, thread in enumerate(recorded):
        own = [event for event in events if event.thread == thread]
        calls = plan.calls(number)
        assert kinds(calls) == [event.kind for event in own]
        for event, op in zip(own, calls, strict=True):
            if event.kind not in (FREE, DELETE):
                assert (op.size, op.alignment) == (event.size, event.alignment)


def test_on_one_thread_all_calls_stand_in_the_order_of_time(plan_of: Planner) -> None:
    events = random_events(6, threads=6, count=20_000)
    plan = plan_of(events, "--one-thread")
    assert plan.header["streams"] == 1
    assert kinds(plan.calls(0)) == [event.kind for event in events]


def test_paces_are_never_far_apart(plan_of: Planner) -> None:
    """Else the fastest thread could wait for one that waits for it."""
    events = random_events(7, threads=4, count=30_000)
    plan = plan_of(events)
    # Of the event that has this turn of this slot, its place in the order of time.
    place = {
        (number, op.slot, op.turn): order
        for order, (number, op) in enumerate(sorted_by_time(plan, events))
    }
    for number, stream in enumerate(plan.streams()):
        assert stream[0].kind == PACE
        for op in stream:
            if op.kind == PACE:
                paced = op.turn << 32 | op.slot
            elif op.kind <= DELETE:
                assert 0 <= place[number, op.slot, op.turn] - paced < STEP


def sorted_by_time(plan: PlanFile, events: Sequence[Event]) -> Iterable[tuple[int, Op]]:
    """Each event's operation with its thread, in the order of the events."""
    numbers = {thread: i for i, thread in enumerate(dict.fromkeys(e.thread for e in events))}
    calls = [iter(plan.calls(number)) for number in range(plan.header["streams"])]
    return [(numbers[e.thread], next(calls[numbers[e.thread]])) for e in events]


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


def test_the_same_trace_gives_the_same_plan(plan_of: Planner) -> None:
    events = random_events(9, threads=4, count=5_000)
    plan = plan_of(events)
    assert plan_of(events).content == plan.content
    assert plan_of(events[:-1]).header["checksum"] != plan.header["checksum"]


def test_a_plan_of_nothing_is_empty(plan_of: Planner, tmp_path: Path) -> None:
    assert plan_of([]).header["events"] == 0
