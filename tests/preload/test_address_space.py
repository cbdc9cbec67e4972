"""What a process gets of an address space that is limited (RLIMIT_AS), and leaves to others."""

from __future__ import annotations

from pathlib import Path

import pytest
from subjects import compiled, run

LIMIT_MIB = 256


@pytest.fixture(scope="session")
def address_space(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("address_space.c", tmp_path_factory.mktemp("address_space"), "-fno-builtin")


def printed(*words: str | Path, library: Path) -> str:
    done = run(*words, preload=library)
    done.check_returncode()
    return done.stdout


def test_nearly_all_of_a_limited_address_space_can_be_had(
    address_space: Path, default_library: Path
) -> None:
    got = printed(address_space, "start", str(LIMIT_MIB), library=default_library)
    assert int(got) >= 0.9 * LIMIT_MIB


@pytest.mark.parametrize("mib", [13, 15, 17])
def test_a_program_under_a_small_limit_has_memory(
    address_space: Path, library: Path, mib: int
) -> None:
    assert int(printed(address_space, "start", str(mib), library=library)) >= 1


def test_a_limit_that_comes_after_a_large_heap_leaves_room_for_others(
    address_space: Path, library: Path
) -> None:
    assert printed(address_space, library=library) == "done\n"
