"""The check of these tests fails when it should."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pool_programs
import pytest
import test_large_programs
import test_programs
from checking import check_same_with_and_without
from comparison import PROGRAMS_FOLDER, Program

pytestmark = pytest.mark.full

# Neighbours of different rights are mappings of their own.
MANY_MAPPINGS = """
import mmap, time
rights = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
kept = [mmap.mmap(-1, 4096, prot=rights[n % 2]) for n in range(400)]
print(flush=True)
time.sleep(60)
"""
KILLED_AFTER_S = 0.002


def shell(script: str, *, loaded_in: str = "sh", package: str = "dash") -> Program:
    return Program("shell", ["sh", "-c", script], {loaded_in}, [package])


def test_passes_a_program_that_behaves_the_same(library: Path, tmp_path: Path) -> None:
    check_same_with_and_without(shell("echo same; echo kept > file"), library, tmp_path)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ('echo "preload: $LD_PRELOAD"', "preload: /"),
        ('echo same; echo "$LD_PRELOAD" >&2', "stderr"),
        ('echo same; echo "$LD_PRELOAD" > file', "file"),
        ('echo same; [ -z "$LD_PRELOAD" ]', "exit_code"),
        ("echo same; env -u LD_PRELOAD cat /dev/null", "lost the library on their way"),
        ("exit 3", "fails even without the library"),
        ("true", "printed nothing"),
    ],
)
def test_notices(script: str, complaint: str, library: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_same_with_and_without(shell(script), library, tmp_path)


def test_notices_a_program_that_was_never_started(library: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="did not start these"):
        check_same_with_and_without(shell("echo same", loaded_in="python3"), library, tmp_path)


def test_notices_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_text("no library")
    with pytest.raises(AssertionError):
        check_same_with_and_without(shell("echo same"), broken, tmp_path)


def test_notices_a_library_that_is_loaded_and_not_used(tmp_path: Path) -> None:
    source, unused = tmp_path / "unused.c", tmp_path / "libunused.so"
    source.write_text("int nothing;\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", unused, source], check=True)
    with pytest.raises(AssertionError, match="called another malloc"):
        check_same_with_and_without(shell("echo same"), unused, tmp_path)


def test_names_the_package_of_a_missing_program(library: Path, tmp_path: Path) -> None:
    absent = shell("echo same", package="heapfit-no-such-package")
    with pytest.raises(AssertionError, match="apt-get install heapfit-no-such-package"):
        check_same_with_and_without(absent, library, tmp_path)


@pytest.mark.parametrize("preloaded", [True, False])
def test_a_server_without_the_library_is_noticed(
    preloaded: bool, library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.syspath_prepend(PROGRAMS_FOLDER)
    serving = importlib.import_module("serving")
    environment = {"LD_PRELOAD": str(library)} if preloaded else {}
    # The shell's child is looked at, too; once it has repeated a line, it has started.
    server = subprocess.Popen(
        ["sh", "-c", "cat; true"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b"started\n")
        server.stdin.flush()
        server.stdout.readline()
        assert len(serving.family(server.pid)) == 2
        monkeypatch.setenv("LD_PRELOAD", str(library))
        serving.check_preloaded(server.pid)
        server.stdin.close()
    assert capsys.readouterr().out.split()[-1] == str(preloaded)


def test_every_package_that_is_needed_is_listed() -> None:
    hard_programs = [hard.program for hard in pool_programs.PROGRAMS]
    programs = [*test_programs.PROGRAMS, *test_large_programs.PROGRAMS, *hard_programs]
    listed = (Path(__file__).parent / "packages.txt").read_text().split()
    assert listed == sorted({package for program in programs for package in program.packages})


def test_the_memory_map_of_a_process_that_ends_is_whole_or_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(PROGRAMS_FOLDER)
    serving = importlib.import_module("serving")
    for _ in range(20):
        process = subprocess.Popen([sys.executable, "-c", MANY_MAPPINGS], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        whole = serving.memory_maps(process.pid)
        assert len(whole) > 4 * 4096
        killing = threading.Timer(KILLED_AFTER_S, process.kill)
        killing.start()
        while found := serving.memory_maps(process.pid):
            assert found == whole
        killing.join()
        process.wait()
        process.stdout.close()
