"""What MkDocs does not know of this repository's pages; mkdocs.yml names this file.

The pages link to each other, and to sources, as files of a checkout. In the site

- pages outside docs/, such as workloads/README.md, are copied in;
- a link to what the site does not have, such as a source file, becomes its name;
- a link that says the name of a page's file says the page's title;
- the navigation is that of docs/README.md: its headings, and below each the pages that it links to.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "README.md"
FOLDERS = ("examples", "integrations", "traces", "workloads")
OUTSIDE = ("*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))

HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
ELSEWHERE = re.compile(r"[a-z]+:")
# Before MkDocs resolves links (priority 0), after inline Markdown has become elements (20).
PRIORITY = 5


def outside_pages() -> list[PurePosixPath]:
    """Return the Markdown files of the repository that are not below docs/."""
    found = {path.relative_to(ROOT) for pattern in OUTSIDE for path in ROOT.glob(pattern)}
    return sorted(PurePosixPath(path) for path in found)


def site_path(path: PurePosixPath) -> str:
    """Return where a Markdown file of the repository stands among the site's sources.

    No two stand in one place, on a file system that does not tell upper from lower case either.
    """
    if path.is_relative_to("docs"):
        return str(path.relative_to("docs"))
    if path.name != "README.md":
        return f"project/{path}".lower()
    return "overview.md" if path == PurePosixPath("README.md") else f"{path.parent}.md"


def repository_path(page: PurePosixPath, target: str) -> PurePosixPath:
    """Return the repository's file that a link of one of its pages means."""
    return PurePosixPath(os.path.normpath(page.parent / target))


def navigation(index: str) -> Iterator[dict[str, list[dict[str, str]]]]:
    """Yield the sections of the index, each with the titles and places of its pages."""
    _, *sections = HEADING.split(index)
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        pages = []
        for name, target in LINK.findall(text):
            if target.endswith(".md"):
                path = repository_path(PurePosixPath("docs/README.md"), target)
                pages.append({name[0].upper() + name[1:].replace("`", ""): site_path(path)})
        yield {title: pages}


class RepositoryLinks(Treeprocessor):
    """Turns links between files of the repository into links between pages of the site."""

    page = PurePosixPath("docs/README.md")  # the one that is being made, in the repository

    def __init__(self, site: dict[PurePosixPath, str]) -> None:
        super().__init__()
        self._site = site

    def run(self, root: Element) -> None:
        """Change links and pictures; one that leads nowhere stays as it is, for MkDocs to tell.

        In a table's code a bar has a backslash before it, which this Markdown leaves there.
        """
        for element in list(root.iter()):
            name = {"a": "href", "img": "src"}.get(element.tag)
            if name is not None:
                self._change(element, name)
        for code in root.iterfind(".//td/code"):
            code.text = AtomicString((code.text or "").replace(r"\|", "|"))

    def _change(self, element: Element, name: str) -> None:
        target, hash_sign, anchor = element.get(name, "").partition("#")
        if not target or ELSEWHERE.match(target):
            return
        path = repository_path(self.page, target)
        if path in self._site:
            here = os.path.dirname(self._site[self.page])
            element.set(name, os.path.relpath(self._site[path], here or ".") + hash_sign + anchor)
            if element.text == target and target.endswith(".md"):
                element.text = title(ROOT / path)
        elif (ROOT / path).exists():
            to_plain(element, path)


def title(page: Path) -> str:
    """Return a page's first heading."""
    head, *_ = page.read_text(encoding="utf-8").splitlines()
    return head.removeprefix("# ").replace("`", "")


def to_plain(link: Element, path: PurePosixPath) -> None:
    """Turn a link into what it says, and the path, where it says something else than that."""
    link.tag = "span"
    del link.attrib["href"]
    if link.find("code") is None:
        last = link[-1] if len(link) else None
        if last is None:
            link.text = f"{link.text} ("
        else:
            last.tail = f"{last.tail or ''} ("
        code = SubElement(link, "code")
        code.text, code.tail = str(path), ")"


class RepositoryLinksExtension(Extension):
    """Adds the treeprocessor to each page's Markdown."""

    def __init__(self, links: RepositoryLinks) -> None:
        super().__init__()
        self._links = links

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 (the name that Markdown calls)
        """Register the treeprocessor; Markdown calls this for each page."""
        md.treeprocessors.register(self._links, "repository_links", PRIORITY)


class Site:
    """One build: which files are in it, and the treeprocessor that knows them."""

    def __init__(self) -> None:
        self.paths: dict[PurePosixPath, str] = {}
        self.links = RepositoryLinks(self.paths)


_site = Site()


def on_config(config: MkDocsConfig) -> None:
    """Take the navigation from the index, and have links changed."""
    config.nav = [{"Home": "README.md"}, *navigation(INDEX.read_text(encoding="utf-8"))]
    extensions: list[Any] = config.markdown_extensions
    extensions.append(RepositoryLinksExtension(_site.links))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Copy the pages outside docs/ in, and note where every file of the site comes from."""
    for path in outside_pages():
        files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
        _site.paths[path] = site_path(path)
    for file in files:
        if file.generated_by is None and file.inclusion.is_included():
            _site.paths[PurePosixPath("docs", file.src_uri)] = file.src_uri


def on_page_markdown(markdown: str, page: Page, **_: object) -> None:
    """Note which page's Markdown is about to become elements."""
    places = {place: path for path, place in _site.paths.items()}
    _site.links.page = places[page.file.src_uri]
