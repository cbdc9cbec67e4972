"""A profile in a terminal: short, whole at any width, readable without colour or Unicode."""

from __future__ import annotations

import io

import pytest
from heapfit.profile.answers import advice
from heapfit.profile.model import Profile
from heapfit.profile.terminal import show
from profile_data import busy_recording, calm, changed, recording, server, several
from rich.cells import cell_len
from rich.console import Console

pytestmark = pytest.mark.full

WIDTHS = [60, 80, 120, 200]


def shown(profile: Profile, width: int = 100, encoding: str = "utf-8") -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    show(profile, Console(file=file, width=width, color_system=None, legacy_windows=False), "x.hft")
    file.flush()
    written = file.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode(encoding)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for profile in (calm(), server(), several()):
        assert max(cell_len(line) for line in shown(profile, width).splitlines()) <= width


def test_the_facts_and_what_is_worth_a_try_fit_on_the_first_screen() -> None:
    first = "\n".join(shown(server()).splitlines()[:24])
    for fact in ("640 MiB", "742 MiB", "12.7M", "1.27M/s", "Worth a try: decay_ms", "contexts"):
        assert fact in first


@pytest.mark.parametrize("width", WIDTHS)
def test_each_section_has_its_advice_at_every_width(width: int) -> None:
    text = " ".join(shown(server(), width).split())
    for each in advice(server(), "x.hft").values():
        assert f"→ {each.sentence}" in text


def test_what_only_the_program_can_mend_is_no_feature_to_try() -> None:
    lines = shown(server(), 200).splitlines()
    tried = next(line for line in lines if line.startswith("Worth a try:"))
    assert "the program" not in tried
    assert "Worth a look, in the program: what is left at the end." in lines


def test_a_recording_without_a_date_shows_none() -> None:
    assert "1970" not in shown(changed(calm(), recordings=[recording(started_unix_ns=0)]))


def test_it_takes_no_longer_than_an_engineers_patience() -> None:
    assert len(shown(calm(), 100).splitlines()) < 130
    assert len(shown(server(), 100).splitlines()) < 170


def test_a_narrow_terminal_says_what_the_page_has_beyond_it() -> None:
    narrow = " ".join(shown(server(), 80).split())
    assert "… on the page:" in narrow
    assert "freed elsewhere" in narrow
    wide = shown(server(), 200)
    assert "Freed elsewhere" in wide


def test_the_course_of_memory_is_drawn_with_its_peak() -> None:
    lines = shown(server()).splitlines()
    course = lines[lines.index("Memory over time") + 1]
    assert "▇" in course
    assert len(course) == 60


def test_a_terminal_without_unicode_can_show_it() -> None:
    text = shown(server(), encoding="ascii")
    assert "-> " in text
    assert "▇" not in text


def test_names_from_outside_cannot_act_on_the_terminal() -> None:
    first = server()
    site = changed(first.sites.by_bytes[1], chain=["\x1b[31mred\x1b[0m"])
    evil = changed(
        first,
        recordings=[busy_recording(arguments=["\x1b]0;title\x07"], problems=["\u202edoor"])],
        sites__by_bytes=[site],
        sites__by_interleaving=[site],
    )
    text = shown(evil)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text


def test_where_nothing_is_to_be_done_that_is_said() -> None:
    assert "Nothing in this profile asks for an option" in shown(calm())


def test_a_recordings_problems_are_told() -> None:
    assert "- the file is cut short" in shown(
        changed(calm(), recordings=[recording(problems=["the file is cut short"])])
    )
