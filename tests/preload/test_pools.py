"""The variant with pools does not mind what it cannot look into.

Programs run as ever, and what was left alone since it could not be understood is counted.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checking import check_same_with_and_without
from comparison import Program
from pool_programs import NOT_UNDERSTOOD, PROGRAMS, HardProgram, build

pytestmark = pytest.mark.full

# As users have it; and with every group placed, and the longest chains, each walked to its end.
SETTINGS = ["pools:judged", "pools:all,pool_chain:full"]


@pytest.fixture(scope="session", params=PROGRAMS, ids=lambda hard: hard.program.name)
def hard_program(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[HardProgram, Program]:
    """A program, as it is described and as it has been built."""
    return request.param, build(request.param, tmp_path_factory.mktemp("pools") / "built")


def check_and_explain(
    program: Program, settings: str, library: Path, place: Path
) -> dict[str, Any] | None:
    """Checks that `program` runs as without the library; returns what was explained, if it was."""
    explanation = place / "explanation.json"
    variables = {"HEAPFIT_OPTIONS": settings, "HEAPFIT_POOLS_EXPLAIN": str(explanation)}
    explained = replace(program, environment={**program.environment, **variables})
    check_same_with_and_without(explained, library, place)
    if not explanation.exists():
        return None
    content: dict[str, Any] = json.loads(explanation.read_text())
    assert content["format"] == "heapfit-pools/1"
    return content


@pytest.mark.parametrize("settings", SETTINGS)
def test_behaves_the_same_where_chains_are_hard_to_see(
    hard_program: tuple[HardProgram, Program], settings: str, pools_library: Path, tmp_path: Path
) -> None:
    hard, program = hard_program
    content = check_and_explain(program, settings, pools_library, tmp_path)
    if hard.falls_back:
        assert content is not None, "nothing has been explained"
        fallback = content["counters"]["fallback"]
        assert sum(fallback[reason] for reason in NOT_UNDERSTOOD) > 0, fallback


@pytest.mark.gate
def test_an_ordinary_program_is_understood(pools_library: Path, tmp_path: Path) -> None:
    """So that what is counted above is no mistake that is made with every program."""
    # Where the compiler has made no wrapper part of its caller.
    ordinary = next(hard for hard in PROGRAMS if hard.program.name == "unoptimised")
    program = build(ordinary, tmp_path / "built")
    content = check_and_explain(program, "pools:judged", pools_library, tmp_path)
    assert content is not None, "nothing has been explained"
    assert content["groups"], "no group has been found"
    assert content["counters"]["chain_length_mean"] > 1, "no wrapper has been recognised"
