"""nginx serves files under wrk: plain, compressed, through itself as a proxy, put together by SSI.

Every page is read and compared before and after the load, and the workers are replaced in the
middle of it. nginx writes an alert when a worker dies, so its error log is part of what is printed.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from serving import check_preloaded, family, free_port, serving, wait_until

WORKERS = 2
LOAD_S = 1
LOAD_TIMEOUT_S = 60
FILE_SIZES = (0, 100, 5_000, 70_000, 1_500_000)

CONFIGURATION = """
daemon off;
worker_processes {workers};
pid nginx.pid;
error_log error.log warn;
events {{ worker_connections 256; }}
http {{
  access_log access.log combined buffer=4k;
  client_body_temp_path temporary-body;
  proxy_temp_path temporary-proxy;
  fastcgi_temp_path temporary-fastcgi;
  uwsgi_temp_path temporary-uwsgi;
  scgi_temp_path temporary-scgi;
  proxy_cache_path cache keys_zone=pages:1m;
  gzip_types text/plain;
  gzip_proxied any;
  server {{
    listen 127.0.0.1:{port};
    location /plain/ {{ alias files/; default_type text/plain; }}
    location /packed/ {{ alias files/; default_type text/plain; gzip on; }}
    location /proxied/ {{ proxy_pass http://127.0.0.1:{port}/plain/; proxy_buffers 4 4k; }}
    location /cached/ {{
      proxy_pass http://127.0.0.1:{port}/packed/;
      proxy_cache pages;
      proxy_cache_valid 1s;
    }}
    location /joined/ {{ alias joined/; default_type text/html; ssi on; }}
    location /listed/ {{ alias files/; autoindex on; autoindex_format json; }}
    location ~ ^/rewritten/(?<name>[a-z]+)-(?<size>\\d+)$ {{ return 200 "$name is $size\\n"; }}
  }}
}}
"""


def make_site() -> None:
    for folder in ("files", "joined"):
        Path(folder).mkdir()
    for size in FILE_SIZES:
        line = f"a line of the file of {size} bytes, with its number "
        text = "".join(f"{line}{number}\n" for number in range(size // len(line) + 1))
        file = Path("files", str(size))
        file.write_text(text[:size])
        os.utime(file, (0, 0))  # the listing names the time
    parts = "".join(f'<!--#include virtual="/packed/{size}" -->\n' for size in FILE_SIZES)
    Path("joined/page").write_text(f'<!--#set var="x" value="set" --><!--#echo var="x" -->{parts}')


class Site:
    """nginx as a client sees it."""

    kinds = ("plain", "packed", "proxied", "cached")
    paths = (
        *(f"{kind}/{size}" for kind in kinds for size in FILE_SIZES),
        *("joined/page", "listed/", "rewritten/size-12", "plain/missing"),
    )

    def __init__(self, port: int) -> None:
        self._origin = f"http://127.0.0.1:{port}/"

    def read(self, path: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self._origin + path, headers={"Accept-Encoding": "gzip"})
        try:
            with urllib.request.urlopen(request, timeout=LOAD_TIMEOUT_S) as answer:
                body = answer.read()
                packed = answer.headers["Content-Encoding"] == "gzip"
                return answer.status, gzip.decompress(body) if packed else body
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def answers(self) -> bool:
        try:
            return self.read("plain/100")[0] == 200
        except OSError:
            return False

    def digests(self) -> list[str]:
        answers = ((path, *self.read(path)) for path in self.paths)
        return [
            f"{path} {status} {hashlib.sha256(body).hexdigest()}" for path, status, body in answers
        ]

    def load(self, path: str) -> None:
        """Load one page with wrk, which speaks of errors only when there are some."""
        done = subprocess.run(
            ["wrk", "-t1", "-c16", f"-d{LOAD_S}s", "-HAccept-Encoding: gzip", self._origin + path],
            stdout=subprocess.PIPE,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=True,
        )
        lines = done.stdout.splitlines()
        errors = [line for line in lines if "Socket errors" in line or "Non-2xx" in line]
        print("under load:", path, *errors or ["all answered"])


def workers(server: int) -> set[int]:
    found = set()
    for process in family(server):
        with contextlib.suppress(OSError):  # it ended meanwhile
            if b"worker process" in Path(f"/proc/{process}/cmdline").read_bytes():
                found.add(process)
    return found


def replace_workers(server: int) -> None:
    before = workers(server)
    os.kill(server, signal.SIGHUP)
    wait_until(
        "new workers in place of the old",
        lambda: len(workers(server)) == WORKERS and not before & workers(server),
    )


def complaints() -> list[str]:
    """Return what nginx noted of trouble, but for the file that was asked for and is missing."""
    lines = Path("error.log").read_text().splitlines()
    return [line for line in lines if "files/missing" not in line]


def session(site: Site, server: int) -> None:
    wait_until("all workers run", lambda: len(workers(server)) == WORKERS)
    pages = site.digests()
    print(*pages, sep="\n")
    for number, path in enumerate(("plain/5000", "packed/70000", "proxied/1500000", "joined/page")):
        site.load(path)
        if number == 1:
            check_preloaded(server)
            replace_workers(server)
    site.load("cached/70000")
    check_preloaded(server)
    print("pages are unchanged:", site.digests() == pages)


Path.cwd().chmod(0o777)  # the server may run as another user
port = free_port()
make_site()
Path("nginx.conf").write_text(CONFIGURATION.format(port=port, workers=WORKERS))
site = Site(port)
here = os.getcwd()
nginx = ["nginx", "-p", here, "-c", f"{here}/nginx.conf", "-e", "error.log"]
with serving(nginx, site.answers, stop=signal.SIGQUIT) as server:
    session(site, server)
print("complaints:", *complaints() or ["none"], sep="\n")
for folder in Path.cwd().glob("temporary-*"):
    folder.rmdir()
shutil.rmtree("cache")  # its entries hold times
