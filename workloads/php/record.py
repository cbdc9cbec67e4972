"""Records what a worker of php-fpm asks of malloc while it answers requests.

PHP has its own memory manager switched off (USE_ZEND_ALLOC=0), so that each of its objects comes
from malloc and is seen by heapfit's recorder. That one is loaded from the start and begins when a
warm-up has filled the caches; when it stops, the file holds the calls of whole requests, and
nothing of PHP's own start. count.py counts the same without a recorder, by heapfit's extension.

Usage: record.py --application FOLDER --data FOLDER --library LIBRARY --out FILE
                 [--requests N] [--warmup N] [--edits PERCENT] [--sites N]

LIBRARY is what `heapfit lib --variant record` prints.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from signal import SIGINT, SIGTERM
from typing import Any

import drive
import php
import processes
from application import Application
from layout import Layout
from stack import PRELOAD, Stack, end_on
from visit import free_port
from workers import Workers

# One that is recorded, and as few connections as keep it busy.
WORKERS = 1
CONNECTIONS = 2
TIMEOUT_S = 30.0


def ask(process: int, word: str) -> dict[str, Any]:
    """Tell the recorder in `process` to start or to stop, and return what it says of itself."""
    with socket.socket(socket.AF_UNIX) as recorder:
        recorder.settimeout(TIMEOUT_S)
        recorder.connect(f"\0heapfit-record/{process}")
        recorder.sendall(f"{word}\n".encode())
        answer: dict[str, Any] = json.loads(recorder.makefile().readline())
    if not answer["ok"]:
        sys.exit(f"record.py: the recorder does not {word}: {answer['error']}")
    return answer


def record(arguments: argparse.Namespace, scratch: Path) -> Path:
    """Serve the application, drive it, and return the file that was written meanwhile."""
    layout = Layout(arguments.application.resolve(), arguments.data.resolve(), scratch)
    application = Application.load(layout.here)
    plan, port = scratch / "plan", free_port()
    drive.write_plan(drive.make_plan(application.all_pages(layout.data), arguments.edits), plan)
    os.environ[PRELOAD] = str(arguments.library.resolve())
    os.environ["HEAPFIT_RECORD"] = str(scratch / "trace.hft")
    settings = f"start:later,children:on,sites:{arguments.sites}"
    os.environ["HEAPFIT_RECORD_OPTIONS"] = settings
    manager = php.MemoryManager(mode=php.MALLOC)
    with Stack(application, layout, port, manager, WORKERS).running():
        del os.environ[PRELOAD]  # The load is nobody's concern.
        (worker,) = Workers.of(scratch).processes
        drive.run_load(plan, port, arguments.warmup, CONNECTIONS)
        ask(worker, "start")
        drive.run_load(plan, port, arguments.requests, CONNECTIONS)
        return Path(ask(worker, "stop")["file"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Record a PHP application's requests.")
    parser.add_argument("--application", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--library", type=Path, required=True, metavar="LIBRARY")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=40)
    parser.add_argument("--edits", type=int, default=0, metavar="PERCENT")
    parser.add_argument("--sites", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    end_on(SIGTERM, SIGINT)
    arguments = parse()
    out = arguments.out.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            shutil.copyfile(record(arguments, Path(scratch).resolve()), out)
        except processes.Failed as failure:
            sys.exit(f"record.py: {failure}")
    print(f"recorded {arguments.requests} requests to {out}")


if __name__ == "__main__":
    main()
