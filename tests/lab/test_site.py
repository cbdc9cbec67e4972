"""The documentation's site: `make site` builds it, and what a reader of it meets.

The pages are Markdown that is also read where it lies, so the site must show them alike, lead
wherever a link of a page leads, and ask nobody else for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = re.compile(r"(?:https?:)?//")


def build(root: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    return subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a warning ends the build."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


@dataclass
class Html(HTMLParser):
    """What a page links to, what can be linked to on it, and what its article is made of."""

    text: str
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif "src" in values or tag == "link":
            self.loads.append(values.get("src") or values["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    """Each page of the site; 404.html is for servers, and means everything from their root."""
    return {
        path: Html(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }


def test_every_link_of_the_site_leads_somewhere(site: Path, pages: dict[Path, Html]) -> None:
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            if re.match(r"(?:[a-z]+:)?//|mailto:", link):
                continue
            name, anchor = urldefrag(link)
            target = (path.parent / unquote(name)).resolve() if name else path
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else set()
            if not target.is_file() or (anchor and unquote(anchor) not in known | {"__skip"}):
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []
    assert sum(len(page.links) for page in pages.values()) > 1000


def test_no_page_asks_another_host_for_anything(pages: dict[Path, Html]) -> None:
    assert [load for page in pages.values() for load in page.loads if ADDRESS.match(load)] == []
