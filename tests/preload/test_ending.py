"""What the library says when a program ends must not change how it ends, nor whether it does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from subjects import run

pytestmark = pytest.mark.full

PATIENCE_S = 120


@pytest.fixture(params=["stats_at_exit:json", "no_such_option:1"])
def environment(request: pytest.FixtureRequest, library: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(library), "HEAPFIT_OPTIONS": request.param}


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with contextlib.suppress(OSError):  # a test has closed it
            os.close(end)


def allow_death_by_sigpipe() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def exit_code(environment: dict[str, str], stderr: int) -> int:
    with subprocess.Popen(
        ["/bin/true"], env=environment, stderr=stderr, preexec_fn=allow_death_by_sigpipe
    ) as process:
        try:
            return process.wait(PATIENCE_S)
        finally:
            process.kill()


def fill(pipe: int) -> None:
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    try:
        while True:
            os.write(pipe, bytes(4096))
    except BlockingIOError:
        fcntl.fcntl(pipe, fcntl.F_SETFL, flags)


def test_nobody_reads_stderr_any_more(environment: dict[str, str], pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    assert exit_code(environment, pipe[1]) == 0


def test_nobody_takes_what_is_in_stderrs_pipe(
    environment: dict[str, str], pipe: tuple[int, int]
) -> None:
    fill(pipe[1])
    assert exit_code(environment, pipe[1]) == 0


def stderr_with(library: Path, options: str) -> str:
    done = run("/bin/true", preload=library, settings=options)
    assert done.returncode == 0
    return done.stderr


def test_statistics_are_whole(library: Path) -> None:
    assert stderr_with(library, "stats_at_exit:json").endswith("}\n")


def test_statistics_need_no_further_descriptor(library: Path) -> None:
    code = "import os, resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    done = run("python3", "-c", code, preload=library, settings="stats_at_exit:1")
    assert (done.returncode, "  resident " in done.stderr) == (0, True)


def test_options_that_are_too_long_count_as_far_as_they_are_complete(library: Path) -> None:
    beginning = "decay_ms:7," * 92  # 1012 bytes
    text = stderr_with(library, f"{beginning}verbose:1,decay_ms:5000")
    assert "HEAPFIT_OPTIONS is too long: only what is complete in its first 1023 bytes" in text
    assert "  decay_ms:7 (" in text
