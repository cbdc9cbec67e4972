"""A process is attached to whose modules do not all call the same malloc in the same way."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from heapfit import paths
from subjects import compiled
from test_attach import PATTERN_SIZE, attacher, nothing_forbids_it, running, stop  # noqa: F401
from test_attach import pytestmark as pytestmark
from trace_file import read_trace


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("attached_scopes.c", tmp_path_factory.mktemp("scopes"), "-fno-builtin")


def _blocks_seen(file: Path) -> int:
    """How many of the blocks that the program was asked for are in the recording."""
    return Counter(event.size for event in read_trace(file).events)[PATTERN_SIZE]


def test_calls_are_seen_of_a_program_that_takes_mallocs_address(tmp_path: Path) -> None:
    fixed = compiled("attached_scopes.c", tmp_path, "-fno-builtin", "-no-pie", "-fno-pie")
    with running([fixed, "stub"]) as subject:
        assert subject.ask("10") == "done"
        assert attacher(subject.pid, tmp_path / "trace.hft").returncode == 0
        assert subject.ask("1000") == "done"
        stop(subject.pid)
        assert subject.ask("10") == "done"
        subject.end()
    assert _blocks_seen(tmp_path / "trace.hft") == 1000


@pytest.mark.parametrize(
    ("binding", "allocator", "preloaded"),
    [("lazy", "libc's", "nothing"), ("now", "its own", "heapfit")],
)
def test_a_library_with_a_scope_of_its_own_keeps_its_allocator(
    program: Path, tmp_path: Path, binding: str, allocator: str, preloaded: str
) -> None:
    options = ["-fno-builtin", "-shared", "-fPIC", f"-Wl,-z,{binding}"]
    options += ["-DOWN"] if allocator == "its own" else []
    plugin = compiled("attached_plugin.c", tmp_path, *options, to="plugin.so")
    library = {"LD_PRELOAD": str(paths.library())} if preloaded == "heapfit" else {}
    with running([program, "plugin", plugin], env={**os.environ, **library}) as subject:
        assert attacher(subject.pid, tmp_path / "trace.hft").returncode == 0
        assert subject.ask("100") == "done"
        subject.end()
    assert _blocks_seen(tmp_path / "trace.hft") == 100


def test_a_program_of_many_mappings_is_recorded(program: Path, tmp_path: Path) -> None:
    with running([program, "mappings", "40000"]) as subject:
        assert attacher(subject.pid, tmp_path / "trace.hft").returncode == 0
        assert subject.ask("100") == "done"
        stop(subject.pid)
        subject.end()
    assert _blocks_seen(tmp_path / "trace.hft") == 100
