"""Articles for wikis, blogs and shops: chapters of Perl's manual, as Debian's perl-doc ships it.

It is real prose of some ten thousand paragraphs, with headings, lists, code and links from page to
page. An article is one chapter (`=head1`) of a manual page; a fixed seed says which ones are taken.
A writer for a markup language is a subclass of `Writer`.
"""

from __future__ import annotations

import random
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

SHARE = Path("/usr/share/perl")
SEED = 5360
# Bytes of a chapter in POD: neither a stub nor a page that takes seconds to parse.
SMALLEST = 1_500
LARGEST = 20_000
# Lists of names rather than prose.
LEFT_OUT = {
    "perltoc",
    "perlapi",
    "perlintern",
    "perluniprops",
    "perlcn",
    "perljp",
    "perlko",
    "perltw",
}

# What a title keeps: what no wiki gives a meaning to.
_NOT_IN_TITLES = re.compile(r"[^A-Za-z0-9 ,.()-]+")
_ENTITIES = {"lt": "<", "gt": ">", "verbar": "|", "sol": "/", "quot": '"', "amp": "&"}


@dataclass(frozen=True)
class Span:
    """Words in one style: `B`, `I`, `C` (code), `L` (a link) or none; where a link goes."""

    text: str
    style: str = ""
    target: str = ""


@dataclass(frozen=True)
class Block:
    """A paragraph of an article; `kind` is heading, text, code or item, `level` from 1."""

    kind: str
    spans: tuple[Span, ...]
    level: int = 1

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


@dataclass(frozen=True)
class Article:
    """A chapter of the manual page `page`."""

    title: str
    page: str
    blocks: tuple[Block, ...]


def load(count: int) -> list[Article]:
    """Return `count` articles, the same in the same order every time; exit if there are fewer."""
    chapters = [article for path in _pages() for article in _chapters(path)]
    unique = {article.title: article for article in chapters}
    if len(unique) < count:
        sys.exit(f"perl-doc has {len(unique)} chapters of the right size, not {count}")
    return random.Random(SEED).sample(list(unique.values()), count)


def _pages() -> list[Path]:
    found = {path.stem: path for path in sorted(SHARE.glob("5.*/pod/perl*.pod"))}
    if not found:
        sys.exit(f"no manual in {SHARE}; install perl-doc")
    return [path for name, path in sorted(found.items()) if name not in LEFT_OUT]


def _chapters(path: Path) -> Iterator[Article]:
    text = path.read_text(encoding="utf-8", errors="replace")
    for chapter in re.split(r"^(?==head1 )", text, flags=re.MULTILINE)[1:]:
        if SMALLEST <= len(chapter) <= LARGEST:
            heading, _, body = chapter.partition("\n")
            words = "".join(span.text for span in _spans(heading.removeprefix("=head1 ")))
            title = _title(f"{path.stem} - {words.capitalize()}")
            yield Article(title, path.stem, tuple(_blocks(body)))


def _title(text: str) -> str:
    plain = " ".join(_NOT_IN_TITLES.sub(" ", text).split())
    return (plain[0].upper() + plain[1:])[:80].strip(" .,-")


def _blocks(body: str) -> Iterator[Block]:
    depth = 0
    skipping = False
    for paragraph in re.split(r"\n[ \t]*\n", body):
        text = paragraph.strip("\n")
        command = re.match(r"=(\w+)[ \t]*(.*)", text, re.DOTALL)
        if command:
            name, rest = command[1], " ".join(command[2].split())
            if name in ("begin", "end"):
                skipping = name == "begin"
            elif name.startswith("head"):
                yield Block("heading", _spans(rest), int(name[4:]))
            elif name in ("over", "back"):
                depth = max(0, depth + (1 if name == "over" else -1))
            elif name == "item" and rest.strip("*"):
                yield Block("item", _spans(rest), max(1, depth))
        elif skipping or not text.strip():
            continue
        elif text[0] in " \t":
            yield Block("code", (Span(text.expandtabs()),))
        else:
            yield Block("text", _spans(" ".join(text.split())))


def _spans(text: str) -> tuple[Span, ...]:
    """Split a paragraph at its formatting codes; what is nested has the outermost one's style."""
    spans: list[Span] = []
    place = 0
    for code in re.finditer(r"[A-Z]<", text):
        if code.start() < place:
            continue
        inside, end = _inside(text, code.end())
        spans.append(Span(text[place : code.start()]))
        spans.append(_span(code[0][0], inside))
        place = end
    spans.append(Span(text[place:]))
    return tuple(span for span in spans if span.text)


def _inside(text: str, start: int) -> tuple[str, int]:
    """What a code that opens before `start` holds, and where it ends: `C<x>`, `C<< a > b >>`."""
    more = re.compile("<*").match(text, start)
    brackets = more[0] if more else ""
    if brackets:
        close = text.find(f" {'>' * (len(brackets) + 1)}", start)
        if close < 0:
            return text[start:], len(text)
        return text[start + len(brackets) : close].strip(), close + 2 + len(brackets)
    depth = 1
    for place in range(start, len(text)):
        if text[place] == "<" and text[place - 1].isupper():
            depth += 1
        elif text[place] == ">":
            depth -= 1
            if depth == 0:
                return text[start:place], place + 1
    return text[start:], len(text)


