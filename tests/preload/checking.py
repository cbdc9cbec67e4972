"""The one check that all tests of preloading make."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Iterator
from pathlib import Path

from comparison import Outcome, Program, missing_packages, run_plain, run_preloaded


def check_same_with_and_without(program: Program, library: Path, place: Path) -> None:
    """Fails unless `program` works, works the same under `library`, and really used it."""
    missing = missing_packages(program)
    assert not missing, f"{program.name} needs: apt-get install {' '.join(missing)}"

    plain = run_plain(program, place)
    assert plain.exit_code == 0, f"{program.name} fails even without the library:\n{plain.stderr}"
    assert plain.stdout, f"{program.name} printed nothing that could be compared"

    preloaded, starts = run_preloaded(program, place, library)
    if preloaded != plain:
        raise AssertionError("\n".join(["the library changed:", *changes(plain, preloaded)]))

    with_library = {start.program for start in starts if str(library) in start.libraries}
    without = {start.program for start in starts if str(library) not in start.libraries}
    assert program.loaded_in <= with_library, "the loader did not start these with the library"
    assert not without, "these programs lost the library on their way"
    elsewhere = {
        start.program: sorted(start.allocators)
        for start in starts
        if start.allocators != {str(library)}
    }
    assert not elsewhere, "these programs called another malloc"


def changes(plain: Outcome, preloaded: Outcome) -> Iterator[str]:
    """Yield the lines that differ, those of `plain` first, below the name of what they are of.

    The end of a summary may be all that is read: it must not be what both have in common.
    """
    for field in dataclasses.fields(Outcome):
        before, after = (_lines(getattr(each, field.name)) for each in (plain, preloaded))
        yield from difflib.unified_diff(before, after, field.name, field.name, n=0, lineterm="")


def _lines(value: object) -> list[str]:
    return (value if isinstance(value, str) else json.dumps(value, indent=0)).splitlines()
