"""What `heapfit fit` chooses, of made figures: within a limit of memory, and in noise."""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from design_data import MEMORY, WALL, study_of, trial_of
from heapfit import catalogue
from heapfit.cli import fit as cli
from heapfit.cli import progress
from heapfit.errors import HeapfitError, UsageError
from heapfit.files import check_folder
from heapfit.fit import (
    answer,
    candidates,
    deploy,
    facts,
    foretold,
    goal,
    look,
    page,
    running,
    search,
    state,
)
from heapfit.fit.facts import Facts
from heapfit.records import Metric, Trial, TrialStatus, WorkloadServer
from heapfit.report import Reading
from heapfit.study import default_cores
from heapfit.study.journal import cannot_write
from rich.console import Console
from trace_data import Program, service

MEAN = Metric(name="mean_rss_bytes", label="Mean memory", unit="bytes", better="lower", source="")
MIB, GIB = 2**20, 2**30

# Seconds, peak and mean bytes; the first is today's.
TRUTH = {
    "today": (1.0, 2.0 * GIB, 1.0 * GIB),
    "quick": (0.8, 3.0 * GIB, 1.5 * GIB),
    "lean": (1.2, 1.0 * GIB, 0.9 * GIB),
    "even": (1.0, 2.0 * GIB, 0.5 * GIB),
}


def chosen(
    text: str, truth: Mapping[str, Sequence[float]] = TRUTH, cv: float = 0.005, blocks: int = 12
) -> answer.Answer:
    return judged(text, truth, cv, blocks)[0]


def judged(
    text: str, truth: Mapping[str, Sequence[float]], cv: float, blocks: int
) -> tuple[answer.Answer, Reading]:
    generator = np.random.default_rng(7)
    metrics = (WALL, MEMORY, MEAN)
    study = study_of(list(truth), {"cores": ["1"]}, metrics)
    trials = [
        trial_of(
            study,
            (name,),
            {
                metric.name: figure * float(np.exp(generator.normal(0, cv)))
                for metric, figure in zip(metrics, figures, strict=True)
            },
            block,
        )
        for block in range(blocks)
        for name, figures in truth.items()
    ]
    reading = Reading(study, trials)
    return judged_of(text, reading), reading


def setup_of(text: str, reading: Reading) -> Any:
    return SimpleNamespace(
        goal=goal.parse(text), baseline=reading.study.allocator("today"), keep=[], is_replay=False,
        compare=lambda allocators, blocks: f"compare {allocators} in {blocks}",
    )  # fmt: skip


def judged_of(
    text: str, reading: Reading, dropped: Sequence[answer.NotChosen] = ()
) -> answer.Answer:
    setup: Any = setup_of(text, reading)
    start = answer.Answer(
        choice=None, goal=text, baseline="today", why=[], standings=[], decisions=[],
        not_chosen=list(dropped), exit_code=0, study=None,
    )  # fmt: skip
    return answer.judged(setup, Path("confirm"), reading, start)


@pytest.mark.parametrize("metric", ["wall_s", "requests_per_s"])
def test_the_table_says_which_time_it_has(metric: str) -> None:
    found = chosen("time", {"today": (1.0, GIB, GIB), "quick": (0.5, GIB, GIB)})
    [standing] = found.standings
    assert standing.time
    time = standing.time.model_copy(update={"metric": metric})
    told = found.model_copy(update={"standings": [standing.model_copy(update={"time": time})]})
    assert told.time_word == {"wall_s": "wall time"}.get(metric, "time")


def test_nothing_else_that_was_tried_has_no_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen("time", {"today": (1.0, GIB, GIB), "quick": (0.5, GIB, GIB)})
    assert not found.not_chosen
    shown = Console(file=StringIO())
    monkeypatch.setattr(cli, "results", shown)
    with shown.capture() as said:
        cli._show(found, [])
    assert "Choose quick" in said.get()
    assert "else was tried" not in said.get()


