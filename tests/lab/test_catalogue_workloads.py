"""Workloads are read from TOML; their data is prepared once and appears whole."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from heapfit import catalogue
from heapfit.errors import HeapfitError, UsageError

TOML = """
name = "letters"
title = "Sort letters"
question = "None to speak of."

[install]
programs = ["sort"]

[prepare]
command = ["sh", "-c", "echo run >> '{here}/runs'; echo b a > '{data}/letters'"]
version = 3

[run]
command = ["sort", "{data}/letters"]
"""


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEAPFIT_HOME", str(tmp_path / "home"))
    path = tmp_path / "letters.toml"
    path.write_text(TOML)
    return path


def test_data_is_prepared_once_and_said(described: Path, said: list[str]) -> None:
    workload = catalogue.resolve_workload(str(described))
    folder = catalogue.prepare_workload(workload, said.append)
    assert folder.name.startswith("letters-v3-")
    assert (folder / "letters").read_text() == "b a\n"
    assert catalogue.prepare_workload(workload, said.append) == folder
    assert (described.parent / "runs").read_text() == "run\n"
    assert said == ["preparing the data of letters (once)"]


def test_data_is_prepared_anew_when_the_preparation_changes(
    described: Path, said: list[str]
) -> None:
    catalogue.prepare_workload(catalogue.resolve_workload(str(described)), said.append)
    described.write_text(TOML.replace("b a", "c d"))
    folder = catalogue.prepare_workload(catalogue.resolve_workload(str(described)), said.append)
    assert (folder / "letters").read_text() == "c d\n"


def test_data_is_prepared_anew_on_a_machine_with_another_c_library(
    described: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = catalogue.resolve_workload(str(described))
    for version, times in (("2.36", 1), ("2.36", 1), ("2.41", 2)):
        monkeypatch.setattr(platform, "libc_ver", lambda version=version: ("glibc", version))
        catalogue.prepare_workload(workload, said.append)
        assert len(said) == times


def test_a_missing_program_is_named(described: Path, said: list[str]) -> None:
    described.write_text(TOML.replace('"sort"]', '"no-such-sort"]', 1))
    workload = catalogue.resolve_workload(str(described))
    assert catalogue.missing_for(workload) == ["program no-such-sort"]
    with pytest.raises(HeapfitError, match="no-such-sort"):
        catalogue.install_workload(workload, said.append)


def test_files_in_two_folders_do_not_share_the_data_of_a_name(
    described: Path, said: list[str]
) -> None:
    other = described.parent / "other" / described.name
    other.parent.mkdir()
    other.write_text(TOML)
    for _ in range(2):
        for path in (described, other):
            catalogue.prepare_workload(catalogue.resolve_workload(str(path)), said.append)
    assert len(said) == 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            TOML.replace('command = ["sort"', 'comand = ["sort"'),
            "unknown key 'run.comand'; did you mean 'command'?",
        ),
        (TOML.replace("[run]", "[run"), "is not valid TOML"),
    ],
)
def test_a_mistake_in_the_toml_is_explained(described: Path, wrong: str, said: str) -> None:
    described.write_text(wrong)
    with pytest.raises(UsageError) as caught:
        catalogue.resolve_workload(str(described))
    assert said in str(caught.value)
    assert str(described) in str(caught.value)
