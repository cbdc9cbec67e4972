"""What size classes add is asked of the allocators themselves, once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import profile_tables
import pytest
from heapfit import catalogue
from heapfit.profile import analyse, rounding
from heapfit.records import InstalledAllocator
from profile_tables import Block, Tables, complete, write


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEAPFIT_HOME", str(tmp_path / "home"))


def glibc() -> InstalledAllocator:
    [system] = catalogue.resolve_allocators(["glibc"])
    return system


def test_glibc_keeps_eight_bytes_of_each_sixteen_for_itself() -> None:
    found = rounding.usable_sizes(glibc(), [0, 1, 24, 25, 40, 41, 1000])
    assert found == {0: 24, 1: 24, 24: 24, 25: 40, 40: 40, 41: 56, 1000: 1000}


def test_the_preloaded_library_is_asked_and_no_other() -> None:
    library = next(Path("/usr/lib").glob("*/libjemalloc.so.2"))
    jemalloc = glibc().model_copy(update={"name": "jemalloc", "library": library})
    found = rounding.usable_sizes(jemalloc, [1, 17, 33, 1000])
    assert found == {1: 8, 17: 32, 33: 48, 1000: 1024}


def test_waste_is_of_all_allocations_and_of_the_peak(tmp_path: Path) -> None:
    blocks = profile_tables.random_blocks(seed=4, count=500)
    info = {"allocator": "/usr/lib/libdoubling.so"}
    tally = analyse.count(write(tmp_path / "t", Tables(blocks, threads="abc", info=info)))

    def doubled(size: int) -> int:
        whole = 16
        while whole < size:
            whole *= 2
        return whole

    def ask(allocator: InstalledAllocator, sizes: Sequence[int]) -> dict[int, int]:
        return {size: doubled(size) for size in sizes}

    allocator = glibc().model_copy(
        update={"name": "doubling", "library": Path("/opt/libdoubling.so")}
    )
    [found] = rounding.waste(tally, [allocator], ask).allocators
    at, _ = profile_tables.peak_of(blocks)
    live = [b for b in blocks if b.born_ns <= at and (b.died_ns is None or b.died_ns > at)]
    assert found.recorded
    assert found.waste == pytest.approx(
        sum(doubled(b.size) - b.size for b in blocks) / sum(b.size for b in blocks), rel=1e-3
    )
    assert found.peak_bytes == pytest.approx(sum(doubled(b.size) - b.size for b in live), rel=1e-3)
    assert found.peak_waste == pytest.approx(found.peak_bytes / sum(b.size for b in live), rel=1e-3)


def test_an_allocator_that_cannot_be_asked_is_named(tmp_path: Path) -> None:
    tally = analyse.count(write(tmp_path / "t", Tables(complete([Block(24, 0)]))))
    (tmp_path / "libnone.so").write_text("")
    none = glibc().model_copy(update={"name": "none", "library": tmp_path / "libnone.so"})
    found = rounding.waste(tally, [glibc(), none])
    assert [each.allocator for each in found.allocators] == ["glibc"]
    assert len(found.unknown) == 1
    assert found.unknown[0].startswith("none: ")
