"""What the scripts have in common that look at PHP under one memory manager after the other.

Each prints a table in Markdown with a row for each of PHP's modes, measured in a folder of its own.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import drive
import native
import php
import processes
from application import Application
from layout import Layout


def parser(description: str, modes: Sequence[str], requests: int) -> argparse.ArgumentParser:
    """The arguments that all take; `modes` and `requests` are defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--application", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--modes", default=",".join(modes), metavar="A,B")
    parser.add_argument("--requests", type=int, default=requests)
    parser.add_argument("--edits", type=int, default=0, metavar="PERCENT")
    return parser


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The arguments, with `modes` as a list; ends the process when one of them is unknown."""
    arguments = parser.parse_args()
    arguments.modes = arguments.modes.split(",")
    if unknown := sorted(set(arguments.modes) - set(php.MODES)):
        parser.error(f"unknown modes {', '.join(unknown)}; there are {', '.join(php.MODES)}")
    return arguments


def layout_of(arguments: argparse.Namespace, scratch: Path) -> Layout:
    return Layout(
        here=arguments.application.resolve(), data=arguments.data.resolve(), scratch=scratch
    )


def extension_for(mode: str, layout: Layout) -> Path | None:
    """heapfit's extension, where the mode needs it."""
    return native.extension(layout.data) if mode in php.EXTENSION_MODES else None


def write_plan(application: Application, layout: Layout, edits: int) -> Path:
    """Write what the driver asks for, `edits` percent of it changes; returns the file."""
    plan = layout.scratch / "plan"
    drive.write_plan(drive.make_plan(application.all_pages(layout.data), edits), plan)
    return plan


def print_rows(modes: Sequence[str], row: Callable[[str, Path], str]) -> None:
    """Print the `row` of each mode, made in an empty folder which it may change to."""
    for mode in modes:
        before = Path.cwd()
        with tempfile.TemporaryDirectory(prefix="heapfit-php-") as folder:
            try:
                line = row(mode, Path(folder).resolve())
            except processes.Failed as failure:
                sys.exit(f"{Path(sys.argv[0]).name}: {failure}")
            finally:
                os.chdir(before)
        print(line, flush=True)
