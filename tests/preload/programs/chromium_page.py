"""A headless Chromium works through a page of ours, which sends back what came of it.

Page and answer go over loopback. What the browser says about buses and displays that are not there
is kept out of the comparison; a process of it that dies leaves the page without an answer.
With the argument `sandboxed` its processes are confined as they are on a desktop.
"""

from __future__ import annotations

import http.server
import shutil
import sys
import threading
from pathlib import Path

from serving import check_preloaded, family, serving

PAGE = Path(__file__).with_name("browser_page.html").read_bytes()
PROFILE = "profile"
SANDBOXED = sys.argv[1:] == ["sandboxed"]


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the page and takes its one answer."""

    answer: bytes | None = None

    def do_GET(self) -> None:
        found = self.path == "/"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE if found else b"")

    def do_POST(self) -> None:
        Handler.answer = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of single requests."""


def browser(address: str) -> list[str]:
    quiet = "no-first-run disable-background-networking disable-component-update disable-sync"
    small = "headless disable-gpu disable-breakpad disable-dev-shm-usage"
    if not SANDBOXED:
        small += " no-sandbox"
    options = [f"--{name}" for name in f"{quiet} {small}".split()]
    return ["chromium", *options, f"--user-data-dir={Path(PROFILE).absolute()}", address]


def has_filter(process: int) -> bool:
    """Whether the kernel filters the system calls of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return "Seccomp:\t2" in status


Path.cwd().chmod(0o777)  # the browser may run as another user
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
    threading.Thread(target=site.serve_forever, daemon=True).start()
    command = browser(f"http://127.0.0.1:{site.server_address[1]}/")
    with serving(command, lambda: Handler.answer is not None) as process:
        check_preloaded(process)
        if SANDBOXED:
            print("confined:", any(has_filter(each) for each in family(process)))
        print((Handler.answer or b"").decode())
    site.shutdown()
for folder in (PROFILE, ".config", ".cache"):
    shutil.rmtree(folder)
