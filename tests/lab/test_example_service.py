"""The example of docs/studying-a-service.md runs, and its load notices a service that is wrong."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "sessions"
READY_TIMEOUT_S = 60.0
VISITORS = "20"

Start = Callable[[Path], str]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a service and returns its port; ended after the test."""
    running: list[subprocess.Popen[bytes]] = []

    def started(service: Path) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        running.append(subprocess.Popen([sys.executable, str(service), str(port)]))
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    return str(port)
            time.sleep(0.05)
        raise TimeoutError("the service never listened")

    yield started
    for process in running:
        process.kill()
        process.wait()


def visit(port: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(EXAMPLE / "load.py"), port, VISITORS]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_load_prints_the_figures_that_the_workload_reads(start: Start) -> None:
    done = visit(start(EXAMPLE / "service.py"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"(?m)^visits per second: [1-9][0-9.]*$", done.stdout)
    assert re.search(r"(?m)^99 of 100 within: [0-9.]+ ms$", done.stdout)
    assert done.stdout.endswith("answers right\n")


def test_the_load_notices_a_service_that_forgets(start: Start, tmp_path: Path) -> None:
    forgetful = tmp_path / "service.py"
    shutil.copy(EXAMPLE / "service.py", forgetful)
    text = forgetful.read_text(encoding="utf-8")
    assert 'packed.get(request["visitor"]' in text
    forgetful.write_text(text.replace('packed.get(request["visitor"]', 'packed.get("nobody"'))
    done = visit(start(forgetful))
    assert done.returncode == 1
    assert "was answered with" in done.stderr
    assert "answers right" not in done.stdout
