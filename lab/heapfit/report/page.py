"""One HTML page that needs nothing else: no network, no folder beside it.

Style, script, data and Plotly are inside the file. Plotly's library travels compressed (a third of
its size) and the page unpacks it. Two walls stand between the user's texts and the browser: Jinja
escapes everything, and the page's own content security policy runs no script but the two whose
hashes it names and loads nothing from anywhere.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from heapfit.text import visible

PAGE_FILE = "report.html"
MARKDOWN_FILE = "report.md"
JSON_FILE = "report.json"

# A higher level takes half as long again for a page that is smaller by a thousandth.
_COMPRESSION = 6


class FigureStore:
    """Collects the page's figures and hands out the id of the element that each is drawn into."""

    def __init__(self) -> None:
        self._figures: dict[str, dict[str, Any]] = {}

    def add(self, figure: dict[str, Any]) -> str:
        name = f"figure-{len(self._figures) + 1}"
        self._figures[name] = figure
        return name

    def script(self) -> Markup:
        return script_data(self._figures)


def render(
    template: str, figures: FigureStore, *, scripts: Sequence[str] = (), **content: Any
) -> str:
    """Return the HTML of the page that `template` (an extension of `page.html.j2`) makes.

    What the template has drawn by `draw` is added to the `figures`. `scripts` are those that the
    page runs after its own.
    """
    code = "".join(map(_source, ("report.js", *scripts)))
    library = plotly()
    return (
        environment()
        .get_template(template)
        .render(
            **content,
            draw=figures.add,
            figures=figures,
            plotly=library.packed,
            policy=_policy(_hash(code), library.hash),
            style=Markup(_source("report.css")),
            code=Markup(code),
        )
    )


def script_data(data: Any) -> Markup:
    """Return `data` as JSON that may stand within a script element.

    >>> script_data("</script>")
    Markup('"\\\\u003c/script\\\\u003e"')
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@dataclass(frozen=True)
class PackedScript:
    """A script compressed with gzip, as base64, and the hash of the script itself."""

    packed: Markup
    hash: str


@cache
def plotly() -> PackedScript:
    """Return Plotly's library, packed once for all pages that a process writes."""
    text = get_plotlyjs()
    return PackedScript(packed(text), _hash(text))


def packed(text: str) -> Markup:
    """Return a text compressed, as the page's script unpacks it: nothing of it is markup."""
    compressed = gzip.compress(text.encode(), _COMPRESSION, mtime=0)
    return Markup(base64.b64encode(compressed).decode("ascii"))


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def _policy(*hashes: str) -> str:
    """The content security policy: the scripts of these hashes and nothing from outside."""
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    # Plotly sets style attributes as it draws, and offers its picture as a data: or blob: URL.
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@cache
def environment() -> Environment:
    """Jinja such that no text in a template is shown unescaped or with control characters.

    It keeps the templates that it has compiled, for the next page.
    """
    made = Environment(
        finalize=_shown,
        loader=PackageLoader("heapfit.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["marked"] = marked
    return made


def marked(sentence: str) -> Markup:
    """Return a sentence with what stands between backticks as code.

    >>> marked("set `decay_ms:100` & <wait>")
    Markup('set <code>decay_ms:100</code> &amp; &lt;wait&gt;')
    """
    parts = [escape(visible(part)) for part in sentence.split("`")]
    if len(parts) % 2 == 0:  # a backtick without its partner: a name from outside
        return escape(visible(sentence))
    return Markup("").join(
        Markup(f"<code>{part}</code>") if number % 2 else part for number, part in enumerate(parts)
    )


def _shown(value: Any) -> Any:
    """What a template shows of a value. Markup is ours and stays as it is."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source(name: str) -> str:
    return (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
