"""`heapfit allocators`: what the catalogue knows and what this machine has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Heapfit

pytestmark = pytest.mark.full


def test_installing_from_a_package_index_makes_it_usable(
    run_heapfit: Heapfit, empty_home: Path
) -> None:
    empty = {"HEAPFIT_HOME": str(empty_home)}
    result = run_heapfit("allocators", "install", "mimalloc", "--json", environment=empty)
    assert result.returncode == 0, result.stderr
    [installed] = json.loads(result.stdout)
    assert installed["library"].endswith("/allocators/mimalloc/libmimalloc.so")
    again = run_heapfit("allocators", "install", "mimalloc", environment=empty)
    assert again.returncode == 0
    assert "downloading" not in again.stderr
