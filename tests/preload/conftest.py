"""What the tests of preloading share: the library under test, and the marker for long ones.

The library is the one that HEAPFIT_LIBRARY names, else the one that heapfit itself would preload.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from heapfit import paths

# The check stands in a module of its own; its assertions are to show the difference, too.
pytest.register_assert_rewrite("checking")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: large servers and browsers; run them with -m slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the slow ones out, and counts them as deselected, unless -m says what to run."""
    if config.getoption("markexpr"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


@pytest.fixture(scope="session")
def library() -> Path:
    named = os.environ.get("HEAPFIT_LIBRARY")
    found = Path(named).absolute() if named else paths.library()
    assert found.is_file(), f"{found} is missing; build it, or name another in HEAPFIT_LIBRARY"
    return found
