"""A profile as one HTML page that needs nothing else, in the form of the lab's reports."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from heapfit.files import write_text
from heapfit.profile import figures, figures_of_time
from heapfit.profile.answers import content
from heapfit.profile.content import Drawing, Section
from heapfit.profile.flames.tree import Tree
from heapfit.profile.model import Profile
from heapfit.profile.tables import process
from heapfit.report.page import FigureStore, packed, render
from heapfit.text import visible

# The figures over time are drawn of so many recordings, those of the highest peaks.
MOST_RECORDINGS = 4


@dataclass(frozen=True)
class _Place:
    """A figure's place in the page."""

    element: str
    alternative: str
    caption: str = ""


@dataclass(frozen=True)
class Against:
    """An older recording that the profile is set beside, and where stacks hold more or less."""

    old: str
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]]  # title, head, rows
    conclusions: Sequence[str]
    flames: Tree


def save_page(
    profile: Profile, path: Path, trace: str = "TRACE", against: Against | None = None
) -> None:
    """Write the page to `path`. Raises `HeapfitError` where it cannot be written.

    `trace` is the file that the page's commands name.
    """
    text = page(profile, trace, against)
    write_text(path, text, "name another place with --page, or make room")


def page(profile: Profile, trace: str = "TRACE", against: Against | None = None) -> str:
    """Return the page's HTML."""
    store = FigureStore()
    shown = content(profile, trace)
    trees = {"sites": profile.flames, "against": against.flames if against else Tree()}
    flames = {name: _packed(tree) for name, tree in trees.items() if tree}
    return render(
        "profile.html.j2",
        store,
        scripts=["flames.js"] if flames else [],
        flames=flames,
        against=against,
        title=shown.title,
        generator=f"heapfit {profile.heapfit}",
        shown=shown,
        sections=[(section, _places(section, profile, store)) for section in shown.sections],
    )


def _packed(tree: Tree) -> Markup:
    """The tree for the page's script, with its names as they may be shown."""
    plain = tree.model_dump()
    plain["names"] = [visible(name) for name in tree.names]
    return packed(json.dumps(plain, separators=(",", ":")))


def _places(section: Section, profile: Profile, store: FigureStore) -> list[_Place]:
    return [
        _Place(store.add(drawing.figure), drawing.alternative, caption)
        for caption, drawing in _drawings(section.name, profile)
    ]


def _drawings(name: str, profile: Profile) -> list[tuple[str, Drawing]]:
    """The section's figures, each with what it is called."""
    if name in _FIGURES_OF_TIME:
        return _over_time(_FIGURES_OF_TIME[name], profile)
    made = _FIGURES[name](profile) if name in _FIGURES else None
    return [("", made)] if made else []


def _over_time(
    draw: Callable[[Profile, int], Drawing], profile: Profile
) -> list[tuple[str, Drawing]]:
    """A figure for each recording, under its name where there are several."""
    several = len(profile.recordings) > 1
    order = sorted(enumerate(profile.recordings), key=lambda each: -each[1].peak.bytes)
    return [
        (process(recording) if several else "", draw(profile, at))
        for at, recording in order[:MOST_RECORDINGS]
        if recording.course.allocations
    ]


_FIGURES_OF_TIME: dict[str, Callable[[Profile, int], Drawing]] = {
    "memory": figures_of_time.memory,
    "rate": figures_of_time.rate,
}
_FIGURES: dict[str, Callable[[Profile], Drawing | None]] = {
    "peak": figures.peak,
    "sizes": figures.sizes,
    "rounding": figures.rounding,
    "lifetimes": figures.lifetimes,
    "threads": figures.threads,
    "end": figures.end,
}
