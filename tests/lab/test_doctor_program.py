"""A program whose malloc a preload would not replace, or that brings another, is noticed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Heapfit
from heapfit.doctor import Finding, examine_program

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


@pytest.mark.parametrize("program", ["/usr/bin/python3", "sh"])
def test_a_program_that_uses_the_c_librarys_malloc_is_fine(program: str) -> None:
    assert finding_of(program).ok


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


def test_a_program_with_a_malloc_of_its_own_is_noticed(tmp_path: Path) -> None:
    assert "would not use a preloaded one" in finding_of(compiled(tmp_path, MAIN, ARENA)).advice


def test_a_static_program_is_noticed(tmp_path: Path) -> None:
    program = compiled(tmp_path, MAIN, options=("-static",))
    assert "linked statically" in finding_of(program).state


@pytest.mark.parametrize("first_line", ["#!{}", "#!/usr/bin/env -S A=1 {} -u", "#! {} -x"])
def test_of_a_script_the_interpreter_counts(tmp_path: Path, first_line: str) -> None:
    interpreter = compiled(tmp_path, MAIN, options=("-static",))
    script = tmp_path / "script"
    script.write_text(first_line.format(interpreter) + "\n")
    script.chmod(0o755)
    assert "linked statically" in finding_of(script).state


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" * 99])
def test_what_is_no_program_is_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    file.chmod(0o755)
    assert examine_program([str(file)]) is None
    assert examine_program([str(tmp_path / "absent")]) is None


@pytest.mark.usefixtures("library")
def test_doctor_looks_at_a_program_when_asked(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program = compiled(tmp_path, MAIN, options=("-static",))
    found = run_heapfit("doctor", "--json", "--", program)
    [first, *_] = json.loads(found.stdout)
    assert first["topic"] == "malloc of made"
    assert not first["ok"]
    absent = run_heapfit("doctor", "--", tmp_path / "absent")
    assert absent.returncode == 2
    assert "absent' is no program" in absent.stderr.splitlines()[-1]


@pytest.mark.usefixtures("library")
def test_compare_warns_before_it_measures(run_heapfit: Heapfit, tmp_path: Path) -> None:
    program = compiled(tmp_path, MAIN, ARENA)
    options = ("--allocators", "glibc,heapfit", "--replicates", "1", "--warmups", "0")
    result = run_heapfit("compare", *options, "--", program, folder=tmp_path)
    lines = result.stderr.splitlines()
    [warning] = [line for line in lines if "warning" in line]
    assert warning.startswith("warning: malloc of made: its own; ")
    [first_trial, *_] = [line for line in lines if "trials; now" in line]
    assert lines.index(warning) < lines.index(first_trial)


@pytest.mark.usefixtures("library")
def test_a_static_program_is_not_compared_beyond_the_first_block(
    run_heapfit: Heapfit, tmp_path: Path
) -> None:
    program = compiled(tmp_path, MAIN, options=("-static",))
    quick = ["--allocators", "glibc,heapfit", "--replicates", "2", "--cores", "1"]
    result = run_heapfit("compare", *quick, "--", program, folder=tmp_path)
    assert result.returncode == 1
    assert "nothing to compare with glibc" in result.stderr
    assert "its malloc is built in, for it is linked statically" in result.stderr
    [trials] = tmp_path.glob("heapfit-results/*/trials.jsonl")
    assert len(trials.read_text().splitlines()) <= 2, "those of the first block"
    assert result.stdout == ""
