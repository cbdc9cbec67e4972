"""Builds the extension, and runs PHP with it in all the ways that the tests compare."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import shared_home
from _pytest.mark import ParameterSet

HERE = Path(__file__).resolve().parent
BUILD_TIMEOUT_S = 500
RUN_TIMEOUT_S = 500

CLI = "/usr/bin/php8.2"
CGI = "/usr/bin/php-cgi8.2"
FPM = "/usr/sbin/php-fpm8.2"

# What Debian's PHP loads from its own folder of settings, and the tests' programs need.
MODULES = ("ctype", "tokenizer", "mbstring", "dom", "xml", "xmlwriter")

MODES = ("defrag-dodging", "region", "off")


@dataclass(frozen=True)
class Extension:
    """Both builds of heapfit.so."""

    release: Path
    debug: Path

    def settings(self, mode: str, *, debug: bool = False) -> list[str]:
        """Return the options that load a build in a mode."""
        library = self.debug if debug else self.release
        return define({"extension": str(library), "heapfit.mode": mode})


def define(settings: Mapping[str, str]) -> list[str]:
    """Return PHP's options for settings of php.ini."""
    return [word for name, value in settings.items() for word in ("-d", f"{name}={value}")]


def modules() -> list[str]:
    """Return the options that load MODULES."""
    return [word for name in MODULES for word in ("-d", f"extension={name}")]


def environment(**more: str) -> dict[str, str]:
    """Return the environment without what would change PHP's memory."""
    dropped = (
        "USE_ZEND_ALLOC",
        "USE_TRACKED_ALLOC",
        "HEAPFIT_OPTIONS",
        "LD_PRELOAD",
        "ZEND_MM_MAX_ALLOCS",
    )
    return {name: value for name, value in os.environ.items() if name not in dropped} | more


def run(
    command: Sequence[str | Path], cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


def build(target: Path, *options: str) -> Path:
    """Build the extension as an administrator does."""
    subprocess.run([HERE.parent / "build", target, *options], check=True, timeout=BUILD_TIMEOUT_S)
    return target / "heapfit.so"


def full(value: object, name: str | None = None) -> ParameterSet:
    """Return a parameter of which only the full run makes a test."""
    return pytest.param(value, id=name, marks=pytest.mark.full)


def built(name: str, *options: str) -> Path:
    """Return the extension as `build` makes it, from the tests' home."""
    root, here = HERE.parents[2], HERE.parent
    sources = [root / "allocator", root / "include", root / "lab" / "heapfit" / "__init__.py"]
    sources += sorted(path for path in here.iterdir() if path.is_file())
    folder = shared_home.HOME / "php-extension" / name
    recipe = shared_home.recipe_of(sources, *options)
    shared_home.once(f"php-{name}", folder, recipe, lambda: build(folder, *options))
    return folder / "heapfit.so"


@pytest.fixture(scope="session")
def extension() -> Extension:
    """Both variants."""
    return Extension(built("release"), built("debug", "--enable-heapfit-debug"))
