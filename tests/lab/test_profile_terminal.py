"""A profile in a terminal: short, whole at any width, readable without colour or Unicode."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from heapfit.profile.model import Profile
from heapfit.profile.terminal import show
from profile_data import calm, changed, recording, server, several
from rich.cells import cell_len
from rich.console import Console

pytestmark = pytest.mark.full

WIDTHS = [60, 200]


def shown(profile: Profile, width: int = 100, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(profile, Console(file=file, width=width, color_system=None, legacy_windows=False), "x.hft")
    file.flush()
    written = file.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode(encoding)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int, tmp_path: Path) -> None:
    for profile in (calm(), server(tmp_path), several(tmp_path)):
        assert max(cell_len(line) for line in shown(profile, width).splitlines()) <= width


def test_a_terminal_without_unicode_can_show_it(tmp_path: Path) -> None:
    text = shown(server(tmp_path), encoding="ascii")
    assert "-> " in text
    assert "▇" not in text


def test_names_from_outside_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    first = server(tmp_path)
    site = changed(first.sites.by_bytes[1], chain=["\x1b[31mred\x1b[0m"])
    evil = changed(
        first,
        recordings=[recording(arguments=["\x1b]0;title\x07"], problems=["\u202edoor"])],
        sites__by_bytes=[site],
        sites__by_interleaving=[site],
    )
    text = shown(evil)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text
