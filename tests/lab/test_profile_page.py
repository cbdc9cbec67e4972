"""A profile as a page, in a real browser and without one, and in a terminal.

Needs Debian's `chromium`; without it these tests fail and say what to install.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page
from heapfit.errors import HeapfitError
from heapfit.profile import tables
from heapfit.profile.model import Profile
from heapfit.profile.page import page, save_page
from heapfit.profile.terminal import show
from profile_data import calm, changed, recording, server, several
from rich.cells import cell_len
from rich.console import Console

pytestmark = pytest.mark.full

DRAWN = "document.documentElement.dataset.figures"
DESKTOP, TABLET, PHONE = 1280, 768, 390

# What a hostile program would call its functions and threads.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "{{ 7 * 7 }}",
    "`code` <b>`",
    "\"' onmouseover=alert(4) x='",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


def drawn(browser: Browser, folder: Path, profile: Profile, width: int = DESKTOP) -> Page:
    """Open the page and wait for its figures; they must have been drawn without a complaint."""
    path = folder / "profile.html"
    save_page(profile, path, "x.hft")
    shown = browser.open(path, width)
    shown.wait_until(f"{DRAWN} !== undefined")
    assert shown.errors == []
    assert shown.evaluate(DRAWN) == "drawn"
    # Plotly makes pictures of heat maps; they are in the page.
    fetched = [url for url in shown.requests if not url.startswith("data:image/png;base64,")]
    assert fetched == [path.resolve().as_uri()]
    return shown


def text_of(profile: Profile) -> str:
    """The page's text as a browser without scripts would show it, roughly."""
    body = re.sub(r"<(script|style).*?</\1>", "", page(profile, "x.hft"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", body).split())


# ----------------------------------------------------------------------------- text


def test_wrappers_of_malloc_do_not_stand_for_who_allocates() -> None:
    chains = [
        ["xmalloc", "node_new"],
        ["xmalloc", "dup", "key_new"],
        ["xmalloc", "dup", "text_new"],
    ]
    first = calm()
    sites = [changed(first.sites.by_bytes[0], chain=chain) for chain in chains]
    found = tables.sites(changed(first, sites__by_bytes=sites))
    assert found is not None
    assert [row[0].text for row in found.rows] == ["node_new", "key_new", "text_new"]
    assert found.rows[1][0].detail == "xmalloc ← dup ← key_new"


def test_estimates_of_a_sample_carry_their_error() -> None:
    estimated = changed(calm().totals.allocations, objects_error=900.0, bytes_error=70_000.0)
    profile = changed(
        calm(), recordings=[recording(sample=512 << 10)], totals__allocations=estimated
    )
    text = text_of(profile)
    assert "50k ± 900" in text
    assert "one allocation for each 512 KiB" in text


def test_a_page_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(HeapfitError, match=r"cannot write .*no such file or directory"):
        save_page(calm(), tmp_path / "missing" / "profile.html")


# -------------------------------------------------------------------------- browser


@pytest.mark.full
def test_hostile_names_are_shown_and_never_run(browser: Browser, tmp_path: Path) -> None:
    first = server(tmp_path)
    site = changed(first.sites.by_bytes[1], chain=HOSTILE)
    profile = changed(
        first,
        recordings=[recording(program=HOSTILE[0], arguments=HOSTILE, problems=HOSTILE)],
        sites__by_bytes=[site],
        sites__by_interleaving=[site],
        sharing__threads=[*HOSTILE, "a", "b", "c"],
        transactions__threads=[
            changed(each, thread=HOSTILE[1]) for each in first.transactions.threads
        ],
        leaks__sites=[changed(first.leaks.sites[0], name=HOSTILE[3])],
    )
    shown = drawn(browser, tmp_path, profile)
    assert shown.evaluate("document.querySelectorAll('main img, main b').length") == 0
    assert shown.evaluate("document.querySelectorAll('[onerror], [onmouseover]').length") == 0
    # The data of figures and of flames, library, page, unpacked library.
    assert shown.evaluate("document.scripts.length") == 5
    text = shown.evaluate("document.body.innerText")
    assert all(name in text for name in HOSTILE[:3])


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
