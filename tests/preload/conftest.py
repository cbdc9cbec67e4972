"""What the tests of preloading share: the library under test.

The library is the one that HEAPFIT_LIBRARY names, else the one that heapfit itself would preload.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comparison import TIMEOUT_S
from heapfit import paths

# pytest's own limit for a test: each program runs twice, within a limit of its own.
TEST_TIMEOUT_S = 2 * TIMEOUT_S + 60

# The check stands in a module of its own; its assertions are to show the difference, too.
pytest.register_assert_rewrite("checking")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def library() -> Path:
    named = os.environ.get("HEAPFIT_LIBRARY")
    found = Path(named).absolute() if named else paths.library()
    assert found.is_file(), f"{found} is missing; build it, or name another in HEAPFIT_LIBRARY"
    return found
