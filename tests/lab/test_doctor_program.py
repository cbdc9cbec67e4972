"""A program whose malloc a preload would not replace, or that brings another, is noticed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit.doctor import Finding, examine_objects, examine_program

ARENA = """
#include <stddef.h>
static char arena[1 << 20];
static size_t used;
void *malloc(size_t size) { used += (size + 15) & ~15ul; return arena + used - size; }
void free(void *block) { (void)block; }
"""
MAIN = "#include <stdlib.h>\nint main(void) { free(malloc(1)); return 0; }\n"


def compiled(folder: Path, *sources: str, options: tuple[str, ...] = ()) -> Path:
    """Compile C `sources` into a program, or with the `options` into something else."""
    files = []
    for number, text in enumerate(sources):
        files.append(folder / f"{number}.c")
        files[-1].write_text(text)
    made = folder / "made"
    subprocess.run(["cc", "-w", *files, *options, "-o", made], check=True)
    return made


def finding_of(program: Path | str) -> Finding:
    finding = examine_program([str(program)])
    assert finding is not None
    return finding


def test_the_programs_that_a_shell_or_a_launcher_starts_are_unknown(tmp_path: Path) -> None:
    script = tmp_path / "start-server"
    script.write_text("#!/bin/sh\nexec ./server\n")
    script.chmod(0o755)
    for program in ("timeout", script):
        finding = finding_of(program)
        assert not finding.ok
        assert "starts other programs" in finding.state


def test_a_library_with_a_malloc_is_named_however_deep(tmp_path: Path) -> None:
    library, middle, program = (tmp_path / name for name in ("l", "m", "p"))
    for folder in (library, middle, program):
        folder.mkdir()
    arena = compiled(library, ARENA, options=("-shared", "-fPIC"))
    arena = arena.rename(library / "libarena.so")
    path = f"-Wl,--no-as-needed,-rpath,{library}:{middle}"
    between = compiled(middle, "", options=("-shared", "-fPIC", path, str(arena)))
    made = compiled(program, MAIN, options=(path, str(between.rename(middle / "libmiddle.so"))))
    finding = finding_of(made)
    assert "libarena.so" in finding.state
    assert "libc.so.6 to --allocators" in finding.advice


@pytest.mark.usefixtures("library")
def test_doctor_looks_at_a_program_when_asked(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program = compiled(tmp_path, MAIN, options=("-static",))
    found = run_heapfit("doctor", "--json", "--", program)
    [first, *_] = json.loads(found.stdout)
    assert first["topic"] == "malloc of made"
    assert not first["ok"]
    absent = run_heapfit("doctor", "--", tmp_path / "absent")
    assert absent.returncode == 2
    assert "absent' is not a program" in absent.stderr.splitlines()[-1]


def test_what_an_interpreter_keeps_from_malloc_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    found = examine_objects(["python3", "x.py"])
    assert found is not None
    assert found.topic == "objects of python3"
    assert "PYTHONMALLOC=malloc" in found.advice
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    assert examine_objects(["python3", "x.py"]) is None
    assert examine_objects(["sh"]) is None
    assert examine_objects(["not-there"]) is None


@pytest.mark.usefixtures("library")
def test_of_a_workloads_program_too_it_is_said_that_it_is_linked_with_an_allocator(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    arena = compiled(tmp_path, ARENA, options=("-shared", "-fPIC"))
    arena = arena.rename(tmp_path / "libarena.so")
    path = f"-Wl,--no-as-needed,-rpath,{tmp_path}"
    compiled(tmp_path, MAIN, options=(path, str(arena))).rename(tmp_path / "program")
    described = tmp_path / "workload.toml"
    texts = 'name = "own"\ntitle = "t"\nquestion = "q"\n[run]\ncommand = ["{here}/program"]\n'
    described.write_text(texts)
    quick = ["--allocators", "glibc,heapfit", "--replicates", "1", "--cores", "1", "--json"]
    result = run_heapfit("compare", described, *quick, folder=tmp_path)
    assert "warning: malloc of program: from libarena.so, which it is linked" in result.stderr
    report = (tmp_path / "heapfit-results" / "own" / "report.md").read_text()
    [said] = [line for line in report.splitlines() if "The program is linked" in line]
    assert "libarena.so, which has a malloc. Nothing is preloaded for glibc, so it ran on" in said

    described.write_text(texts + 'environment = { LD_PRELOAD = "libc.so.6" }\n')
    result = run_heapfit("compare", described, *quick, "--out", tmp_path / "o", folder=tmp_path)
    assert result.returncode == 0
    assert "linked with" not in result.stderr + (tmp_path / "o" / "report.md").read_text()
