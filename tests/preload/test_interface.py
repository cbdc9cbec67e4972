"""What programs are linked with changes only where somebody means it to: debian/*.symbols has the
names, interface.txt the types.

After a change that is meant, `PYTHONPATH=lab .venv/bin/python tests/preload/interface.py` writes
the types anew. A program that was linked before must still run: a name that is added goes into a
version of its own (allocator/versions.map) and into debian/*.symbols; whatever is removed, or is
laid out otherwise than a caller that passes its size can know, takes another HEAPFIT_INTERFACE.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import interface
import pytest
from heapfit import paths


def test_the_interface_is_the_one_that_is_stored() -> None:
    assert interface.described().splitlines() == interface.STORED.read_text().splitlines(), (
        "see the head of tests/preload/test_interface.py"
    )


@pytest.mark.parametrize(
    ("variant", "package"),
    [
        ("default", "libheapfit1"),
        ("hardened", "libheapfit-hardened1"),
        ("pools", "libheapfit-pools1"),
        ("record", "libheapfit-record1"),
    ],
)
def test_a_library_exports_what_its_package_says(variant: str, package: str) -> None:
    library = paths.library(variant)
    assert interface.symbols(package) == (interface.soname(library), interface.exports(library))


@pytest.mark.parametrize("variant", ["default", "hardened", "pools"])
def test_the_malloc_family_has_no_version_and_all_else_has_one(variant: str) -> None:
    """A `malloc` with a version would not be found by programs that were linked with libc's."""
    for name, version in interface.exports(paths.library(variant)).items():
        assert bool(version) == name.startswith("hf_"), f"{name} has the version '{version}'"


def test_a_program_that_needs_a_newer_interface_is_refused_when_it_starts(tmp_path: Path) -> None:
    """The newer library is one that differs in the version of its names alone."""
    (tmp_path / "versions.map").write_text("HEAPFIT_1 {}; HEAPFIT_1.1 { hf_*; } HEAPFIT_1;")
    (tmp_path / "library.c").write_text('const char *hf_version(void) { return "newer"; }')
    (tmp_path / "program.c").write_text(
        "const char *hf_version(void); int main(void) { return !hf_version(); }"
    )
    library = paths.library()
    as_ours = f"-Wl,--version-script=versions.map,-soname,{interface.soname(library)}"
    for command in (
        ["library.c", "-shared", "-fPIC", as_ours, "-o", "libnewer.so"],
        ["program.c", "./libnewer.so", f"-Wl,-rpath,{library.parent}", "-o", "program"],
    ):
        subprocess.run(["gcc", *command], cwd=tmp_path, check=True)
    done = subprocess.run(
        [tmp_path / "program"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 1
    assert re.search(r"version `HEAPFIT_1\.1' not found", done.stderr)
