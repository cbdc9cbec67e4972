"""A profile as a page, in a real browser and without one, and in a terminal.

The browser is Debian's `chromium`.
"""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from heapfit.errors import HeapfitError
from heapfit.profile import tables
from heapfit.profile.answers import content
from heapfit.profile.model import Profile
from heapfit.profile.page import page, save_page
from heapfit.profile.terminal import show
from profile_tables import as_recorded, changed
from rich.cells import cell_len
from rich.console import Console
from test_report_page import Elements
from trace_data import server

pytestmark = pytest.mark.full

# What a hostile program would call its functions and threads.
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "{{ 7 * 7 }}",
    "`code` <b>`",
    "\"' onmouseover=alert(4) x='",
]


def text_of(profile: Profile) -> str:
    """The page's text as a browser without scripts would show it, roughly."""
    body = re.sub(r"<(script|style).*?</\1>", "", page(profile, "x.hft"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", body).split())


def test_wrappers_of_malloc_do_not_stand_for_who_allocates(tmp_path: Path) -> None:
    chains = [
        ["xmalloc", "node_new"],
        ["xmalloc", "dup", "key_new"],
        ["xmalloc", "dup", "text_new"],
    ]
    first = server(tmp_path)
    sites = [changed(first.sites.by_bytes[0], chain=chain) for chain in chains]
    found = tables.sites(changed(first, sites__by_bytes=sites, sites__by_interleaving=[]))
    assert found is not None
    assert [row[0].text for row in found.rows] == ["node_new", "key_new", "text_new"]
    assert found.rows[1][0].detail == "xmalloc ← dup ← key_new"


def test_estimates_of_a_sample_carry_their_error(tmp_path: Path) -> None:
    found = as_recorded(server(tmp_path), sample=512 << 10)
    estimated = changed(found.totals.allocations, objects=50_000, objects_error=900.0)
    text = text_of(changed(found, totals__allocations=estimated))
    assert "50k ± 900" in text
    assert "one allocation per 512 KiB" in text


def test_a_page_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(HeapfitError, match=r"cannot write .*no such file or directory"):
        save_page(server(tmp_path), tmp_path / "missing" / "profile.html")


def test_in_a_browser_all_is_drawn_and_hostile_names_are_shown_and_never_run(
    tmp_path: Path,
) -> None:
    first = server(tmp_path)
    site = changed(first.sites.by_bytes[1], chain=HOSTILE)
    profile = changed(
        as_recorded(first, program=HOSTILE[0], arguments=HOSTILE, problems=HOSTILE),
        sites__by_bytes=[site],
        sites__by_interleaving=[site],
        sharing__threads=HOSTILE,
        leaks__sites=[changed(first.leaks.sites[0], name=HOSTILE[3])],
    )
    path = tmp_path / "profile.html"
    save_page(profile, path, "x.hft")
    dom, said = in_browser(path)
    assert said == []
    assert ' data-figures="drawn" data-flames="drawn">' in dom.partition("<head")[0]
    body, scripts = re.subn(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert scripts == 5  # the data of figures and of flames, library, page, unpacked library
    shown = Elements(body)
    assert not [tag for tag, _ in shown.found if tag in ("img", "b")]
    assert not [own for _, own in shown.found if {"onerror", "onmouseover"} & own.keys()]
    assert all(name in shown.text for name in HOSTILE[:3])


def in_browser(path: Path) -> tuple[str, list[str]]:
    """A page as its scripts have left it, and what the console says: also what was not loaded, for
    the page's policy forbids it."""
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    switches += ["--enable-logging=stderr", f"--user-data-dir={path.with_suffix('')}"]
    command = ["chromium", *switches, "--virtual-time-budget=600000", "--dump-dom", path.as_uri()]
    while True:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        if said or re.search("<html[^>]* data-figures[^>]* data-flames", done.stdout):
            return done.stdout, said
        # Chromium's own threads, which unpack data, may outlast virtual time.


def shown(
    profile: Profile, width: int = 100, encoding: str = "utf-8", *, every: bool = True
) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=file, width=width, color_system=None, legacy_windows=False)
    show(profile, console, "x.hft", every=every)
    file.flush()
    written = file.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode(encoding)


@pytest.mark.parametrize("width", [60, 200])
def test_no_line_is_wider_than_the_terminal(width: int, tmp_path: Path) -> None:
    one = server(tmp_path)
    two = changed(one, recordings=one.recordings * 2)
    for profile in (one, two):
        assert max(cell_len(line) for line in shown(profile, width).splitlines()) <= width


@pytest.mark.gate
@pytest.mark.parametrize("width", [30, 40])
def test_figures_are_whole_in_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    one = server(tmp_path)
    profile = changed(one, leaks__amount__bytes=1 << 30, leaks__amount__bytes_error=1.83 * 2**20)
    text = shown(profile, width)
    assert not [line for line in text.splitlines() if "…" in line and "… on the page" not in line]
    assert " ".join(["1", "GiB", "±", "1.83", "MiB"]) in " ".join(text.split())


@pytest.mark.gate
def test_what_asks_for_action_comes_first_and_all_of_it_is_said_on_demand(tmp_path: Path) -> None:
    """It stood in the middle of 60 lines."""
    profile = server(tmp_path)
    brief, whole = (shown(profile, 80, every=every).splitlines() for every in (False, True))
    assert len(brief) <= 35
    for lines in (brief, whole):
        asked = next(
            n
            for n, line in enumerate(lines)
            if line.startswith(("In the", "Worth a try", "Nothing here"))
        )
        assert asked < next(n for n, line in enumerate(lines) if line.startswith("Recorded"))
    assert "See 13 sections, and more on each figure: heapfit profile x.hft --all" in brief
    titles = [each.title for each in content(profile, "x.hft").sections]
    assert set(titles) <= set(whole)
    assert len(set(titles) & set(brief)) == 1


def test_a_terminal_without_unicode_can_show_it(tmp_path: Path) -> None:
    text = shown(server(tmp_path), encoding="ascii")
    assert "-> " in text
    assert "▇" not in text


def test_names_from_outside_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    first = server(tmp_path)
    site = changed(first.sites.by_bytes[1], chain=["\x1b[31mred\x1b[0m"])
    evil = changed(
        as_recorded(first, arguments=["\x1b]0;title\x07"], problems=["\u202edoor"]),
        sites__by_bytes=[site],
        sites__by_interleaving=[site],
    )
    text = shown(evil)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\\x1b[31mred" in text
