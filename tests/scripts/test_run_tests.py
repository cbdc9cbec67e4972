"""`scripts/run-tests` never calls a suite good whose preparation failed."""

from __future__ import annotations

import importlib.util
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "scripts" / "run-tests"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, whose results go to a folder of the test's own."""
    loader = SourceFileLoader("run_tests", str(PROGRAM))
    spec = importlib.util.spec_from_loader("run_tests", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "run_tests", module)  # its dataclass asks for it
    loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    return module


@pytest.mark.parametrize(("preparation", "code"), [("true", "0"), ("false", "1")])
def test_a_suite_fails_with_what_it_needs(
    runner: ModuleType, tmp_path: Path, preparation: str, code: str
) -> None:
    steps = [
        runner.Step("build", [preparation]),
        runner.Step("tests", ["true"], ("build",), suite="tests", tier=runner.EVERYDAY),
    ]
    runner.Run(steps, time.monotonic() + 60).run()
    assert (tmp_path / "tests.exit").read_text().strip() == code
