"""The background thread leaves the program's descriptors alone, and no file is opened when a filter
may end the process for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from subjects import compiled, run

NO_FILTER = 77  # of programs/apart.c


@pytest.fixture(scope="session")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("apart.c", tmp_path_factory.mktemp("apart"), "-fno-builtin")


def test_the_background_thread_has_descriptors_of_its_own(
    apart: Path, default_library: Path
) -> None:
    done = run(apart, "descriptors", preload=default_library)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@pytest.mark.full
@pytest.mark.parametrize("when", ["filter", "filter-at-once"])
def test_the_background_thread_leaves_a_process_whose_filter_kills_for_opening_files(
    apart: Path, default_library: Path, when: str
) -> None:
    done = run(apart, when, preload=default_library)
    if done.returncode == NO_FILTER:
        pytest.skip("here no filter can be installed")
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
