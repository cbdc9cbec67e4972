"""Tools, libraries and plug-ins that replace the same functions as heapfit, or look for others."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
TIMEOUT_S = 300


def run(
    *words: str | Path, preload: str | Path = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_PRELOAD": str(preload), **variables}
    return subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.fixture(scope="session")
def objects_of_new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("valgrind") / "objects_of_new"
    words = ["g++", "-g", "-O0", "-pthread", PROGRAMS / "objects_of_new.cpp", "-o", program]
    subprocess.run(words, check=True)
    return program


def test_memcheck_finds_errors_and_leaks_of_objects_made_by_new(
    objects_of_new: Path, library: Path
) -> None:
    done = run("valgrind", "-q", "--leak-check=full", objects_of_new, preload=library)
    assert "Invalid write of size 1" in done.stderr
    assert "0 bytes after a block of size 40 alloc'd" in done.stderr
    assert "40 bytes in 1 blocks are definitely lost" in done.stderr


@pytest.mark.parametrize("tool", ["helgrind", "drd"])
def test_tools_for_threads_report_nothing_of_the_library(
    tool: str, objects_of_new: Path, library: Path
) -> None:
    done = run("valgrind", "-q", f"--tool={tool}", objects_of_new, "threads", preload=library)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="session")
def deepbind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program beside which is a library that opens a plug-in in a folder of its own."""
    folder = tmp_path_factory.mktemp("deepbind")
    (folder / "plugins").mkdir()
    source, flags = PROGRAMS / "deepbind.c", ["-O1", "-fno-builtin", "-fPIC"]
    runpath = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]
    for words in (
        ["-shared", "-DPLUGIN", source, "-o", folder / "plugins/libplugin.so"],
        ["-shared", "-DOPENER", source, f"{runpath[0]}/plugins", "-o", folder / "libopener.so"],
        [source, "-L", folder, "-lopener", *runpath, "-o", folder / "program"],
    ):
        subprocess.run(["gcc", *flags, *words], check=True)
    return folder / "program"


def test_a_plug_in_that_is_opened_with_deepbind_shares_objects_with_the_program(
    deepbind: Path, library: Path
) -> None:
    done = run(deepbind, preload=library)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_deepbind_is_kept_where_the_program_needs_it(deepbind: Path, default_library: Path) -> None:
    """The plug-in then gets the C library's malloc, as the documentation says."""
    done = run(deepbind, preload=default_library, HEAPFIT_OPTIONS="deepbind:keep")
    assert (done.returncode < 0, done.stdout) == (True, "")
    assert "invalid pointer" in done.stderr
