"""The examples in the documentation of modules are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import heapfit
import pytest

SOURCES = Path(heapfit.__file__).parent
MODULES = [
    ".".join(path.relative_to(SOURCES.parent).with_suffix("").parts)
    for path in sorted(SOURCES.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name.removesuffix(".__init__")))
    assert outcome.attempted > 0
    assert outcome.failed == 0
