"""The simulated caches are this machine's, as the kernel describes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from heapfit.trial.simulation import CACHES, cache_options

pytestmark = pytest.mark.full

DESCRIBED = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")


def describe(folder: Path, *caches: tuple[str, str, str, str, str]) -> Path:
    """Write caches down as the kernel does."""
    for number, cache in enumerate(caches):
        index = folder / f"index{number}"
        index.mkdir()
        for name, text in zip(DESCRIBED, cache, strict=True):
            (index / name).write_text(f"{text}\n")
    return folder


FIRST = (("1", "Data", "48K", "12", "64"), ("1", "Instruction", "32K", "8", "64"))


def test_the_first_level_and_the_last_are_simulated(tmp_path: Path) -> None:
    caches = describe(
        tmp_path,
        *FIRST,
        ("2", "Unified", "1024K", "8", "64"),
        ("3", "Unified", "32768K", "16", "64"),
    )
    assert cache_options(caches) == ["--I1=32768,8,64", "--D1=49152,12,64", "--LL=33554432,16,64"]


def test_where_there_is_no_third_level_the_second_is_the_last(tmp_path: Path) -> None:
    caches = describe(tmp_path, *FIRST, ("2", "Unified", "2048K", "16", "64"))
    assert cache_options(caches)[-1] == "--LL=2097152,16,64"


def test_sets_that_are_no_power_of_two_become_ways(tmp_path: Path) -> None:
    caches = describe(tmp_path, ("3", "Unified", "36864K", "12", "64"))
    assert cache_options(caches) == ["--LL=37748736,18,64"]  # 32768 sets in place of 49152


@pytest.mark.parametrize("number", range(len(DESCRIBED)))
@pytest.mark.parametrize("text", ["", "0", "unknown"])
def test_what_is_not_described_is_left_to_valgrind(tmp_path: Path, number: int, text: str) -> None:
    cache = ["3", "Unified", "32768K", "16", "64"]
    cache[number] = text
    caches = describe(tmp_path, *FIRST, tuple(cache))
    assert [each for each in cache_options(caches) if each.startswith("--LL")] == []
    assert cache_options(tmp_path / "nothing") == []


def test_valgrind_takes_them(tmp_path: Path) -> None:
    output = tmp_path / "out"
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *cache_options(CACHES)]
    subprocess.run([*command, f"--cachegrind-out-file={output}", "true"], check=True)
    told = {line.split()[1] for line in output.read_text().splitlines() if "desc:" in line}
    assert {"I1", "D1", "LL"} <= told
    for option in cache_options(CACHES):
        name, _, geometry = option.removeprefix("--").partition("=")
        assert f"desc: {name} cache:         {geometry.split(',')[0]} B" in output.read_text()
