"""What a study says about the machine that it ran on."""

from __future__ import annotations

import pytest
from heapfit.machine import describe


def test_variables_that_steer_an_allocator_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    notes = describe().notes
    assert "MALLOC_ARENA_MAX=1 is set in the environment of every trial" in notes
