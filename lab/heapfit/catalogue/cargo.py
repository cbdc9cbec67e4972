"""Fetch the source of a crate with cargo, which checks what it downloads.

Many crates carry the C or C++ source of an allocator whole. Nothing of Rust is compiled for that:
`cargo vendor` only unpacks. What it unpacks lies in a project that depends on the crate, so that a
recipe can also compile a Rust source of ours against an allocator that is written in Rust.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from heapfit.catalogue import debian
from heapfit.catalogue.command import last_line, run_quietly
from heapfit.errors import HeapfitError

# The first that this release of Debian has. Debian 12's plain cargo is too old for today's crates;
# the one kept up to date for web browsers is not.
_PACKAGES = ("cargo-web", "cargo")

_PROJECT = """\
[package]
name = "heapfit-sources"
version = "0.0.0"
edition = "2021"

[dependencies]
{crate} = "={version}"
"""

# Given to cargo with --config: crates come from what was unpacked, and from nowhere else.
_VENDORED = """\
source.crates-io.replace-with = "vendored"
source.vendored.directory = "{folder}"
"""


def fetch(crate: str, version: str, into: Path, say: Callable[[str], None]) -> Path:
    """Unpack the source of `crate`, of exactly this `version`, within `into`; return its folder.

    `into` becomes a Cargo project that depends on the crate, with `vendor.toml` to build it by.
    """
    _provide_cargo(say)
    say(f"downloading {crate} {version} (cargo)")
    (into / "src").mkdir()
    (into / "src" / "lib.rs").touch()
    project = _PROJECT.format(crate=crate, version=version)
    (into / "Cargo.toml").write_text(project, encoding="utf-8")
    result = run_quietly(["cargo", "vendor", "--quiet", "vendor"], folder=into)
    source = into / "vendor" / crate
    if result.returncode != 0 or not source.is_dir():
        raise HeapfitError(f"cannot download {crate} {version}: {_cause(result)}")
    vendored = _VENDORED.format(folder=into / "vendor")
    (into / "vendor.toml").write_text(vendored, encoding="utf-8")
    return source


def _cause(result: subprocess.CompletedProcess[str]) -> str:
    """Return what cargo gives as the innermost cause, which it tells last and in several lines."""
    _, caused_by, cause = result.stderr.rpartition("Caused by:")
    return cause.strip().splitlines()[0] if caused_by else last_line(result)


def _provide_cargo(say: Callable[[str], None]) -> None:
    if shutil.which("cargo") is not None:
        return
    if not debian.is_used():
        raise HeapfitError("cargo is not on PATH; install it and try again")
    debian.install([debian.first_available(_PACKAGES)], say)
