"""What the Debian packages say beside the project's own files, as far as it shows without building.

`scripts/dist-debian` builds and tries them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "debian"
INTERFACE = ROOT / "tests" / "preload" / "interface.txt"


def test_the_packages_have_the_projects_version() -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "lab/heapfit/__init__.py").read_text())
    assert version is not None
    assert (DEBIAN / "changelog").read_text().startswith(f"heapfit ({version[1]}) ")


def exported(library: str) -> set[str]:
    """Return what the stored interface says that a library exports, as Debian writes it."""
    lines = INTERFACE.read_text().split(f"{library}\n")[1].splitlines()
    names = set()
    for line in lines:
        if not line.startswith("    ") or ":" in line:
            break
        if line.startswith("    all of "):
            names |= exported(line.split()[-1])
            continue
        name, _, version = line.strip().partition(" ")
        names.add(f"{name}@{version or 'Base'}")
    return names


@pytest.mark.parametrize(
    "package", ["libheapfit1", "libheapfit-hardened1", "libheapfit-pools1", "libheapfit-record1"]
)
def test_the_symbols_of_a_package_are_those_of_the_interface(package: str) -> None:
    """A build of the packages fails where they are not, which few people try."""
    head, *rest = (DEBIAN / f"{package}.symbols").read_text().splitlines()
    library, named, _ = head.split()
    assert named == package
    symbols = {line.split()[0] for line in rest if not line.startswith("*")}
    versions = {symbol for symbol in symbols if symbol.startswith("HEAPFIT_")}
    assert symbols - versions == exported(library)
    assert {symbol.partition("@")[2] for symbol in symbols} <= {
        v.partition("@")[0] for v in versions
    } | {"Base"}
