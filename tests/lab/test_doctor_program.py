"""A program whose malloc a preload would not replace, or that brings another, is noticed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit.doctor import Finding, examine_objects, examine_program
from heapfit.doctor.program import linked_allocator
from study_files import STUDY

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


@pytest.mark.parametrize("is_direct", [True, False])
def test_a_library_with_a_malloc_is_named_where_it_comes_before_the_c_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_direct: bool
) -> None:
    """The C library, which a program needs itself, is searched before what its libraries need."""
    library, middle, program = (tmp_path / name for name in ("a library", "middle", "program"))
    for folder in (library, middle, program):
        folder.mkdir()
    arena = compiled(library, ARENA, options=("-shared", "-fPIC"))
    arena = arena.rename(library / "libarena.so")
    path = f"-Wl,--no-as-needed,-rpath,{library}:{middle}"
    between = compiled(middle, "", options=("-shared", "-fPIC", path, str(arena)))
    between = between.rename(middle / "libmiddle.so")
    needed = (str(arena),) if is_direct else (str(between),)
    made = compiled(program, MAIN, options=(path, *needed))
    monkeypatch.chdir(program)
    finding = finding_of(f"./{made.name}")
    assert ("libarena.so" in finding.state) == is_direct
    assert ("libc.so.6 to --allocators" in finding.advice) == is_direct
    assert finding.ok != is_direct
    debug = {"LD_DEBUG": "bindings", "LD_BIND_NOW": "1"}
    bound = subprocess.run([made], env=debug, capture_output=True, text=True, check=True).stderr
    ours = [line for line in bound.splitlines() if f"binding file {made} " in line]
    served = {f"to {arena} " in line for line in ours if "symbol `malloc'" in line}
    assert served == {is_direct}


def test_the_loaders_own_malloc_serves_no_program(tmp_path: Path) -> None:
    arena = compiled(tmp_path, ARENA, options=("-shared", "-fPIC"))
    loader, other = (shutil.copy(arena, tmp_path / name) for name in ("ld-2.31.so", "libx.so"))
    assert linked_allocator([Path(loader)]) is None
    assert linked_allocator([Path(loader), Path(other)]) == Path(other)
    assert linked_allocator([Path(loader), Path("/lib/libc.so.6"), Path(other)]) is None


def test_a_file_system_without_extended_attributes_keeps_no_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> list[str]:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    kept: list[str] = []
    for listed in (refuse, lambda path: kept):
        monkeypatch.setattr(os, "listxattr", listed)
        assert "built in" in finding_of(compiled(tmp_path, MAIN, options=("-static",))).state
        assert (
            "its own" in finding_of(compiled(tmp_path, ARENA, MAIN, options=("-rdynamic",))).state
        )
        assert "can be replaced" in finding_of(compiled(tmp_path, MAIN)).state
    kept.append("security.capability")
    assert "protected" in finding_of(compiled(tmp_path, MAIN)).state


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

    study = STUDY.replace('"churn/", "pareto/"', '"./"').replace('"sleeper/"', "")
    (tmp_path / "study.toml").write_text(study)
    once = ["--quick", "--replicates", "1", "--cores", "1", "--json"]
    result = run_heapfit("study", "run", "study.toml", *once, folder=tmp_path)
    assert "warning: malloc of program: from libarena.so, which it is linked" in result.stderr

    described.write_text(texts + 'environment = { LD_PRELOAD = "libc.so.6" }\n')
    result = run_heapfit("compare", described, *quick, "--out", tmp_path / "o", folder=tmp_path)
    assert result.returncode == 0
    assert "linked with" not in result.stderr + (tmp_path / "o" / "report.md").read_text()