def _span(code: str, inside: str) -> Span:
    if code == "E":
        return Span(_ENTITIES.get(inside, ""))
    if code in "XZ":  # for an index; nothing
        return Span("")
    plain = "".join(span.text for span in _spans(inside))
    if code == "L":
        words, _, target = plain.rpartition("|")
        page = target.partition("/")[0]
        return Span(words or target.replace("/", " "), "L", page)
    if code == "F":
        code = "I"
    return Span(plain, code if code in "BIC" else "")


class Writer(ABC):
    """Writes an article in a markup language; `homes` has the article that begins a page."""

    def __init__(self, articles: Sequence[Article]) -> None:
        self.homes: dict[str, str] = {}
        for article in articles:
            self.homes.setdefault(article.page, article.title)

    def write(self, article: Article) -> str:
        return "\n\n".join(self.block(block) for block in article.blocks) + "\n"

    def spans(self, block: Block) -> str:
        return "".join(self.span(span) for span in block.spans)

    def span(self, span: Span) -> str:
        home = self.homes.get(span.target)
        if span.style == "L" and home:
            return self.link(home, span.text)
        return self.styled(span.style, self.escape(span.text))

    @abstractmethod
    def escape(self, text: str) -> str:
        """`text` such that it means itself."""

    @abstractmethod
    def styled(self, style: str, text: str) -> str:
        """Escaped `text` in bold (`B`), italics (`I`), as code (`C`), or as it is."""

    @abstractmethod
    def link(self, title: str, text: str) -> str:
        """A link to the article `title`."""

    @abstractmethod
    def block(self, block: Block) -> str:
        """A whole paragraph, heading, list item or piece of code."""


class WikiText(Writer):
    """MediaWiki's markup."""

    _MEANINGFUL = re.compile(r"[&<>\[\]{}|~]|''|__")
    _MEANINGFUL_AT_START = ("*", "#", ":", ";", "=", "-", " ")
    _STYLES: ClassVar = {"B": ("'''", "'''"), "I": ("''", "''"), "C": ("<code>", "</code>")}

    def escape(self, text: str) -> str:
        return self._MEANINGFUL.sub(
            lambda found: "".join(f"&#{ord(each)};" for each in found[0]), text
        )

    def styled(self, style: str, text: str) -> str:
        before, after = self._STYLES.get(style, ("", ""))
        return f"{before}{text}{after}"

    def link(self, title: str, text: str) -> str:
        return f"[[{title}|{self.escape(text)}]]"

    def block(self, block: Block) -> str:
        match block.kind:
            case "heading":
                marks = "=" * min(6, block.level)
                return f"{marks} {self.spans(block)} {marks}"
            case "item":
                return f"{'*' * block.level} {self.spans(block)}"
            case "code":
                return f"<pre>{self.escape(block.text)}</pre>"
        text = self.spans(block)
        return f"<nowiki />{text}" if text.startswith(self._MEANINGFUL_AT_START) else text


class DokuWiki(Writer):
    """DokuWiki's markup."""

    # Whole words, so that what the text has before and after them stays what it is.
    _MEANINGFUL = re.compile(r"\S*(?:\*\*|//|__|''|\[\[|\{\{|\(\(|~~|<|\\\\|%%|\^|\|)\S*")
    _STYLES: ClassVar = {"B": ("**", "**"), "I": ("//", "//"), "C": ("''", "''")}

    def escape(self, text: str) -> str:
        return self._MEANINGFUL.sub(lambda found: f"%%{found[0].replace('%%', '% %')}%%", text)

    def styled(self, style: str, text: str) -> str:
        before, after = self._STYLES.get(style, ("", ""))
        return f"{before}{text}{after}"

    def link(self, title: str, text: str) -> str:
        words = text.replace("]", ")").replace("|", "/")
        return f"[[:{self.identifier(title)}|{words}]]"

    @staticmethod
    def identifier(title: str) -> str:
        """What DokuWiki calls the page `title`, and its file."""
        return re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_")

    def block(self, block: Block) -> str:
        match block.kind:
            case "heading":
                marks = "=" * max(2, 7 - block.level)
                return f"{marks} {block.text.replace('=', '-')} {marks}"
            case "item":
                return f"{'  ' * block.level}* {self.spans(block)}"
            case "code":
                return f"<code>\n{block.text.replace('</code>', '')}\n</code>"
        return self.spans(block)


class Html(Writer):
    """HTML, as a blog or a shop stores it."""

    _TAGS: ClassVar = {"B": "strong", "I": "em", "C": "code"}

    def escape(self, text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

    def styled(self, style: str, text: str) -> str:
        tag = self._TAGS.get(style)
        return f"<{tag}>{text}</{tag}>" if tag else text

    def link(self, title: str, text: str) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        return f'<a href="/{slug}/">{self.escape(text)}</a>'

    def block(self, block: Block) -> str:
        match block.kind:
            case "heading":
                level = min(6, block.level + 1)
                return f"<h{level}>{self.spans(block)}</h{level}>"
            case "item":
                return f"<ul><li>{self.spans(block)}</li></ul>"
            case "code":
                return f"<pre>{self.escape(block.text)}</pre>"
        return f"<p>{self.spans(block)}</p>"
