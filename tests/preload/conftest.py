"""What the tests of preloading share: the libraries under test, and a program.

These are the variants that heapfit itself would preload; HEAPFIT_LIBRARY, HEAPFIT_POOLS_LIBRARY and
HEAPFIT_HARDENED_LIBRARY name others in their place.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from comparison import TIMEOUT_S, Program
from heapfit import paths
from subjects import compiled

# pytest's own limit for a test: each program runs twice, within a limit of its own.
TEST_TIMEOUT_S = 2 * TIMEOUT_S + 60

# The servers that tests start are here; a proxy, if there is one, is for those elsewhere.
os.environ["no_proxy"] = ",".join(["127.0.0.1", os.environ.get("no_proxy", "")])

# The check stands in a module of its own; its assertions are to show the difference, too.
pytest.register_assert_rewrite("checking")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
    items[:] = [item for item in items if not _is_hardened_otherwise(item)]


def _is_hardened_otherwise(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    hardened = callspec is not None and callspec.params.get("library") == "hardened"
    return hardened and item.get_closest_marker("unhardened") is not None


VARIABLES = {
    "default": "HEAPFIT_LIBRARY",
    "pools": "HEAPFIT_POOLS_LIBRARY",
    "hardened": "HEAPFIT_HARDENED_LIBRARY",
}
# Some programs run under them in every run (test_hardened.py, test_pools.py).
FULL = {"hardened", "pools"}


def variant_library(variant: str) -> Path:
    variable = VARIABLES[variant]
    named = os.environ.get(variable)
    found = Path(named).absolute() if named else paths.library(variant)
    assert found.is_file(), f"{found} is missing; build it, or name another in {variable}"
    return found


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(each, marks=[pytest.mark.full] if each in FULL else []) for each in VARIABLES
    ],
)
def library(request: pytest.FixtureRequest) -> Path:
    """Each variant in turn: what real programs are run under."""
    return variant_library(request.param)


@pytest.fixture(scope="session")
def phases(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Threads that take and free 40 MiB, so that all is done that is done for large heaps."""
    program = compiled("phases.c", tmp_path_factory.mktemp("phases"))
    return Program("phases", [str(program), "40"], {"phases"}, ["gcc", "libc6-dev"])


@pytest.fixture(scope="session")
def default_library() -> Path:
    return variant_library("default")


@pytest.fixture(scope="session")
def pools_library() -> Path:
    return variant_library("pools")


@pytest.fixture(scope="session")
def hardened_library() -> Path:
    return variant_library("hardened")
