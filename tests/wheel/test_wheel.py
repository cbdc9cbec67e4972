"""The wheel, as a user installs it: in an environment of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import process_groups
import pytest

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
BUILD_TIMEOUT_S = 600
RUN_TIMEOUT_S = 120


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of an environment that has the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("installed")
    venv = folder / "venv"
    for command in (
        [ROOT / "scripts" / "make-venv", venv, sys.executable],
        [ROOT / "scripts" / "install-wheel", venv, folder / "dist"],
    ):
        done = process_groups.run(command, timeout_s=BUILD_TIMEOUT_S, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
    return venv / "bin"


@pytest.fixture
def heapfit(installed: Path, tmp_path: Path):
    """Returns a function that runs the installed `heapfit` in an empty folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HEAPFIT", "PYTHON"))}
    environment["HEAPFIT_HOME"] = str(tmp_path / "home")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [installed / "heapfit", *arguments]
        done = process_groups.run(command, timeout_s=RUN_TIMEOUT_S, cwd=tmp_path, env=environment)
        done.check_returncode()
        return done

    return run


@pytest.mark.parametrize("variant", ["default", "pools", "record"])
def test_each_library_lies_in_the_environment(heapfit, installed: Path, variant: str):
    library = Path(heapfit("lib", "--variant", variant).stdout.strip())
    assert library.is_file()
    assert installed.parent in library.parents


@pytest.mark.parametrize("variant", ["default", "pools"])
def test_a_program_runs_under_an_installed_library(heapfit, variant: str):
    program = "import pathlib; print(pathlib.Path('/proc/self/maps').read_text())"
    maps = heapfit("run", "--variant", variant, "--", "/usr/bin/env", sys.executable, "-c", program)
    assert "libheapfit" in maps.stdout


def test_a_comparison_ends_in_json(heapfit):
    done = heapfit(
        *("compare", "--json", "--allocators", "glibc,heapfit", "--replicates", "3"),
        *("--", sys.executable, "-c", "print(sum(len(str(i)) for i in range(100000)))"),
    )
    assert {"glibc", "heapfit"} <= set(json.dumps(json.loads(done.stdout)).split('"'))


def test_a_recording_is_profiled_and_replayed(heapfit):
    heapfit(
        "record",
        "-o",
        "run.hft",
        "--",
        sys.executable,
        "-c",
        "print([str(i) for i in range(9999)])",
    )
    assert heapfit("profile", "run.hft").stdout
    assert heapfit("replay", "run.hft", "--allocators", "glibc,heapfit", "--replicates", "3").stdout
