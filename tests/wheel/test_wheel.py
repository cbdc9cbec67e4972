"""The wheel, as a user installs it: in an environment of its own, away from the checkout.

HEAPFIT_WHEEL names a wheel to install in place of one that is built for the tests, and
HEAPFIT_WHEEL_PYTHON the interpreter that installs it. Compilers do not answer where a wheel is
installed and used.
"""

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


GIVEN_WHEEL = os.environ.get("HEAPFIT_WHEEL")
PYTHON = os.environ.get("HEAPFIT_WHEEL_PYTHON", sys.executable)
COMPILERS = ("c++", "c89", "c99", "cc", "clang", "clang++", "cmake", "g++", "gcc", "make", "ninja")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment of a machine without a compiler."""
    folder = tmp_path_factory.mktemp("compilers")
    for name in COMPILERS:
        (folder / name).write_text(f"#!/bin/sh\necho 'there is no {name}' >&2\nexit 127\n")
        (folder / name).chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HEAPFIT", "PYTHON"))}
    return kept | {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, bare: dict[str, str]) -> Path:
    """The folder of the programs of an environment that has the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("installed")
    venv = folder / "venv"
    done_by = [(ROOT / "scripts" / "make-venv", venv, PYTHON)]
    if GIVEN_WHEEL:
        pip = (venv / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
        done_by.append((*pip, "install", "--only-binary", ":all:", GIVEN_WHEEL))
        environment = bare
    else:
        done_by.append((ROOT / "scripts" / "install-wheel", venv, folder / "dist"))
        environment = dict(os.environ)
    for command in done_by:
        done = process_groups.run(
            list(command), timeout_s=BUILD_TIMEOUT_S, cwd=ROOT, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return venv / "bin"


@pytest.fixture
def heapfit(installed: Path, bare: dict[str, str], tmp_path: Path):
    """Returns a function that runs the installed `heapfit` in an empty folder."""
    environment = bare | {"HEAPFIT_HOME": str(tmp_path / "home")}

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


@pytest.mark.parametrize(
    "page", ["heapfit(1)", "heapfit-compare(1)", "heapfit(3)", "heapfit-record(7)"]
)
def test_man_finds_the_pages_of_an_environment_that_is_in_the_path(
    installed: Path, bare: dict[str, str], page: str
):
    name, section = page.rstrip(")").split("(")
    environment = {**bare, "PATH": f"{installed}:{bare['PATH']}"}
    environment.pop("MANPATH", None)
    command = ["man", "--where", section, name]
    found = process_groups.run(command, timeout_s=RUN_TIMEOUT_S, env=environment)
    assert found.stdout.strip() == str(
        installed.parent / "share" / "man" / f"man{section}" / f"{name}.{section}"
    )
