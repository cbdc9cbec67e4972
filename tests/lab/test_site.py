"""The documentation's site: `make site` builds it, and what a reader of it meets.

The pages are Markdown that is also read where it lies, so the site must show them alike, lead
wherever a link of a page leads, and ask nobody else for anything.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from browser import Browser

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


# ------------------------------------------------------------ what is built


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


def test_every_page_is_reached_from_the_first(site: Path, pages: dict[Path, Html]) -> None:
    reached, waiting = set(), [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in pages and path not in reached:
            reached.add(path)
            waiting += [(path.parent / urldefrag(link)[0]).resolve() for link in pages[path].links]
    assert reached == set(pages)


# -------------------------------------------------------------- in a browser


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that does not write a line for each request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on loopback."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


def test_the_search_finds_an_option(address: str, browser: Browser) -> None:
    page = browser.open(f"{address}index.html")
    page.evaluate("document.querySelector('[data-md-toggle=search]').click()")
    page.evaluate("document.querySelector('.md-search__input').focus()")
    page.command("Input.insertText", text="thread_span_threshold")
    # A page that was not ready to search when the text came looks at it with the next key.
    key = "document.querySelector('.md-search__input').dispatchEvent(new Event('keyup'))"
    page.wait_until(f"{key} && document.querySelectorAll('.md-search-result__link').length > 0")
    found = page.evaluate(
        "[...document.querySelectorAll('.md-search-result__link')].map(e => e.pathname)"
    )
    assert "/tuning.html" in found
    assert page.errors == []


# ------------------------------------------------------- what cannot be built

INDEX = "# Home\n\n## Start\n\n- [There](there.md)\n"


@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ({}, ""),
        ({"there.md": "[Gone](nowhere.md)\n"}, "'nowhere.md'"),
        ({"orphan.md": "# Alone\n"}, "orphan.md"),
    ],
    ids=["all is well", "dead link", "orphan page"],
)
def test_only_a_whole_site_is_built(added: dict[str, str], complaint: str, tmp_path: Path) -> None:
    """Else the tests above would show nothing of it."""
    for name in ("mkdocs.yml", "scripts/site_hooks.py", "docs/assets/site.css"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name, text in {"README.md": INDEX, "there.md": "# There\n\n"}.items():
        (tmp_path / "docs" / name).write_text(text + added.get(name, ""))
    for name in added.keys() - {"README.md", "there.md"}:
        (tmp_path / "docs" / name).write_text(added[name])
    done = build(tmp_path, tmp_path / "site")
    assert (done.returncode != 0) == bool(complaint), done.stderr
    assert complaint in done.stderr
