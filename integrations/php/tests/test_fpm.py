"""php-fpm: many requests of all kinds to one worker, which must neither die nor grow."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import FPM, HERE, Extension, define, environment, full, modules, run

pytestmark = pytest.mark.full

START_TIMEOUT_S = 500
START_POLL_S = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")
WARM_UP = 20
REQUESTS = 150

CONFIGURATION = """\
[global]
error_log = {folder}/error.log
daemonize = no
[www]
listen = {folder}/socket
pm = static
pm.max_children = 1
{user}
clear_env = no
catch_workers_output = yes
php_admin_value[html_errors] = 0
php_admin_value[display_errors] = 1
"""

# In what pages differ that are equal: how much was asked for when memory ran out.
VARYING = re.compile(r"tried to allocate \d+ bytes|memory usage is \d+ bytes")

BASE_SETTINGS = "memory_limit=128M\ndisplay_errors=1\nlog_errors=0\n"

STATE = """<?php
$s = heapfit_stats();
echo getmypid(), ' ', $s['footprint'], ' ', $s['free_alls'], ' ', $s['mode'];
"""
HEAVY = """<?php
for ($i = 0; $i < 20000; $i++) $a[] = str_repeat('x', $i % 500);
$b = str_repeat('y', 3000000);
echo count($a);
"""
LARGE_BYTES = 200 << 20
LARGE = f"""<?php
ini_set('memory_limit', -1);
for ($i = 0; $i < 10000; $i++) $a[] = str_repeat('x', 10000);
$b = str_repeat('y', {LARGE_BYTES} - 100000000);
echo count($a);
"""
LEAVE = """<?php
class A { public $o; }
for ($i = 0; $i < 500; $i++) { $x = new A; $x->o = $x; }
ob_start();
exit('left');
"""
UPLOAD = "<?php $body = file_get_contents('php://input'); echo strlen($body), ' ', md5($body);"
CLASS = """<?php
class Preloaded { const LIST = ['a' => [1, 2]]; function f() { return self::LIST; } }
"""


def sections(path: Path) -> dict[str, str]:
    """Return the sections of a .phpt file by name."""
    parts = re.split(r"^--([A-Z_]+)--\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


class Server:
    """A php-fpm with one worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, script: Path, body: str = "", **parameters: str) -> str:
        """Send a request, return the page without its headers."""
        client = subprocess.run(
            ["cgi-fcgi", "-bind", "-connect", self.folder / "socket"],
            env={
                "SCRIPT_FILENAME": str(script),
                "REQUEST_URI": f"/{script.name}",
                "REQUEST_METHOD": "POST" if body else "GET",
                "CONTENT_LENGTH": str(len(body)) if body else "",
                "CONTENT_TYPE": "text/plain",
                "PATH": "/usr/bin:/bin",
            }
            | parameters,
            input=body.encode(),
            capture_output=True,
            timeout=START_TIMEOUT_S,
            check=True,
        )
        return client.stdout.decode(errors="replace").partition("\r\n\r\n")[2]

    def page(self, text: str, body: str = "") -> str:
        """Have a program run that is given as text."""
        script = self.folder / "page.php"
        script.write_text(text, encoding="utf-8")
        return self.get(script, body)


