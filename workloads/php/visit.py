"""For preparations: serve an application, look at each of its pages once, and keep what that left.

Caches of rendered pages are then filled, as those of a site are that is read all day.
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import urllib.request
from pathlib import Path

import mariadb
import native
import php
from application import Application
from layout import Layout
from processes import Failed
from stack import Stack

_TIMEOUT_S = 60


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def visit(application: Application, data: Path, port: int) -> None:
    """Fetch every page without a form, check it, and put the copied state back into `data`.

    What trials need compiled is compiled too, lest the first of them waits for it.
    """
    native.extension(data)
    with tempfile.TemporaryDirectory(prefix="heapfit-php-") as folder:
        layout = Layout(here=application.here, data=data, scratch=Path(folder).resolve())
        stack = Stack(application, layout, port, php.MemoryManager())
        try:
            with stack.running():
                for page in application.all_pages(data):
                    if page.submit is None:
                        _fetch(f"http://127.0.0.1:{port}{page.path}", page.contains)
        except Failed as failure:
            sys.exit(f"visit.py: {failure}")
        names = list(application.copy)
        if application.database == "mariadb":
            names.append(mariadb.FOLDER)
        for name in names:
            _replace(data / name, layout.scratch / name)


def _fetch(url: str, wanted: str) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        text = answer.read().decode("utf-8", "replace")
    if wanted not in text:
        sys.exit(f"visit.py: {url} does not hold {wanted!r}: {text[:500]!r}")


def _replace(old: Path, new: Path) -> None:
    if old.is_dir():
        shutil.rmtree(old)
    else:
        old.unlink()
    shutil.move(new, old)
