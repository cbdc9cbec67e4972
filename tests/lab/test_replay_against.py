"""The ranking of a replay beside that of the real program."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from engine_helpers import study_of, system_allocator, workload
from heapfit.errors import UsageError
from heapfit.records import PlannedTrial, Summary, Trial, TrialStatus, WorkloadMetric
from heapfit.replay import agreements, halved
from heapfit.statistics import Readings, read, summarise

Figures = Mapping[str, float]  # by allocator

NAMES = ("glibc", "heapfit", "jemalloc", "mimalloc")


def metric(name: str) -> WorkloadMetric:
    return WorkloadMetric(name=name, label=name, unit="s", pattern="(.)", better="lower")


def summary(figures: Mapping[str, Figures], primary: str) -> Summary:
    """A study's summary with the `figures` of each metric, the same in three replicates."""
    return summarise(readings(figures, primary))


def readings(
    figures: Mapping[str, Figures], primary: str, blocks: int = 3, odd: Figures | None = None
) -> Readings:
    """The trials of such a study; in every second block `odd` is the primary metric's."""
    names = sorted({allocator for each in figures.values() for allocator in each})
    own = [metric(name) for name in figures if name not in ("wall_s", "peak_rss_bytes")]
    study = study_of(
        workload("true", metrics=own),
        [system_allocator(name) for name in names],
        replicates=blocks,
        warmups=0,
        primary_metric=primary,
    )

    def _of(name: str, planned: PlannedTrial) -> Figures:
        return odd if odd and name == primary and planned.block % 2 else figures[name]

    trials = [
        Trial(
            planned=planned,
            status=TrialStatus.OK,
            started=datetime.now(UTC),
            metrics={
                name: _of(name, planned)[planned.allocator]
                for name, each in figures.items()
                if planned.allocator in each
            },
        )
        for planned in study.plan
        if not planned.warmup
    ]
    return read(study, trials)


def ranked(*costs: float) -> Figures:
    return dict(zip(NAMES, costs, strict=False))


def replayed(time: Figures, memory: Figures) -> Summary:
    return summary({"allocator_s": time, "replay_peak_bytes": memory}, "allocator_s")


def test_the_same_ranking_is_one_and_the_reverse_is_minus_one() -> None:
    replay = replayed(ranked(4, 3, 2, 1), ranked(10, 20, 30, 40))
    real = summary(
        {"wall_s": ranked(9, 8, 7, 6), "peak_rss_bytes": ranked(400, 300, 200, 100)}, "wall_s"
    )
    time, memory = agreements(replay, real)
    assert (time.what, time.tau) == ("time", pytest.approx(1))
    assert (memory.what, memory.tau) == ("memory", pytest.approx(-1))
    assert [place.allocator for place in time.places] == [
        "mimalloc",
        "jemalloc",
        "heapfit",
        "glibc",
    ]
    assert [place.real_rank for place in time.places] == [1, 2, 3, 4]
    assert [place.replayed_rank for place in memory.places] == [4, 3, 2, 1]
    assert time.places[-1].real == pytest.approx(1.5)
    assert time.places[-1].replayed == pytest.approx(4)


def test_two_allocators_are_no_ranking() -> None:
    replay = replayed(ranked(1, 2), ranked(1, 2))
    with pytest.raises(UsageError, match="2 allocators in common; a ranking needs 3"):
        agreements(replay, summary({"wall_s": ranked(1, 2, 3)}, "wall_s"))


def test_the_halves_of_the_real_program_say_what_is_to_be_had() -> None:
    replay = replayed(ranked(1, 2, 3, 4), ranked(1, 2, 3, 4))
    figures = {"wall_s": ranked(1, 2, 3, 4), "peak_rss_bytes": ranked(1, 2, 3, 4)}
    real = readings(figures, "wall_s", blocks=6, odd=ranked(1, 2, 4, 3))
    time, memory = agreements(replay, summarise(real), halved(real))
    assert time.halves == pytest.approx(4 / 6)
    assert memory.halves == pytest.approx(1)
    assert halved(readings(figures, "wall_s", blocks=3)) is None