@contextmanager
def serving(folder: Path, options: list[str]) -> Iterator[Server]:
    """Run php-fpm for as long as the block lasts."""
    folder.mkdir()
    root = run(["id", "-u"]).stdout.strip() == "0"
    configuration = folder / "fpm.conf"
    user = "user = root\ngroup = root" if root else ""
    configuration.write_text(CONFIGURATION.format(folder=folder, user=user), encoding="utf-8")
    command = [FPM, *(["-R"] if root else []), "-n", "-F", "-y", str(configuration), *options]
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(command, env=environment(), stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while not (folder / "socket").exists():
                assert process.poll() is None, (folder / "output").read_text()
                assert time.monotonic() < deadline
                time.sleep(START_POLL_S)
            yield Server(folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_TIMEOUT_S)
    assert process.returncode == 0
    log = (folder / "error.log").read_text()
    assert "exited on signal" not in log, log


def pages(server: Server, programs: list[Path], folder: Path) -> list[str]:
    """Run every .phpt's program, each with its settings, and return what they print."""
    found = []
    for path in programs:
        parts = sections(path)
        script = folder / f"{path.stem}.php"
        script.write_text(parts["FILE"], encoding="utf-8")
        # What one request sets this way, php-fpm keeps for the next ones.
        page = server.get(script, PHP_VALUE=BASE_SETTINGS + parts.get("INI", ""))
        found.append(f"{path.name}\n{VARYING.sub('N', page)}")
    return found


# The others print what depends on the mode or on what a worker keeps, or want more than a program.
MODE_IN_PAGE = ("counting", "stats", "cgi_get", "cgi_post", "phpinfo", "memory_peak")
PROGRAMS = sorted(path for path in HERE.glob("*.phpt") if path.stem not in MODE_IN_PAGE)
OPCACHE = define({"zend_extension": "opcache", "opcache.enable": "1"})
JIT = OPCACHE + define({"opcache.jit_buffer_size": "32M", "opcache.jit": "tracing"})


@pytest.mark.parametrize(
    "more", [full([], "plain"), full(OPCACHE, "opcache"), pytest.param(JIT, id="jit")]
)
@pytest.mark.parametrize("mode", ["defrag-dodging", full("region")])
def test_same_pages(extension: Extension, mode: str, more: list[str], tmp_path: Path) -> None:
    """Fatal errors, exits and memory limits, one after the other and again: as without heapfit."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    with serving(tmp_path / "off", [*more, *extension.settings("off")]) as server:
        expected = pages(server, PROGRAMS, scripts)
    with serving(tmp_path / "on", [*more, *extension.settings(mode, debug=True)]) as server:
        worker = server.page(STATE).split()[0]
        for _ in range(2):
            assert pages(server, PROGRAMS, scripts) == expected
        state = server.page(STATE).split()
    assert state[0] == worker
    assert int(state[2]) == 2 * len(PROGRAMS) + 1
    assert state[3] == mode


@pytest.mark.parametrize("mode", ["defrag-dodging", full("region")])
def test_memory_is_returned_before_the_next_request(
    extension: Extension, mode: str, tmp_path: Path
) -> None:
    """A worker that waits does not hold what its last request had."""
    with serving(tmp_path / "fpm", extension.settings(mode)) as server:
        status = Path("/proc", server.page(STATE).split()[0], "statm")
        assert server.page(LARGE) == "10000"
        deadline = time.monotonic() + START_TIMEOUT_S
        while int(status.read_text().split()[1]) * PAGE >= LARGE_BYTES // 2:
            assert time.monotonic() < deadline
            time.sleep(START_POLL_S)


@pytest.mark.parametrize("mode", [full("defrag-dodging"), "region"])
def test_worker_does_not_grow(extension: Extension, mode: str, tmp_path: Path) -> None:
    """What requests leave behind is given back, whichever way they end."""
    with serving(tmp_path / "fpm", [*modules(), *extension.settings(mode)]) as server:
        twig = HERE / "programs" / "twig.php"
        expected = server.get(twig)
        footprints = []
        for i in range(REQUESTS):
            assert server.page(LEAVE) == "left"
            assert server.page(HEAVY) == "20000"
            if i % 10 == 0:
                assert server.get(twig) == expected
            if i >= WARM_UP:
                footprints.append(int(server.page(STATE).split()[1]))
    assert max(footprints[-10:]) <= max(footprints[:10])


def test_large_bodies(extension: Extension, tmp_path: Path) -> None:
    """The body is read before a request begins, and its memory is not kept."""
    body = "0123456789abcdef" * 100000
    options = [*extension.settings("defrag-dodging", debug=True), *define({"post_max_size": "32M"})]
    with serving(tmp_path / "fpm", options) as server:
        answers = {server.page(UPLOAD, body) for _ in range(5)}
        for _ in range(WARM_UP):
            footprint = int(server.page(STATE).split()[1])
    assert len(answers) == 1
    assert answers.pop().startswith(f"{len(body)} ")
    assert footprint < len(body) * 5


def test_preloading(extension: Extension, tmp_path: Path) -> None:
    """Classes that opcache preloads in the master serve every worker."""
    preload = tmp_path / "preload.php"
    preload.write_text(CLASS)
    more = define({"opcache.preload": str(preload), "opcache.preload_user": "root"})
    options = [*OPCACHE, *more, *extension.settings("defrag-dodging", debug=True)]
    with serving(tmp_path / "fpm", options) as server:
        for _ in range(3):
            page = server.page("<?php echo json_encode((new Preloaded)->f());")
            assert page == '{"a":[1,2]}'