def test_what_is_deployed_is_one_line_for_a_shell(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two bare assignments after a command put nothing into use."""
    file = tmp_path / "heapfit.env"
    file.write_text("HEAPFIT_OPTIONS=decay_ms:1\nLD_PRELOAD=/a b/libheapfit.so\n")
    shown = Console(file=StringIO())
    monkeypatch.setattr(cli, "results", shown)
    with shown.capture() as said:
        cli._show(chosen("time"), [file])
    file.write_text(f"{file.read_text()}# HEAPFIT_OPTIONS=control:on\n")
    assert deploy.shell_line(file).endswith("libheapfit.so' PROGRAM")
    line = "HEAPFIT_OPTIONS=decay_ms:1 LD_PRELOAD='/a b/libheapfit.so' PROGRAM"
    assert line in said.get().splitlines()


def test_one_good_run_more_than_the_first_shows_that_a_program_repeats() -> None:
    ok, failed = TrialStatus.OK, TrialStatus.FAILED
    for statuses, repeats in (
        ([ok, failed, failed], False),
        ([ok, failed, failed, failed, ok], True),
        ([ok], True),
    ):
        trials: Any = [SimpleNamespace(status=each) for each in statuses]
        assert look.repeats(trials) is repeats


def test_ctrl_c_before_the_first_run_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "warn", said.append)
    with pytest.raises(typer.Exit) as ended, progress.told_on_interrupt():
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert said == ["interrupted; the same command continues where it stopped"]


def test_the_page_has_the_answer_and_what_is_deployed_as_text(tmp_path: Path) -> None:
    found, reading = judged("time", TRUTH, 0.005, 12)
    file = tmp_path / "heapfit.env"
    file.write_text("A=<b>\n")
    kept = state.State(
        request=state.Request(command="heapfit fit -- ./program", goal="time"),
        facts=Facts(cores=2, python=0, huge_pages=0, wall_s=1.0),
        candidates=[state.Considered(name="quick", tried=True, reason="<i>", trades="")],
        answer=found,
    )
    made = page.write(kept, reading, [file], tmp_path).read_text()
    assert "Choose quick" in made
    assert "A=&lt;b&gt;" in made
    assert not {"A=<b>", "<i>"} & set(made.split())


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("time", "quick"),
        ("memory", "lean"),
        ("mean", "even"),
        ("peak<=4g", "quick"),
        ("peak<=2200m", None),  # today's is within, and nothing that is, is quicker
        ("peak<=1500m", "lean"),  # today's is not, so that slower is better than ended
        ("mean<=700m", "even"),
        ("mean<=950m", "even"),
    ],
)
def test_the_goal_decides(text: str, choice: str | None) -> None:
    found = chosen(text)
    assert found.choice == choice
    assert found.exit_code == 0


def test_reasons_name_the_goal_where_others_gain_in_something_else() -> None:
    truth = {"today": (1.0, GIB, GIB), "quick": (0.6, GIB, GIB)}
    found = chosen("memory", truth)
    assert found.choice is None
    assert found.why[1].startswith("Judged by rss alone: there is no ")
    assert (
        not chosen("balance", {"today": (1.0, GIB, GIB), "same": (1.0, GIB, GIB)})
        .why[1]
        .startswith("Judged by")
    )


def test_what_loses_wall_time_is_not_chosen_by_its_processor_time() -> None:
    """`--goal time` chose what made the program twice as slow, and never named wall time."""
    generator = np.random.default_rng(2)
    user = Metric(name="user_s", label="User time", unit="s", better="lower", source="wait4")
    study = study_of(["today", "other"], {"cores": ["1"]}, (WALL, user, MEMORY, MEAN))
    for waits_s, choice in ((0.0, "other"), (2.0, None)):
        trials = []
        for block in range(12):
            for name, time_s in (("today", 1.4), ("other", 1.0)):
                wall_s = time_s * 1.3 + generator.exponential(0.1) + waits_s * (name == "other")
                got = {"wall_s": wall_s, "user_s": time_s + generator.normal(0, 0.01),
                       "peak_rss_bytes": GIB, "mean_rss_bytes": GIB}  # fmt: skip
                trials.append(trial_of(study, (name,), got, block))
        found = judged_of("time", Reading(study, trials))
        assert found.choice == choice
        why = " ".join(found.why)
        assert "Time is processor time (user and system) here" in why
        if choice:
            assert "the wall time of today: a gain." in why
        else:
            assert "other needs 29 % less processor time, but " in why
            assert "% more wall time than today" in why
            assert found.not_chosen[0].reason.startswith("better in time, but shown to take more")


@pytest.mark.parametrize("text", ["memory", "mean", "balance"])
def test_without_a_limit_the_goal_decides_not_the_clock(text: str) -> None:
    """One that saved 5 % came before one that saved 75 % for 3 % of time."""
    truth = {"today": (1.0, 2 * GIB, GIB), "lean": (1.03, GIB / 2, GIB / 4),
             "slight": (1.0, 1.9 * GIB, 0.95 * GIB)}  # fmt: skip
    assert chosen(text, truth).choice == "lean"


def test_within_a_limit_who_is_not_slower_by_the_clock_is_chosen() -> None:
    """Where today is above the limit, the order was by processor time alone."""
    generator = np.random.default_rng(2)
    user = Metric(name="user_s", label="User time", unit="s", better="lower", source="wait4")
    study = study_of(["today", "waits", "sound"], {"cores": ["1"]}, (WALL, user, MEMORY, MEAN))
    trials = []
    for block in range(12):
        for name, time_s, size in (("today", 1.4, 2), ("waits", 1.0, 1), ("sound", 1.1, 1)):
            wall_s = time_s * 1.3 + generator.exponential(0.1) + 2.0 * (name == "waits")
            got = {"wall_s": wall_s, "user_s": time_s + generator.normal(0, 0.01),
                   "peak_rss_bytes": size * GIB, "mean_rss_bytes": size * GIB}  # fmt: skip
            trials.append(trial_of(study, (name,), got, block))
    found = judged_of("peak<=1500m", Reading(study, trials))
    assert found.choice == "sound"


def test_of_two_that_do_as_well_the_plainer_is_chosen() -> None:
    truth = {
        "today": TRUTH["today"],
        "heapfit": (0.5, GIB, GIB),
        "heapfit-pools": (0.498, GIB, GIB),
    }
    found = chosen("time", truth, cv=0.02)
    assert found.choice == "heapfit"
    [pools] = found.not_chosen
    assert "not shown to be better than heapfit; the simpler one is preferred: time" in pools.reason
    truth["heapfit-pools"] = (0.4, GIB, GIB)
    found = chosen("time", truth, cv=0.02)
    assert found.choice == "heapfit-pools"
    [plain] = found.not_chosen
    assert plain.reason.startswith("also a gain, but shown to be a smaller one than heapfit-pools'")


def test_beside_a_variant_the_plain_allocator_stays_to_be_measured() -> None:
    good = ["heapfit-pools", "mimalloc", "jemalloc", "heapfit"]
    kept, displaced = search._with_plain(good, 3)
    assert kept == ["heapfit-pools", "mimalloc", "heapfit"]
    brings = "heapfit took its place, since heapfit-pools is judged against it"
    assert displaced == {"jemalloc": brings}
    assert search._with_plain(good[1:], 3) == (["mimalloc", "jemalloc", "heapfit"], {})


def test_no_setting_stays_without_its_plain_allocator() -> None:
    good = ["mimalloc", "heapfit+decay", "jemalloc+decay", "glibc+keep", "heapfit", "jemalloc"]
    kept, displaced = search._with_plain(good, 3)
    assert kept == ["mimalloc", "heapfit+decay", "heapfit"]
    assert displaced["jemalloc+decay"] == (
        "heapfit took its place, since heapfit+decay is judged against it"
    )
    # Of today's allocator nothing but the setting is a candidate.
    assert search._with_plain(["heapfit", *good[2:4]], 2)[0] == ["heapfit", "jemalloc+decay"]


def test_two_settings_need_four_places() -> None:
    kept, displaced = search._with_plain(["a+x", "b+x", "c+x", "a", "b", "c"], 3)
    assert kept == ["a+x", "a", "b"]
    no_place = "there was no place for it and {}, which tells what it brings"
    assert displaced == {"b+x": no_place.format("b"), "c+x": no_place.format("c")}


@pytest.mark.parametrize(
    ("left_s", "pools_s", "stay"),
    [
        (21.0, None, ["heapfit-pools", "heapfit"]),
        (20.9, None, ["heapfit"]),
        (1.0, None, ["heapfit"]),
        # A candidate needs the time that its own trials took.
        (20.9, 0.01, ["heapfit-pools", "heapfit"]),
        (22.0, 0.01, ["heapfit-pools", "mimalloc", "heapfit"]),
    ],
)
def test_where_time_is_short_the_plain_allocator_of_the_best_stays(
    monkeypatch: pytest.MonkeyPatch, left_s: float, pools_s: float | None, stay: Sequence[str]
) -> None:
    found = [SimpleNamespace(name=each) for each in ("heapfit-pools", "mimalloc", "heapfit")]
    state: Any = search.Screened(found)  # type: ignore[arg-type]
    setup: Any = SimpleNamespace(time_s=left_s, baseline=SimpleNamespace(name="glibc"))
    taken = [SimpleNamespace(planned=planned_of("glibc"), took_s=1.0)]
    if pools_s is not None:
        taken.append(SimpleNamespace(planned=planned_of("heapfit-pools"), took_s=pools_s))
    monkeypatch.setattr(search, "steps", lambda _: [Path("look")])
    monkeypatch.setattr(search, "_left_s", lambda *_: left_s)
    monkeypatch.setattr(search, "load", lambda _: (None, taken))
    search.limit_finalists(setup, state, Path())
    assert [each.name for each in state.left] == stay
    assert state.late == [each.name for each in state.dropped]  # none was tried before


def test_where_time_is_short_a_setting_that_is_much_better_stays_without_its_allocator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [SimpleNamespace(name=each) for each in ("heapfit+background", "heapfit")]
    setup: Any = SimpleNamespace(time_s=15.0, baseline=SimpleNamespace(name="glibc"))
    taken = [SimpleNamespace(planned=planned_of("glibc"), took_s=1.0)]
    monkeypatch.setattr(search, "steps", lambda _: [Path("look")])
    monkeypatch.setattr(search, "_left_s", lambda *_: 15.0)
    monkeypatch.setattr(search, "load", lambda _: (None, taken))
    for alone, stays in ((set(), "heapfit"), ({"heapfit+background"}, "heapfit+background")):
        state: Any = search.Screened([*found], alone=alone)  # type: ignore[arg-type]
        search.limit_finalists(setup, state, Path())
        assert [each.name for each in state.left] == [stays]


def test_where_time_is_short_a_block_tells_who_is_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    setup: Any = SimpleNamespace(
        time_s=60.0,
        study=lambda _, names, blocks, *__: asked.append((len(names), blocks)),
        measure=lambda *_: None,
    )
    monkeypatch.setattr(search, "_halve", lambda *_: None)
    two: Any = [SimpleNamespace(name=each) for each in ("heapfit", "heapfit-pools")]
    for trial_s in (3.1, 2.6, 1.0):  # time for 19, 23 and 60 runs
        search.screen(setup, two, Path(), trial_s)
    assert asked == [(2, 1), (2, 1)]
    assert not search.rounds_of(1, 1.0, 60.0)  # nor a heading for it


@pytest.mark.parametrize(
    ("spent_s", "joined"), [(60.0, ["a+x", "glibc+keep"]), (70.0, ["a+x"]), (120.0, [])]
)
def test_settings_of_the_allocators_that_do_well_join_after_a_first_round(
    monkeypatch: pytest.MonkeyPatch, spent_s: float, joined: list[str]
) -> None:
    """Where time was short, settings were tried of whatever came first in the catalogue."""
    asked = []
    glibc, *plain = (SimpleNamespace(name=each, variant_of=None) for each in ["glibc", *"abcdef"])
    setup: Any = SimpleNamespace(
        time_s=300.0,
        baseline=glibc,
        study=lambda _, names, blocks, *__: asked.append(([e.name for e in names], blocks)),
        measure=lambda *_: None,
    )

    def keep_first(_: object, state: search.Screened, __: object, keep: int) -> None:
        state.left = state.left[:keep]

    monkeypatch.setattr(search, "_halve", keep_first)
    monkeypatch.setattr(search, "_spent_s", lambda _: spent_s)
    able = [SimpleNamespace(name=f"{e.name}+x", variant_of=e) for e in (plain[4], plain[0])]
    able.append(SimpleNamespace(name="glibc+keep", variant_of=glibc))
    waiting: Any = [plain[5], *able]
    first: Any = plain[:5]
    state = search.screen(setup, first, Path(), 5.0, waiting)
    assert asked[0] == (["a", "b", "c", "d", "e"], 2)
    assert state.joined == joined
    assert asked[1:] == [([*"abcd", *joined], 2)]
    assert state.late == [each.name for each in waiting if each.name not in joined]


def test_what_there_was_no_time_for_is_counted_in_one_line_with_the_time_for_it() -> None:
    """All names, which the table of candidates has, filled the end once more."""
    screened = search.Screened([], late=["jemalloc", "jemalloc+decay-1s"], unjudged=["mimalloc2"])
    screened.enough_s = 130.0
    stays = chosen("time", {"today": (1.0, GIB, GIB), "same": (1.0, GIB, GIB)})
    found = answer.with_late(stays, screened)
    late = (
        "There was no time to run jemalloc and 1 setting or to measure mimalloc2 again after the "
        "screening; --time 3m would be enough."
    )
    assert found.late == late
    assert found.why == [late, *stays.why]
    # That nothing is better cannot be told without them.
    assert (stays.exit_code, found.exit_code) == (0, 3)
    assert answer.with_late(chosen("time"), screened).exit_code == 0
    settings = answer.with_late(stays, search.Screened([], late=["glibc+keep"]))
    assert settings.exit_code == 0
    better = search.Screened([], unjudged=["heapfit+background"], alone={"heapfit+background"})
    assert answer.with_late(stays, better).exit_code == 3
    assert settings.why[-1].startswith("There was no time to run 1 setting; --time ")
    assert answer.with_late(stays, search.Screened([])) == stays
    one = answer.with_late(stays, search.Screened([], late=["jemalloc"], enough_s=90.0))
    assert one.late == "There was no time to run jemalloc; --time 2m would be enough."
    many = answer.with_late(stays, search.Screened([], late=["a", "b", "a+x", "c", "d"]))
    assert "no time to run a, b, c, 1 other and 1 setting;" in many.late


def candidate(name: str, *, replayable: bool = True) -> candidates.Candidate:
    plain = SimpleNamespace(name=name.partition("+")[0], variant_of=None)
    variant = SimpleNamespace(name=name, variant_of=plain if "+" in name else None)
    return candidates.Candidate(variant, True, "installed", replayable=replayable)  # type: ignore[arg-type]


def test_allocators_come_before_settings_and_a_replay_orders_each_of_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["pools", "glibc+python", "glibc+keep", "lean", "quick"]
    hidden = ("pools", "glibc+python")
    found = [candidate(each, replayable=each not in hidden) for each in names]
    figures = {
        "today": {"replay_peak_bytes": 100.0, "replay_faults": 10.0},
        "quick": {"replay_peak_bytes": 104.0, "replay_faults": 5.0},
        "lean": {"replay_peak_bytes": 97.0, "replay_faults": 50.0},
        "glibc+keep": {"replay_peak_bytes": 1.0, "replay_faults": 1.0},
    }
    monkeypatch.setattr(
        foretold,
        "_figures",
        lambda setup, *_: {
            name: {each: own[each] for each in foretold._by(setup)} for name, own in figures.items()
        },
    )

    def order(text: str) -> list[str]:
        setup: Any = SimpleNamespace(goal=goal.parse(text), baseline=SimpleNamespace(name="today"))
        made: Any = None
        ordered, told = foretold.in_order(setup, found, found[2:], made, Path())
        late = candidates.only(ordered, [ordered[0].name], told, so_far=False)
        assert [each.name for each in late if each.tried] == [ordered[0].name]
        reasons.update({each.name: each.reason for each in late})
        return [each.name for each in ordered]

    reasons: dict[str, str] = {}
    assert order("memory") == ["lean", "quick", "pools", "glibc+keep", "glibc+python"]
    assert order("time") == ["quick", "lean", "pools", "glibc+keep", "glibc+python"]
    # Many more faults count no more than a little more memory does.
    assert order("balance") == ["lean", "quick", "pools", "glibc+keep", "glibc+python"]
    assert reasons["quick"] == (
        "there is time for 1; allow more --time; its replay beside today's: memory 1.04x, "
        "page faults 0.50x"
    )
    figures.pop("lean")
    assert order("balance") == ["quick", "lean", "pools", "glibc+keep", "glibc+python"]
    assert reasons["lean"].endswith("its replay failed")


def test_only_what_a_replay_decides_about_is_replayed() -> None:
    found = [candidate(each) for each in ("heapfit", "jemalloc", "glibc+keep")]
    found.append(candidate("glibc+python", replayable=False))
    for room, names in ((1, ["heapfit", "jemalloc"]), (2, []), (3, ["glibc+keep"])):
        assert [each.name for each in foretold.contenders(found, room)] == names


def test_the_time_that_would_do_for_all_does() -> None:
    for count in range(1, 30):
        time_s = search.enough_s(count, 0.7)
        assert search.room(30, 0.7, time_s) >= count
        assert search.room(count, 0.7, 0.99 * time_s) < max(count, 3)


def test_the_time_that_is_advised_is_more_than_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    _, reading = judged("time", TRUTH, 0.2, 6)
    trials = [each.model_copy(update={"took_s": 1.0}) for each in reading.trials]
    reading = Reading(reading.study, trials)  # four allocators, so that a block takes 4 s
    monkeypatch.setattr(search, "_spent_s", lambda _: 10.0)

    def time_for(time_s: float, blocks: int) -> float | None:
        setup: Any = SimpleNamespace(time_s=time_s)
        return search.time_for(setup, Path("nowhere"), reading, blocks)

    assert time_for(60.0, 20) == pytest.approx((10 + 24 / 7 * 21) / 0.55)
    assert time_for(300.0, 20) is None  # as many blocks as the screening asked for
    assert time_for(60.0, 101) is None


def planned_of(allocator: str, block: int = 1) -> SimpleNamespace:
    return SimpleNamespace(allocator=allocator, block=block, warmup=block == 0)


def _with_failures(trials: Sequence[Trial], counts: Mapping[str, int]) -> list[Trial]:
    """The first trials of each fail, so many."""
    left = Counter(counts)
    found = []
    for trial in trials:
        fails = left[trial.planned.allocator] > 0
        left[trial.planned.allocator] -= 1
        update = {"status": TrialStatus.FAILED, "reason": "exit code 3"} if fails else {}
        found.append(trial.model_copy(update=update))
    return found


def test_who_fails_no_more_often_than_what_is_used_today_can_be_chosen() -> None:
    truth = {"today": (1.0, GIB, GIB), "quick": (0.5, GIB, GIB)}
    _, reading = judged("time", truth, 0.005, 30)

    def choice(counts: Mapping[str, int]) -> answer.Answer:
        trials = _with_failures(reading.trials, counts)
        return judged_of("time", Reading(reading.study, trials))

    found = choice({"today": 3, "quick": 1})
    assert found.choice == "quick"
    assert "failed with today in 3 of 30 runs (exit code 3)" in found.why[-1]
    assert "(exit code 3), in 1 of 30 with quick: find out" in found.why[-1]
    # By chance, one that fails as often has more failed trials every other time.
    assert choice({"today": 3, "quick": 5}).choice == "quick"
    assert choice({"today": 3, "quick": 15}).choice is None
    found = choice({"quick": 1})
    assert found.choice is None
    assert found.not_chosen[-1].reason == "1 of 30 runs failed (0 of 30 with today): exit code 3"


def test_a_goal_of_memory_tells_what_time_would_gain() -> None:
    found = chosen("memory", {"today": (1.0, GIB, GIB), "quick": (0.7, 1.1 * GIB, GIB)})
    assert found.choice is None
    said = found.why[-1]
    assert said.startswith("If time matters as well: quick had time 0.699x (")
    assert " and memory 1.099x (" in said
    assert said.endswith(" MiB; --goal balance judges both.")
    assert found.not_chosen[0].reason.startswith("shown to be worse in memory")


def test_what_time_would_gain_is_of_all_that_ran_in_the_screening_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, reading = judged("memory", {"today": (1.0, GIB, GIB), "slow": (0.8, 1.2 * GIB, GIB)},
                        0.005, 12)  # fmt: skip
    of_all = {"today": (1.0, GIB, GIB), "slow": (0.7, GIB, GIB), "quick": (0.5, 1.4 * GIB, GIB)}
    _, screening = judged("memory", of_all, 0.005, 2)
    monkeypatch.setattr(answer, "read", lambda _: screening)
    (tmp_path / "screen-1").mkdir()
    (tmp_path / "screen-1" / "study.json").touch()

    def told() -> str:
        setup = setup_of("memory", reading)
        standings = answer._Weighed(setup, reading).standings()
        screened = answer._screened(setup, tmp_path, reading)
        return " ".join(answer._traded(standings, screened, setup.goal))

    assert told().startswith("If time matters as well: quick had time ")
    assert "in the screening; --goal balance" in told()
    # What chance may have done is no hint, ...
    _, screening = judged("memory", of_all, 0.6, 3)
    assert "quick" not in told()
    _, screening = judged("memory", of_all, 0.005, 2)
    # ... nor what failed.
    screening = Reading(screening.study, _with_failures(screening.trials, {"quick": 1}))
    assert "slow had time 0.799x (" in told()
    assert "screening" not in told()


def test_what_adds_nothing_to_its_allocator_is_not_commended_for_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = {"today": (1.0, GIB, GIB), "slow": (1.0, 1.2 * GIB, GIB)}
    _, reading = judged("memory", truth, 0.005, 12)
    of_all = {**truth, "heapfit": (0.73, GIB, GIB), "heapfit-pools": (0.72, GIB, GIB)}
    standings = chosen("memory", of_all).standings
    monkeypatch.setattr(answer, "_screened", lambda *_: standings)
    pools = answer.NotChosen(name="heapfit-pools", after="", reason="", adds_nothing=True)
    for dropped, name in (((), "heapfit-pools"), ((pools,), "heapfit")):
        said = judged_of("memory", reading, dropped).why[-1]
        assert said.startswith(f"If time matters as well: {name} had time 0.7")


def test_the_difference_stands_beside_a_ratio_of_memory() -> None:
    small = {"today": (1.0, 6.0 * MIB, 6.0 * MIB), "other": (1.0, 8.5 * MIB, 8.5 * MIB)}
    found = chosen("memory", small, cv=0.001)
    [other] = found.standings
    assert answer.interval(other.memory).endswith("), +2.5 MiB")
    assert not answer.interval(other.time).endswith("B")
    assert "+2.5 MiB" in found.not_chosen[0].reason
    assert found.why[-1].startswith("The program is small (peak memory 6.00 MiB): a difference in")
    chosen_one = chosen("memory", {**small, "other": (1.0, 3.0 * MIB, 3.0 * MIB)}, cv=0.001)
    assert "the rss of today (-3 MiB): a gain" in " ".join(chosen_one.why)
    large = {"today": (1.0, 60.0 * MIB, 6.0 * MIB), "other": (1.0, 85.0 * MIB, 8.5 * MIB)}
    assert not any("fixed cost" in each for each in chosen("memory", large).why)


@pytest.mark.parametrize(
    ("cost", "reason"),
    [
        (1.3, "worse than glibc alone: 1.300x the time"),
        (1.0, "less than 1 % better than glibc alone in time"),
        (0.95, "it needed 0.950x the time of glibc, and a 0.500x the time"),
    ],
)
def test_why_a_setting_is_dropped_says_how_much_it_needed(
    monkeypatch: pytest.MonkeyPatch, cost: float, reason: str
) -> None:
    costs = {"glibc": 1.0, "a": 0.5, "glibc+keep": cost}
    study = study_of(list(costs), {})
    trials = [
        trial_of(study, (name,), {"wall_s": cost * (1 + block / 1000)}, block)
        for block in range(4)
        for name, cost in costs.items()
    ]
    monkeypatch.setattr(search, "load", lambda _: (study, trials))
    left: Any = [SimpleNamespace(name=each) for each in ("a", "glibc+keep")]
    state = search.Screened(left)
    setup: Any = SimpleNamespace(
        baseline=SimpleNamespace(name="glibc"), goal=goal.parse("time"), keep=[]
    )
    search._halve(setup, state, Path("screen-1"), 1)
    [dropped] = state.dropped
    assert (dropped.name, dropped.reason) == ("glibc+keep", reason)
    # What adds nothing is not commended for what else it has.
    assert dropped.adds_nothing == (cost > 0.99)


def test_who_is_left_out_for_lack_of_time_is_told_with_the_figures_of_the_screening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = {"glibc": 1.0, "a": 0.5, "b": 0.8}
    study = study_of(list(costs), {})
    trials = [
        trial_of(study, (name,), {"wall_s": cost * (1 + block / 1000)}, block).model_copy(
            update={"took_s": 1.0}
        )
        for block in range(4)
        for name, cost in costs.items()
    ]
    monkeypatch.setattr(search, "load", lambda _: (study, trials))
    monkeypatch.setattr(search, "_left_s", lambda *_: 14.0)  # for two allocators
    left: Any = [SimpleNamespace(name=each) for each in ("a", "b")]
    setup: Any = SimpleNamespace(
        time_s=60.0, baseline=SimpleNamespace(name="glibc"), goal=goal.parse("time"), keep=[]
    )
    for screened, reason in (
        ([Path("screen-1")], "time was up; it needed 0.800x the time of glibc"),
        ([], "time was up"),
    ):
        monkeypatch.setattr(search, "steps", lambda _: [Path("look")])
        monkeypatch.setattr(search, "screens", lambda _, found=screened: found)
        state = search.Screened([*left])
        search.limit_finalists(setup, state, Path())
        [dropped] = state.dropped
        assert (dropped.name, dropped.reason) == ("b", reason)


@pytest.mark.parametrize(("cost", "alone"), [(0.5, {"a+x"}), (0.9, set())])
def test_a_screening_tells_which_settings_are_much_better_than_their_allocator(
    monkeypatch: pytest.MonkeyPatch, cost: float, alone: set[str]
) -> None:
    study = study_of(["glibc", "a", "a+x"], {})
    costs = {"glibc": 1.0, "a": 0.95, "a+x": cost}
    trials = [trial_of(study, (name,), {"wall_s": each}) for name, each in costs.items()]
    monkeypatch.setattr(search, "load", lambda _: (study, trials))
    left: Any = [SimpleNamespace(name=each) for each in ("a", "a+x")]
    state = search.Screened(left)
    setup: Any = SimpleNamespace(
        baseline=SimpleNamespace(name="glibc"), goal=goal.parse("time"), keep=[]
    )
    search._halve(setup, state, Path("screen-1"), 3)
    assert ([each.name for each in state.left], state.alone) == (["a+x", "a"], alone)


def test_who_fails_in_a_round_is_dropped_where_that_is_not_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program may fail now and then whatever serves it, and today's be lucky so far."""
    study = study_of(["glibc", "a"], {})
    run = [
        trial_of(study, (name,), {"wall_s": 1.0 + block / 1000}, block)
        for block in range(4)
        for name in ("glibc", "a")
    ]
    monkeypatch.setattr(search, "steps", lambda _: [Path("look"), Path("screen-1")])
    setup: Any = SimpleNamespace(
        baseline=SimpleNamespace(name="glibc"), goal=goal.parse("time"), keep=[]
    )
    for before, fails, reasons in (
        (0, 1, []),
        (0, 4, ["4 of 8 runs failed (0 of 8 with glibc): exit code 3"]),
        (3, 3, []),
    ):
        trials = {
            "look": _with_failures(run, {"glibc": before}),
            "screen-1": _with_failures(run, {"a": fails}),
        }
        monkeypatch.setattr(search, "load", lambda part, found=trials: (study, found[part.name]))
        left: Any = [SimpleNamespace(name="a")]
        state = search.Screened(left)
        search._halve(setup, state, Path("screen-1"), 1)
        assert [each.reason for each in state.dropped] == reasons


def test_what_never_ran_is_tried_before_its_time_is_planned(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for slowness, blocks in ((1.0, [6, 89]), (20.0, [6, 7])):
        taken = {"look": [("glibc", 0.1)] * 3}
        asked = []

        def measure(
            asked_for: int, where: Path, taken: Any = taken, slowness: float = slowness
        ) -> None:
            where.mkdir(exist_ok=True)
            blocks = max(asked_for + 1, len(taken.get(where.name, [])) // 2)
            taken[where.name] = [("glibc", 0.1), ("a", 0.1 * slowness)] * blocks

        def load(part: Path, taken: Any = taken) -> tuple[None, Sequence[Any]]:
            return None, [
                SimpleNamespace(planned=planned_of(name, number // 2), took_s=took_s)
                for number, (name, took_s) in enumerate(taken[part.name])
            ]

        where = tmp_path / str(slowness)
        (where / "look").mkdir(parents=True)
        (where / "look" / "study.json").touch()
        (where / "screen-1").mkdir()  # interrupted before it began
        monkeypatch.setattr(search, "load", load)
        setup: Any = SimpleNamespace(
            time_s=18.4,
            baseline=SimpleNamespace(name="glibc"),
            study=lambda _, __, blocks, *___, asked=asked: asked.append(blocks) or blocks,
            measure=measure,
        )
        found: Any = [SimpleNamespace(name="a")]
        search.confirm(setup, search.Screened(found), where)
        assert asked == blocks
        # What is done is not gone on with: the answer would change, and what was deployed.
        (where / "screen-1").rmdir()
        search.confirm(setup, search.Screened(found), where)
        assert asked == 2 * blocks


@pytest.mark.parametrize(("slowness", "blocks"), [(1.0, [2, 10]), (2.0, [2, 6]), (9.0, [2])])
def test_a_round_has_fewer_blocks_where_a_candidate_is_slow(
    monkeypatch: pytest.MonkeyPatch, slowness: float, blocks: list[int]
) -> None:
    """Planned are ten blocks of two runs that take a second each."""
    asked: list[int] = []
    taken = [("glibc", 1.0), ("a", slowness)] * 3
    trials = [
        SimpleNamespace(planned=planned_of(name, number // 2), took_s=took_s)
        for number, (name, took_s) in enumerate(taken)
    ]
    monkeypatch.setattr(search, "load", lambda _: (None, trials))
    monkeypatch.setattr(search, "_halve", lambda *_: None)
    setup: Any = SimpleNamespace(
        baseline=SimpleNamespace(name="glibc"),
        study=lambda _, __, blocks, *___: asked.append(blocks),
        measure=lambda *_: None,
    )
    found: Any = [SimpleNamespace(name="a")]
    search._round(setup, search.Screened(found), Path(), 1, 10, 1, trial_s=1.0)
    assert asked == blocks


def test_a_candidate_is_given_up_by_what_a_run_takes_today() -> None:
    nothing: Any = None
    setup = search.Setup(
        workload=nothing, baseline=nothing, cores=1, goal=goal.parse("time"), keep=[], time_s=60.0,
        timeout_s=50.0, command="", compare=nothing,
    )  # fmt: skip

    def timeout(trial_s: float, **update: Any) -> float:
        return search.with_timeout(replace(setup, **update), trial_s).timeout_s

    assert [timeout(each) for each in (0.1, 1.0)] == [2.0, 4.0]
    assert timeout(1.0, timeout_s=3.0) == 3.0  # the workload's
    assert timeout(1.0, is_timeout_given=True) == 50.0


def test_a_first_run_may_be_slow() -> None:
    fewest = search.FEWEST_RUNS
    search.check_time(60 / fewest, 60.0)
    search.check_time(240 / fewest, 60.0, is_first=True)
    for trial_s, is_first in ((61 / fewest, False), (241 / fewest, True)):
        with pytest.raises(HeapfitError, match="are the fewest that tell anything"):
            search.check_time(trial_s, 60.0, is_first=is_first)


def test_conditions_are_told_in_words() -> None:
    known = Facts(cores=2, python=1, huge_pages=1, processor_share=0.99, hidden="Python hides them")
    said = {
        "python >= 1": "it is a Python program",
        "ruby >= 1": "it is not a Ruby program",
        "huge_pages >= 2": "huge pages: on request (madvise)",
        "processor_share < 0.5": "the program does not sleep",
        "live_share < 0.8": "in use at the peak: not known, for Python hides them",
        "cores > 2": "cores: 2, not > 2",
    }
    assert {each: facts.told(each, known) for each in said} == said
    # What is not known of a program whose objects are hidden is no reason to try anything.
    assert facts.holds("live_share < 0.8", known) is False
    assert facts.holds("live_share < 0.8", known.model_copy(update={"hidden": ""})) is None


def test_what_is_live_is_compared_with_memory_that_is_no_files(tmp_path: Path) -> None:
    trace = service(requests=40).write(tmp_path / "service.hft")
    known = Facts(cores=2, python=0, huge_pages=0, peak_rss_bytes=8.0 * MIB)
    found, _ = look._with_recording(known, trace, 9 * MIB, 3 * MIB)
    assert found.mean_live_share
    assert found.live_bytes
    assert found.live_share == pytest.approx(found.live_bytes / (5 * MIB))


@pytest.mark.parametrize(
    ("time", "memory", "promised"),
    [
        ("wall_s", "peak_rss_bytes", " heapfit fit found 0.8 times the wall time before."),
        ("allocator_s", "replay_peak_bytes", None),
        ("requests_per_s", "peak_pss_bytes", None),
    ],
)
def test_only_figures_of_the_process_are_promised(
    time: str, memory: str, promised: str | None
) -> None:
    """An alert compared the service's resident memory with the peak of a replay's heap, which it
    was always above, and called allocator time the time of the service."""
    truth = {**TRUTH, "quick": (0.8, 1.5 * GIB, 1.5 * GIB)}
    found, reading = judged("time", truth, 0.0001, 12)
    standings = [
        each.model_copy(
            update={
                "time": each.time.model_copy(update={"metric": time}),
                "memory": each.memory.model_copy(update={"metric": memory}),
            }
        )
        for each in found.standings
        if each.time and each.memory
    ]
    made = found.model_copy(update={"standings": standings})
    workload = catalogue.ad_hoc_workload(["true"], None)
    of = deploy.promise(made, reading.summary, workload, "")
    assert of.time == (promised or "")
    assert (of.memory is not None) == bool(promised)
    alerts = deploy._alerts(reading.study.allocator("quick"), of)
    assert ("MemoryAbovePromise" in alerts) == bool(promised)
    assert ("heapfit fit found" in alerts) == bool(promised)
    assert "TimeAboveLastWeek" in alerts
    assert "> 1.1 *" in alerts
    watched = " ".join(deploy._watched(reading.study.allocator("quick"), of))
    assert ("above that of the trials" in watched) == bool(promised)
    assert "processor time is more than 10 % above that of the week before" in watched


@pytest.mark.parametrize(
    ("text", "name", "rule", "most"),
    [
        ("mean", "even", "avg_over_time(process_resident_memory_bytes", 0.5 * GIB),
        ("mean<=600m", "even", "avg_over_time(process_resident_memory_bytes", 0.5 * GIB),
        ("memory", "lean", "max_over_time(process_resident_memory_bytes", 1.0 * GIB),
    ],
)
def test_the_alert_is_on_the_memory_of_the_goal(
    text: str, name: str, rule: str, most: float
) -> None:
    """Of a goal of the mean it was on the peak, which today's allocator did not exceed either."""
    found, reading = judged(text, TRUTH, 0.005, 12)
    assert found.choice == name
    workload = catalogue.ad_hoc_workload(["true"], None)
    of = deploy.promise(found, reading.summary, workload, "")
    assert of.memory is not None
    assert most < of.memory.most < 1.02 * most
    [reached] = [
        each.maximum
        for each in reading.summary.estimates
        if (each.allocator, each.metric) == (name, f"{text[:4]}_rss_bytes".replace("memo", "peak"))
    ]
    assert of.memory.most >= reached
    alerts = deploy._alerts(reading.study.allocator(name), of)
    assert rule in alerts
    assert f"[1h]) > {int(of.memory.most) + 1}" in alerts


def test_no_alert_is_one_that_todays_allocator_would_keep() -> None:
    found, reading = judged("time", TRUTH, 0.005, 12)
    assert found.choice == "quick"
    workload = catalogue.ad_hoc_workload(["true"], None)
    of = deploy.promise(found, reading.summary, workload, "")
    quick = reading.study.allocator("quick")
    alerts = deploy._alerts(quick, of)
    assert "MemoryAbovePromise" not in alerts
    assert "replace it if" not in alerts
    assert "# No rule on memory: the peak may be 3" in alerts
    assert "above that of the trials" not in " ".join(deploy._watched(quick, of))


def test_a_service_without_a_client_has_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    server = WorkloadServer(command=["true"], ready="started")

    def cores_of(*client: str) -> tuple[int, list[str]]:
        made = catalogue.ad_hoc_workload(list(client), None).model_copy(update={"server": server})
        cores = default_cores(made)
        return cores, look.without_client(made, cores)

    assert cores_of("sleep", "7") == (2, [])
    assert cores_of("curl") == (1, ["1 of 2 cores: the other is left for the client."])


def test_memory_that_stays_after_a_peak_is_a_reason_for_a_goal_of_the_mean() -> None:
    """A program that kept 200 MiB for 12 MiB of live blocks was told that nothing applies to it:
    at the peak, all was in use."""
    heap = [200 * MIB, None, None, None, 200 * MIB]
    course: Any = SimpleNamespace(live_bytes=[200 * MIB, *[0] * 4], resident_anonymous=heap)
    assert look._mean_live_share(course, 0) == pytest.approx(0.2)
    assert look._mean_live_share(course, 150 * MIB) == pytest.approx(0.5)
    known = Facts(cores=2, python=0, huge_pages=0, live_share=0.97, mean_live_share=0.2)
    [heapfit] = catalogue.resolve_allocators(["heapfit"])

    def tried(text: str) -> set[str]:
        found = candidates.candidates([heapfit], "glibc", known, goal.parse(text))
        return {each.name.partition("+")[2] for each in found if each.tried and not each.is_plain}

    assert {"least", "decay-50"} <= tried("mean")
    assert {"least", "decay-50"} <= tried("mean<=1g")
    assert not {"least", "decay-50"} & tried("memory")


def test_of_a_program_that_sleeps_what_is_for_such_is_tried_first() -> None:
    """The setting that returns memory meanwhile was left for last, by a replay without a pause."""
    idle = Facts(cores=2, python=0, huge_pages=0, processor_share=0.04, threads=1,
                 mean_live_share=0.2)  # fmt: skip
    installed = catalogue.resolve_allocators(["heapfit"])
    found = candidates.candidates(installed, "glibc", idle, goal.parse("mean"))
    assert [each.name for each in found if each.tried][:2] == ["heapfit", "heapfit+background"]
    setup: Any = SimpleNamespace(goal=goal.parse("mean"), time_s=900.0)
    assert "idle" in (foretold.why_not(setup, idle, 3) or "")


@pytest.mark.parametrize(
    ("faults", "peak", "of_files", "huge_pages", "told"),
    [
        (30_000, 40 * MIB, 0, 0.0, 10_000 - 40 * 256 / 3),
        (11_000, 45 * MIB, 45 * MIB, 1.0, 11_000 / 3),  # node: a fault maps several of a file's
        (40 * 256 + 300, 40 * MIB, 0, 1.0, 100.0),  # it only grows
        (200_512, 1024 * MIB, 0, 2.0, None),  # first faults are of huge pages
        (9_000, 45 * MIB, 0, 1.0, None),  # nor can each page have had one here
    ],
)
def test_repeated_faults_are_those_beyond_the_first_of_each_page(
    faults: int, peak: int, of_files: int, huge_pages: float, told: float | None
) -> None:
    figures = {"wall_s": 3.0, "user_s": 1.0, "system_s": 1.0}
    trial: Any = SimpleNamespace(
        metrics={**figures, "minor_faults": faults, "peak_rss_bytes": peak}
    )
    found = look.by_runs(Facts(cores=2, python=0, huge_pages=huge_pages), [trial])
    assert look._with_faults(found, of_files).faults_per_s == (told and pytest.approx(told))


def test_mean_memory_is_not_judged_by_a_replay_of_a_process_that_was_idle() -> None:
    """A choice by the mean of a replay, which is over before anything has been free for long."""
    busy = Facts(cores=2, python=0, huge_pages=0, processor_share=0.9)
    look.check_goal(busy, goal.parse("mean"))
    idle = busy.model_copy(update={"processor_share": 0.04})
    look.check_goal(idle, goal.parse("balance"))
    for text in ("mean", "mean<=1g"):
        with pytest.raises(HeapfitError, match="idle for 96 % of the time"):
            look.check_goal(idle, goal.parse(text))
    # Nothing at all is not unknown.
    assert look.is_of_idle_time(
        busy.model_copy(update={"processor_share": 0.0}), goal.parse("mean")
    )
    assert not look.is_of_idle_time(
        busy.model_copy(update={"processor_share": None}), goal.parse("mean")
    )


def test_of_a_recording_that_began_late_it_is_not_known_what_was_in_use(tmp_path: Path) -> None:
    """It was a share of memory most of which was older than the recording."""
    made = service(requests=40)
    made.info["began_late"] = True
    trace = made.write(tmp_path / "late.hft")
    found, notes = look._with_recording(Facts(cores=2, python=0, huge_pages=0), trace, 90 * MIB)
    assert (found.live_share, found.mean_live_share) == (None, None)
    assert "is not known: the recording began in a running process." in notes[0]
    assert found.live_bytes


def test_of_a_process_without_a_recorder_a_command_is_named_that_fits_it() -> None:
    """`fit --pid` led to `record --pid`, and after that to an error again."""
    pid = os.getpid()
    with pytest.raises(HeapfitError) as raised:
        running.recorder_of(pid)
    line = f"heapfit record --pid {pid} --for 1m -o {pid}.hft && heapfit fit {pid}.hft"
    assert str(raised.value).endswith(f"this fits a recording of it: {line}")
    assert running._SAMPLED.search("sites:8,sample:512k")
    assert not running._SAMPLED.search("sample:0,sites:8")


@pytest.mark.parametrize("out", ["file", "file/out"])
def test_what_cannot_be_a_folder_is_refused_at_once(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a folder; choose another place with --out"):
        check_folder(tmp_path / out)
    check_folder(tmp_path / "new/out")
    check_folder(tmp_path)


def test_trials_are_said_to_be_kept_where_there_are_some(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "no space left on device")
    (tmp_path / "look").mkdir()
    (tmp_path / "look/trials.jsonl").touch()
    assert str(cannot_write(tmp_path, full)).endswith("repeat the same command")
    (tmp_path / "look/trials.jsonl").write_text("a trial\n")
    assert str(cannot_write(tmp_path, full)).endswith("completed trials are kept")
    nowhere = OSError(errno.ENOENT, "no such file or directory")
    assert "choose another place with --out" in str(cannot_write(tmp_path, nowhere))


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_service_is_recorded_for_a_time_and_keeps_no_recording(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_ended: bool
) -> None:
    made, to, told = tmp_path / "svc.hft", tmp_path / "out.hft", []

    def start(seconds: int) -> SimpleNamespace:
        told.append(seconds)
        made.write_bytes(b"recorded")
        return SimpleNamespace(file=f"{made}")

    def pause(_: float) -> None:
        if is_ended:
            os.kill(os.getpid(), signal.SIGTERM)

    recorder = SimpleNamespace(start=start, stop=lambda: told.append("stop"))
    monkeypatch.setattr(running, "time", SimpleNamespace(sleep=pause))
    with pytest.raises(KeyboardInterrupt) if is_ended else nullcontext():
        running.record(recorder, to, 5.5)
    assert told[0] >= 6  # It ends by itself, whatever becomes of the fit.
    assert "stop" in told
    assert not made.exists()
    assert to.exists() is not is_ended
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_recording_without_events_says_why_it_ended(tmp_path: Path) -> None:
    """Of one without room for its events it was said that the program hardly uses malloc."""
    known = Facts(cores=2, python=0, huge_pages=0)
    full = {"reason": "the limit on the size of files is reached (ulimit -f)"}
    for number, (end, said) in enumerate((
        (None, "it hardly uses malloc"), ({"reason": "stop"}, "it hardly uses malloc"),
        ({"reason": "daemon"}, "it hardly uses malloc"),
        (full, full["reason"]),
    )):  # fmt: skip
        empty = Program().write(tmp_path / f"{number}.hft", end)
        assert look._with_recording(known, empty)[1] == [f"Nothing was recorded: {said}."]
    short = service(requests=40).write(tmp_path / "short.hft", full)
    notes = look._with_recording(known, short)[1]
    assert notes[0] == f"Only the beginning was recorded: {full['reason']}."


@pytest.mark.parametrize(
    ("reason", "lacks_room"),
    [
        ("the disk is full", True),
        ("the user's quota of disk space is used up", True),
        ("the limit on the size of files is reached (ulimit -f)", False),
        ("exit", False),
    ],
)
def test_a_recording_without_room_ends_the_fit_and_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reason: str, lacks_room: bool
) -> None:
    def recorded_run(_: Any, file: Path, *others: Any) -> SimpleNamespace:
        service(requests=40).write(file, {"reason": reason})
        return SimpleNamespace(sources=[look._Witness()])

    monkeypatch.setattr(look, "recorded_run", recorded_run)
    study = study_of(["glibc"], {})
    said = pytest.raises(HeapfitError, match="make room and repeat the same command")
    with said if lacks_room else nullcontext():
        look.record(study, tmp_path, None, "0")
    assert (tmp_path / look.RECORDING).exists() is not lacks_room


def test_a_program_that_mostly_leaves_a_process_running_ends_the_fit() -> None:
    workload = catalogue.ad_hoc_workload(["true"], None)
    trial = trial_of(study_of(["glibc"], {}), ["glibc"], {"wall_s": 1.0})
    daemon = trial.model_copy(update={"left_running": 1})
    look.check_foreground(workload, [trial, daemon])
    with pytest.raises(HeapfitError, match="keep it in the foreground"):
        look.check_foreground(workload, [trial, daemon, daemon])
    server = WorkloadServer(command=["true"])
    look.check_foreground(workload.model_copy(update={"server": server}), [daemon, daemon])


def test_candidates_that_do_not_apply_are_one_row() -> None:
    shown = Console(file=StringIO(), width=120)
    out = candidate("glibc+php")
    out = replace(out, tried=False, applies=False, reason="it is not a PHP program")
    late = replace(candidate("glibc+keep"), tried=False, reason="there is time for 1")
    with shown.capture() as said:
        shown.print(cli._rows([candidate("heapfit"), out, replace(out), late]))
    lines = [" ".join(each.split()) for each in said.get().splitlines()]
    assert lines[1:] == [
        "try heapfit installed",
        "- glibc+keep there is time for 1",
        "- 2 settings not for this program; --json says why",
    ]


def test_within_a_limit_is_who_has_all_of_its_runs_there() -> None:
    found = chosen("peak<=1500m")
    limited = {each.name: each.limited for each in found.standings}
    highest = limited["lean"]
    assert GIB < highest < 1.02 * GIB
    mean = chosen("mean<=950m")
    assert "at the upper end of the 95 % interval: within mean<=950m" in mean.why[-1]
    assert "peak resident memory is 1 GiB in its highest run" in found.why[-1]
    reasons = {each.name: each.reason for each in found.not_chosen}
    assert reasons["quick"].startswith("above peak<=1500m: 3")
    assert chosen(f"peak<={int(highest) + 1}").choice == "lean"
    assert chosen(f"peak<={int(highest) - 1}").choice is None


def test_noise_that_hides_a_gain_is_told_with_what_it_would_take() -> None:
    alike = {"today": (1.0, GIB, GIB), "other": (1.0, GIB, GIB)}
    quiet = chosen("time", alike)
    assert (quiet.choice, quiet.exit_code) == (None, 0)
    assert not any(each.untold for each in quiet.standings)
    assert quiet.why[0].startswith("No candidate is shown to be better")
    noisy = chosen("time", alike, cv=0.2)
    assert (noisy.choice, noisy.exit_code) == (None, 3)
    assert quiet.headline == "Stay with today"
    assert noisy.headline == "Stay with today for now: inconclusive"
    assert "Whether other has less wall time than today is not known" in noisy.why[0]
    assert "would show a gain of 5 %" in noisy.why[1]
    assert "more than fit would run" in noisy.why[1]
    assert "compare other=" in noisy.why[1]
    # That there is no difference is no second answer.
    assert len(noisy.why) == 2
    nobody: Any = None
    hopeless = answer._what_it_takes(nobody, Path(), nobody, None, "")
    assert hopeless.endswith("would settle it: use a quieter machine.")
    assert noisy.standings[0].untold == ["wall_s"]


def test_a_mean_that_may_be_on_either_side_of_a_limit_is_no_answer() -> None:
    """A setting was chosen whose interval ended just below the limit, and today's just above."""
    truth = {"today": (1.0, GIB, 100.0 * MIB), "other": (1.0, GIB, 100.0 * MIB)}
    for limit, code in (("80m", 1), ("100m", 3), ("120m", 0)):
        found = chosen(f"mean<={limit}", truth, cv=0.02)
        assert (found.choice, found.exit_code) == (None, code)
    near = chosen("mean<=100m", truth, cv=0.02)
    assert near.why[0].startswith("Whether today is within mean<=100m is not known: ")
    # Today's is above, for certain.
    truth = {"today": (1.0, GIB, 200.0 * MIB), "other": (1.0, GIB, 100.0 * MIB)}
    for limit, choice, code in (("100m", None, 3), ("120m", "other", 0)):
        found = chosen(f"mean<={limit}", truth, cv=0.02)
        assert (found.choice, found.exit_code) == (choice, code)


def test_what_no_choice_could_be_is_no_open_question() -> None:
    """Of one beyond the limit it was said that more time would tell whether it is quicker."""
    truth = {"today": (1.0, 50.0 * MIB, MIB), "large": (1.0, 300.0 * MIB, MIB)}
    for limit, code in (("150m", 0), ("1g", 3)):
        found = chosen(f"peak<={limit}", truth, cv=0.2)
        assert (found.choice, found.exit_code) == (None, code)


def test_more_requests_a_second_are_less_time() -> None:
    """One with a tenth fewer was commended: "had time 0.900x"."""
    rate = Metric(name="rate", label="Requests per second", unit="1/s", better="higher", source="")
    for more, cv, told in ((1.2, 0.005, True), (0.9, 0.005, False), (1.0, 0.2, False)):
        generator = np.random.default_rng(3)
        study = study_of(["today", "other"], {"cores": ["1"]}, (rate, MEMORY, MEAN))
        study = study.model_copy(update={"primary_metric": "rate"})
        trials = []
        for block in range(12):
            for name, requests in (("today", 1000.0), ("other", 1000.0 * more)):
                got = {"rate": requests * float(np.exp(generator.normal(0, cv))),
                       "peak_rss_bytes": GIB, "mean_rss_bytes": GIB}  # fmt: skip
                trials.append(trial_of(study, (name,), got, block))
        reading = Reading(study, trials)
        found = judged_of("memory", reading)
        assert any("If time matters as well: other had time 0.8" in s for s in found.why) is told
        time = judged_of("time", reading)
        assert time.choice == ("other" if told else None)
        assert time.exit_code == (3 if cv > 0.1 else 0)
        assert (time.standings[0].time.estimate < 1) is told or cv > 0.1


def reason(text: str, other: tuple[float, float, float], cv: float = 0.005) -> str:
    """Why another than today's is not chosen."""
    found = chosen(text, {"today": (1.0, 100.0 * MIB, 100.0 * MIB), "other": other}, cv=cv)
    assert found.choice is None
    [of_other] = found.not_chosen
    return of_other.reason


def test_why_something_is_not_chosen_agrees_with_its_row() -> None:
    alike = (1.0, 100.0 * MIB, 100.0 * MIB)
    assert reason("balance", alike).startswith("not shown to be better in time or memory: ")
    assert reason("time", alike).startswith("not shown to be better in time: ")
    little = (1.0, 99.5 * MIB, 100.0 * MIB)
    more, most = ((1.0, size * MIB, 100.0 * MIB) for size in (100.5, 200.0))
    found = chosen("balance", {"today": alike, "other": more, "large": most}, cv=1e-4)
    assert found.why[:2] == [
        "No candidate is shown to be better than today by enough to matter.",
        "today differs from other by too little to notice in memory.",
    ]
    said = reason("balance", little, cv=1e-4)
    assert said.startswith(
        "saves under 1 MiB of memory, too little to matter, and not shown to be better in time: "
    )
    assert "memory 0.995x" in said
    said = reason("balance", (1.0, 99.0 * MIB, 100.0 * MIB), cv=1e-3)
    assert said.startswith("may save under 1 MiB of memory, too little to matter")
    said = reason("balance", (1.05, 95.0 * MIB, 100.0 * MIB))
    assert said.startswith("better in memory and worse in time, and not shown to be better in both")
