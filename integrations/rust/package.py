#!/usr/bin/env python3
"""Pack both crates as they would be published, and build what was packed.

In the checkout heapfit-sys compiles the C sources where they are; a packed crate has them in
vendor/. The copy is there only while this program runs, so that it never gets old.

heapfit asks for heapfit-sys by its version, which no registry has before it is published. So a
local registry is made, build/rust/registry, of the packed crates and of what they depend on;
heapfit is packed against it, and so can any program be built, without a network: README.md says
how. Arguments are passed on to cargo.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
VENDOR = HERE / "heapfit-sys" / "vendor"
SOURCES = ("allocator", "include")
CRATES = ("heapfit-sys", "heapfit")  # in the order in which they can be published

ENVIRONMENT = {"CARGO_TARGET_DIR": str(ROOT / "build" / "rust")} | os.environ
TARGET = Path(ENVIRONMENT["CARGO_TARGET_DIR"])
REGISTRY = TARGET / "registry"


@contextmanager
def vendored() -> Iterator[None]:
    """Copy the C sources into the crate for as long as the block runs."""
    shutil.rmtree(VENDOR, ignore_errors=True)
    try:
        for folder in SOURCES:
            shutil.copytree(ROOT / folder, VENDOR / folder)
        yield
    finally:
        shutil.rmtree(VENDOR, ignore_errors=True)


def cargo(*words: str, home: Path | None = None) -> str:
    """Run cargo and return its output; its messages go on to stderr. SystemExit where it fails.

    `home` is a folder that has nothing yet: in the user's, cargo keeps what it once unpacked of a
    crate and a version, from whatever registry.
    """
    environment = ENVIRONMENT | ({"CARGO_HOME": str(home)} if home else {})
    done = subprocess.run(
        ["cargo", *words], cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout


# ---- the registry ------------------------------------------------------------------------------


def replaced(registry: Path) -> list[str]:
    """Return the words that have cargo take everything from a local registry."""
    return [
        *("--config", 'source.crates-io.replace-with="local"'),
        *("--config", f"source.local.local-registry={json.dumps(str(registry))}"),
    ]


def add(package: dict[str, Any], archive: Path) -> None:
    """Put a packed crate into the registry; `package` is what `cargo metadata` says of it."""
    shutil.copy(archive, REGISTRY / archive.name)
    entry = {
        "name": package["name"],
        "vers": package["version"],
        "deps": [_dependency(each) for each in package["dependencies"]],
        "cksum": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "features": {},
        "features2": package["features"],  # these may be in either; here they may have any form
        "v": 2,
        "yanked": False,
    }
    index = REGISTRY / "index" / _folder(package["name"]) / package["name"]
    index.parent.mkdir(parents=True, exist_ok=True)
    with index.open("a", encoding="utf-8") as file:  # a line for each version
        file.write(f"{json.dumps(entry)}\n")


def _dependency(each: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": each["rename"] or each["name"],
        "package": each["name"] if each["rename"] else None,
        "req": each["req"],
        "features": each["features"],
        "optional": each["optional"],
        "default_features": each["uses_default_features"],
        "target": each["target"],
        "kind": each["kind"] or "normal",
    }


def _folder(name: str) -> str:
    """Return the folder of a crate in an index.

    >>> _folder("cc"), _folder("heapfit-sys")
    ('2', 'he/ap')
    """
    if len(name) < 3:
        return str(len(name))
    return f"3/{name[0]}" if len(name) == 3 else f"{name[:2]}/{name[2:4]}"


def downloaded(name: str) -> Path:
    """Return the archive that cargo keeps of a crate that it has downloaded."""
    home = Path(ENVIRONMENT.get("CARGO_HOME") or Path.home() / ".cargo")
    found = sorted(home.glob(f"registry/cache/*/{name}"))
    if not found:
        sys.exit(f"package.py: cargo has downloaded no {name}")
    return found[0]


def main(arguments: list[str]) -> int:
    """Make the registry of what is downloaded, then pack each crate and add it."""
    offline = [word for word in arguments if word == "--offline"]
    cargo("fetch", "--locked", *offline)
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1", *offline))
    shutil.rmtree(REGISTRY, ignore_errors=True)
    (REGISTRY / "index").mkdir(parents=True)
    known = {each["name"]: each for each in packages["packages"]}
    for name, package in known.items():
        if name not in CRATES:
            add(package, downloaded(f"{name}-{package['version']}.crate"))
    with vendored(), tempfile.TemporaryDirectory() as empty:
        for name in CRATES:
            # --allow-dirty: the copy is not, and shall not be, in the repository.
            words = ["package", "--package", name, "--allow-dirty", *arguments]
            cargo(*words, *replaced(REGISTRY), home=Path(empty))
            add(known[name], TARGET / "package" / f"{name}-{known[name]['version']}.crate")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
