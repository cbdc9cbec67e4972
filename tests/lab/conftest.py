"""What the lab's tests share: the real command line, run as a person would run it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import heapfit
import pytest
import shared_home
from heapfit import paths
from live_double import Double
from rich.cells import cell_len
from warm_start import WarmStart

_TIMEOUT_S = 500

# What the lab prepares, it finds there again; nothing goes to the person's own folder.
os.environ["HEAPFIT_HOME"] = str(shared_home.HOME)

# Suites run side by side, and each is to have the first processors.
os.environ["HEAPFIT_SHARE_CORES"] = "1"

# The servers that tests start are here; a proxy, if there is one, is for those elsewhere.
os.environ["no_proxy"] = ",".join(["127.0.0.1", os.environ.get("no_proxy", "")])

# A run in the background may begin with Ctrl-C ignored, and what tests start and interrupt with it.
signal.signal(signal.SIGINT, signal.default_int_handler)


# Runs `heapfit` with arguments, as the fixture `run_heapfit` does.
Heapfit = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def double() -> Iterator[Double]:
    """A process that answers as heapfit's control channel does: this one."""
    with Double() as made:
        yield made


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of the test's own, in which nothing is prepared yet."""
    home = tmp_path / "home"
    monkeypatch.setenv("HEAPFIT_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """The environment of this test run without anything that steers heapfit or its output."""
    # Without its compiled modules kept, Python would compile them anew for each command.
    steering = ("HEAPFIT_", "LD_PRELOAD", "COLUMNS", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(steering)}
    source = str(Path(heapfit.__file__).parent.parent)
    return {**inherited, "HEAPFIT_HOME": str(shared_home.HOME),
            "HEAPFIT_SHARE_CORES": "1", "PYTHONPATH": source}  # fmt: skip


@pytest.fixture(scope="session")
def warm_start(clean_environment: dict[str, str]) -> Iterator[WarmStart]:
    """What commands are forked from, so that each need not load everything anew."""
    warm = WarmStart(clean_environment)
    yield warm
    warm.close()


@pytest.fixture(scope="session")
def run_heapfit(clean_environment: dict[str, str], warm_start: WarmStart) -> Heapfit:
    """The command line, as a function: each command in a process of its own."""

    def run(
        *arguments: str | Path,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> subprocess.CompletedProcess[str]:
        return warm_start.run(
            list(map(str, arguments)),
            environment={**clean_environment, **(environment or {})},
            folder=folder,
            timeout_s=timeout_s,
        )

    return run


def heapfit_command(*arguments: str | Path) -> list[str]:
    """The words that start `heapfit` with the Python of this test run, from nothing."""
    return [sys.executable, "-m", "heapfit", *map(str, arguments)]


_COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])[0-9;]*m")


def assert_fits_everywhere(
    run_heapfit: Heapfit,
    words: Sequence[str],
    folder: Path | None = None,
    is_whole: Callable[[str], bool] = lambda _: False,
) -> None:
    """Assert that a command's answer is right for a narrow terminal, a pipe, a person who wants no
    colours, and a program. `is_whole`: whether a line is never broken."""
    narrow = run_heapfit(*words, environment={"COLUMNS": "60"}, folder=folder)
    assert narrow.returncode == 0, narrow.stderr
    assert "\x1b" not in narrow.stdout
    lines = [line for line in narrow.stdout.splitlines() if not is_whole(line)]
    assert [line for line in lines if cell_len(line) > 60] == []
    plain = run_heapfit(*words, environment={"NO_COLOR": "1", "FORCE_COLOR": "1"}, folder=folder)
    assert plain.returncode == 0, plain.stderr
    assert not _COLOUR.search(plain.stdout)
    at = words.index("--") if "--" in words else len(words)
    as_json = run_heapfit(*words[:at], "--json", *words[at:], folder=folder)
    assert as_json.returncode == 0, as_json.stderr
    json.loads(as_json.stdout)


def assert_one_line(
    result: subprocess.CompletedProcess[str], exit_code: int, said: Sequence[str]
) -> None:
    """Check for `exit_code` and one line on stderr that holds all of `said`."""
    assert result.returncode == exit_code, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("heapfit: ")
    for words in said:
        assert words in lines[0]


def load_benchmark(path: Path) -> ModuleType:
    """Import a script of benchmarks/, which is no package."""
    described = importlib.util.spec_from_file_location(path.stem, path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[path.stem] = module
    described.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def library() -> Path:
    """heapfit's own library; a test that needs it fails with what to do when it is not built."""
    return paths.library()
