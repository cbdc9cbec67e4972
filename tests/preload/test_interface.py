"""The names that the libraries export change only where somebody means it to: debian/*.symbols has
them. What a change requires stands in tests/package/consumer/interface.h, which has the types.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from heapfit import paths

ROOT = Path(__file__).resolve().parents[2]


def read(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exports(library: Path) -> dict[str, str]:
    """What a library defines for others: each name with its version, '' without one."""
    listed = read("nm", "--dynamic", "--defined-only", "--with-symbol-versions", library)
    rows = [line.split()[-2:] for line in listed.splitlines()]
    names = [name for kind, name in rows if kind != "A"]  # a version is listed as a name of its own
    return {
        name: version
        for name, _, version in (each.replace("@@", "@").partition("@") for each in names)
    }


def soname(library: Path) -> str:
    """The name under which programs ask for a library."""
    [name] = re.findall(r"^  SONAME +(.*)$", read("objdump", "-p", library), re.MULTILINE)
    return name


def packaged(package: str) -> tuple[str, dict[str, str]]:
    """What a Debian package says of its library: its name, and what it exports, as above."""
    head, *rest = (ROOT / "debian" / f"{package}.symbols").read_text().splitlines()
    names = [line.split()[0].partition("@")[::2] for line in rest if not line.startswith("*")]
    versions = {name: "" if version == "Base" else version for name, version in names}
    return head.split()[0], {name: v for name, v in versions.items() if name != v}


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
    assert packaged(package) == (soname(library), exports(library))


@pytest.mark.parametrize("variant", ["default", "hardened", "pools"])
def test_the_malloc_family_has_no_version_and_all_else_has_one(variant: str) -> None:
    """A `malloc` with a version would not be found by programs that were linked with libc's."""
    for name, version in exports(paths.library(variant)).items():
        assert bool(version) == name.startswith("hf_"), f"{name} has the version '{version}'"


def test_a_program_that_needs_a_newer_interface_is_refused_when_it_starts(tmp_path: Path) -> None:
    """The newer library is one that differs in the version of its names alone."""
    (tmp_path / "versions.map").write_text("HEAPFIT_1 {}; HEAPFIT_1.1 { hf_*; } HEAPFIT_1;")
    (tmp_path / "library.c").write_text('const char *hf_version(void) { return "newer"; }')
    (tmp_path / "program.c").write_text(
        "const char *hf_version(void); int main(void) { return !hf_version(); }"
    )
    library = paths.library()
    as_ours = f"-Wl,--version-script=versions.map,-soname,{soname(library)}"
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
