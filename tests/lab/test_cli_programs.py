"""`heapfit compare --programs`: builds of one's own program, under one allocator or several."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from conftest import Heapfit, assert_one_line
from study_files import trials_in

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("library")]

QUICK = ["--replicates", "2", "--cores", "1"]


def build(folder: Path, name: str, script: str) -> Path:
    """Write a program that is a line of Perl."""
    path = folder / name
    path.write_text(f"#!/usr/bin/perl\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def builds(tmp_path: Path) -> str:
    """Two builds, of which the new one keeps a third as much."""
    build(tmp_path, "a", "my @kept = map { [$_] } 1 .. 300000; print 'done';")
    build(tmp_path, "b", "my @kept = map { [$_] } 1 .. 100000; print 'done';")
    return "old=./a,new=./b"


def test_a_build_is_said_to_be_what_it_is_to_the_first(
    run_heapfit: Heapfit, builds: str, tmp_path: Path
) -> None:
    command = ["compare", "--programs", builds, "--replicates", "5", "--cores", "1"]
    narrow = {"COLUMNS": "80"}
    result = run_heapfit(*command, "--", "{program}", folder=tmp_path, environment=narrow)
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert "Recommended: new" in said
    assert "old and new: {program}, 1 core" in said
    sentence = r"new takes 0\.\d+x the peak resident memory of old \(0\.\d+.0\.\d+\) under glibc\."
    assert re.search(sentence, said)
    assert "allocator" not in said
    assert "prints something else" not in said
    # What is to be deployed is the program, and no line of heapfit's would do that.
    assert "To use the recommended allocator" not in said
    [folder] = (tmp_path / "heapfit-results").iterdir()
    assert folder.name.startswith("a-")
    assert re.search(sentence, (folder / "report.md").read_text())
    assert '<th scope="col">Program</th>' in (folder / "report.html").read_text()
    written = json.loads((folder / "report.json").read_text())
    assert written["study"]["baseline"] == "old"
    assert [each["program"] for each in written["study"]["allocators"]] == ["old", "new"]
    repeated = run_heapfit(*shlex.split(written["study"]["reproduce"])[1:], folder=tmp_path)
    assert "all 12 trials are already done" in repeated.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_builds_may_print_different_things_and_that_is_said(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    build(tmp_path, "a", "print 1;")
    build(tmp_path, "b", "print 2;")
    build(tmp_path, "c", "print 1;")
    named = "old=./a,new=./b,same=./c"
    command = ["compare", "--programs", named, *QUICK, "--out", "out", "--", "{program}"]
    result = run_heapfit(*command, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {each["status"] for each in trials_in(tmp_path / "out")} == {"ok"}
    said = " ".join(result.stdout.split())
    assert "new prints different output from old. The trials count, since each" in said
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["other_output"] == ["new"]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["old=./a"], 2, "--programs old=./a,new=./b"),
        (["old=./a,old=./b"], 2, "two programs are called 'old'"),
        (["old=./a,new=./none"], 2, "new: there is no program './none'"),
        (["old=./a,new=./b", "--baseline", "heapfit"], 2, "the first of them is the baseline"),
    ],
)
@pytest.mark.usefixtures("builds")
def test_senseless_programs_are_explained(
    run_heapfit: Heapfit, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    (tmp_path / "notes").write_text("no program")
    result = run_heapfit("compare", "--programs", *options, "--", "{program}", folder=tmp_path)
    assert_one_line(result, code, [said])
