"""A PHP application with its web server and database, started and driven as the workloads do it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import shared_home
from heapfit import paths
from loopback import accepts, free_port

FOLDER = paths.workloads_dir()
MACHINERY = FOLDER / "php"
PYTHON = "/usr/bin/python3"  # what the workloads run on

# A tenth of the data is enough to be right or wrong.
SMALL = {
    "php-mediawiki": ["--articles", "12"],
    "php-dokuwiki": ["--articles", "12"],
    "php-wordpress": ["--posts", "12"],
}
APPLICATIONS = shared_home.PHP
PREPARE_TIMEOUT_S = 200
START_TIMEOUT_S = 120  # the first start may compile
STOP_TIMEOUT_S = 60
DRIVE_TIMEOUT_S = 120


def prepare(name: str) -> Path:
    """Return the folder of the small data of an application, with PHP's extension beside it."""
    few = SMALL.get(name, [])
    data = APPLICATIONS / name

    def make() -> None:
        data.mkdir(parents=True)
        command = [PYTHON, FOLDER / name / "prepare.py", data, *few]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PREPARE_TIMEOUT_S)
        assert done.returncode == 0, done.stderr

    shared_home.php_extension()
    recipe = shared_home.recipe_of([FOLDER / name, MACHINERY], *few)
    return shared_home.once(name, data, recipe, make)


def beside_the_extension(data: Path) -> Path:
    """Let data that a test wrote itself lie beside PHP's extension, as all applications' do."""
    built = shared_home.php_extension().parents[1]
    (data.parent / built.name).symlink_to(built)
    return data


@dataclass
class Served:
    """A stack that serves, and what drives it."""

    supervisor: subprocess.Popen[str]
    application: Path
    data: Path
    scratch: Path
    port: int

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Those of the stack by the names of their programs."""
        found: dict[str, list[psutil.Process]] = {}
        for process in psutil.Process(self.supervisor.pid).children(recursive=True):
            found.setdefault(Path(process.exe()).name, []).append(process)
        return found

    def drive(self, **options: object) -> subprocess.CompletedProcess[str]:
        words = [PYTHON, MACHINERY / "drive.py", *folders(self), "--port", self.port]
        for name, value in {"warmup": 4, **options}.items():
            words += [f"--{name}", value]
        return subprocess.run(
            list(map(str, words)), capture_output=True, text=True, timeout=DRIVE_TIMEOUT_S
        )

    def stop(self) -> int:
        self.supervisor.terminate()
        return self.supervisor.wait(STOP_TIMEOUT_S)


def folders(served: Served) -> list[object]:
    places = [served.application, served.data, served.scratch]
    names = ["--application", "--data", "--scratch"]
    return [word for pair in zip(names, places, strict=True) for word in pair]


@contextmanager
def serving(
    application: Path,
    data: Path,
    scratch: Path,
    *,
    preload: Path | None = None,
    **options: object,
) -> Iterator[Served]:
    scratch.mkdir(exist_ok=True)
    served = Served(subprocess.Popen(["true"], text=True), application, data, scratch, free_port())
    served.supervisor.wait()
    words = [PYTHON, MACHINERY / "stack.py", *folders(served), "--port", served.port]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", value]
    environment = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
    served.supervisor = subprocess.Popen(
        list(map(str, words)), env=environment, stderr=subprocess.PIPE, text=True
    )
    children: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not accepts(served.port):
            assert served.supervisor.poll() is None, served.supervisor.communicate()[1]
            assert time.monotonic() < deadline, "the stack did not start in time"
            time.sleep(0.05)
        children = [each for group in served.processes().values() for each in group]
        yield served
    finally:
        if served.supervisor.poll() is None:
            served.stop()
        served.supervisor.communicate()
        _, alive = psutil.wait_procs(children, STOP_TIMEOUT_S)
        for process in alive:
            process.kill()
        assert not alive, f"outlived the stack: {alive}"


def figures(printed: str) -> dict[str, float]:
    """The metrics that the driver printed."""
    pairs = [line.split() for line in printed.splitlines() if line != "answers right"]
    return {name: float(value) for name, value in pairs}
