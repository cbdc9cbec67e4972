"""What all figures share: the frame, each allocator's look, text that is safe, honest samples.

A figure is made as the plain data that Plotly's script reads in the page. Plotly's Python classes
are not used for that: they check every property of every trace again, which takes longer than all
the rest of a report; the tests let them check the figures instead. Text colour, grid and background
come from the page's style sheet, so that one figure serves light, dark and print. Allocators are
told apart by row, symbol, line and label first, and by colour second.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heapfit.records import Estimate, Metric
from heapfit.text import Scale, visible

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Mid-tones with a contrast of at least 3:1 to both the light and the dark page, ordered so that
# neighbours differ in lightness too.
COLOURS = [
    "#6b7684",
    "#0f7cc0",
    "#c2571a",
    "#1a8f6c",
    "#a35cc4",
    "#b07d10",
    "#c94a6e",
    "#4f7df0",
    "#8c5a2b",
    "#0e8f9c",
    "#8a8a12",
    "#d94fa0",
]
# Plotly's name of each symbol, and the character that looks like it, for labels.
_SYMBOLS = [
    ("circle", "●"),
    ("diamond", "◆"),
    ("square", "■"),
    ("triangle-up", "▲"),
    ("x", "✖"),
    ("star", "★"),
    ("triangle-down", "▼"),
    ("pentagon", "⬟"),
    ("hexagram", "✶"),
    ("cross", "✚"),
]
_DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"]
# The same on both schemes: a dark label with a border that shows on a dark page.
_HOVER_BACKGROUND, _HOVER_BORDER, _HOVER_INK = "#24292f", "#8b949e", "#ffffff"

_FONT = "system-ui, sans-serif"
FONT_SIZE = 12.5
POINT_SIZE = 7
_LONGEST_LABEL = 22
# More than a figure can show; fewer digits make the page smaller.
_DRAWN_DIGITS = 6


@dataclass(frozen=True)
class Look:
    """How one allocator is drawn, the same in every figure of a page."""

    colour: str
    symbol: str
    character: str
    dash: str

    def marker(self, size: int, *, is_open: bool = False) -> dict[str, Any]:
        symbol = f"{self.symbol}-open" if is_open else self.symbol
        return {"symbol": symbol, "size": size, "color": self.colour}


class Figure:
    """A figure in the making. `plain()` is what the page's script draws."""

    def __init__(self, height: int) -> None:
        self._data: list[dict[str, Any]] = []
        self._layout: dict[str, Any] = {
            "height": height,
            "autosize": True,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": _FONT, "size": FONT_SIZE},
            "hovermode": "closest",
            "dragmode": False,
            "showlegend": False,
            "hoverlabel": {
                "bgcolor": _HOVER_BACKGROUND,
                "bordercolor": _HOVER_BORDER,
                "font": {"family": _FONT, "color": _HOVER_INK},
                "align": "left",
            },
        }

    def scatter(self, **trace: Any) -> None:
        self._add("scatter", trace)

    def bars(self, **trace: Any) -> None:
        self._add("bar", trace)

    def heat_map(self, **trace: Any) -> None:
        self._add("heatmap", trace)

    def _add(self, kind: str, trace: dict[str, Any]) -> None:
        shown = {"hoverinfo": "text"} if "hovertext" in trace else {}
        self._data.append({"type": kind, **shown, **trace})

    def update(self, **layout: Any) -> None:
        self._layout.update(layout)

    def plain(self) -> dict[str, Any]:
        return {"data": self._data, "layout": self._layout}


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Give each name a colour, a symbol and a dash; colour and symbol repeat only after sixty."""
    return {
        name: Look(
            COLOURS[i % len(COLOURS)], *_SYMBOLS[i % len(_SYMBOLS)], _DASHES[i % len(_DASHES)]
        )
        for i, name in enumerate(names)
    }


def drawn(value: float) -> float:
    """Return a value as exact as a figure can show it.

    >>> drawn(412.345678901)
    412.346
    """
    return float(f"{value:.{_DRAWN_DIGITS}g}") if math.isfinite(value) else value


def line_at_one(axis: str) -> dict[str, Any]:
    """A dashed line across the figure where `axis` is 1, behind the data."""
    line = {"type": "line", "layer": "below", "line": {"width": 1.5, "dash": "dash"}}
    if axis.startswith("x"):
        return line | {"xref": axis, "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    return line | {"xref": "paper", "yref": axis, "x0": 0, "x1": 1, "y0": 1, "y1": 1}


def sample(items: Integers, most: int) -> Integers:
    """At most `most` of the items, evenly spaced."""
    if len(items) <= most:
        return items
    return items[np.arange(most) * len(items) // most]


def sample_with_extremes(values: Floats, most: int) -> Integers:
    """Places of at most `most` of the values, of the smallest and the largest among them."""
    places = np.arange(len(values))
    if len(values) <= most:
        return places
    extremes = np.unique([values.argmin(), values.argmax()])
    others = sample(np.delete(places, extremes), most - len(extremes))
    return np.sort(np.concatenate([extremes, others]))


def widened(low: float, high: float, share: float) -> tuple[float, float]:
    """Return the range with a margin of that `share` of it at either end."""
    margin = (high - low) * share or abs(high) * share or 1.0
    return low - margin, high + margin


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """An axis that no mouse moves, with a title that is already safe."""
    if title:
        more["title"] = {"text": title, "font": {"size": FONT_SIZE}, "standoff": 6}
    return {"fixedrange": True, "zeroline": False, **more}


def rows_axis(labels: Sequence[str], **more: Any) -> dict[str, Any]:
    """An upright axis with a row for each label, the first on top."""
    return axis(
        range=[len(labels) - 0.5, -0.5],
        tickvals=list(range(len(labels))),
        ticktext=list(labels),
        **more,
    )


def name_beside(text: str, x: float, y: float, colour: str, **place: Any) -> dict[str, Any]:
    """A name, already safe, to the right of a mark, with a thin line to it."""
    line = {"showarrow": True, "arrowhead": 0, "arrowwidth": 0.8, "arrowcolor": colour}
    return {"x": x, "y": drawn(y), "text": text, "xanchor": "left", **line, **place}


def legend_above() -> dict[str, Any]:
    return {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


def error_bars(points: Sequence[Estimate | None], scale: Scale, **form: Any) -> dict[str, Any]:
    """The intervals of medians, as bars; none where there is no median."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [_arm(p.high - p.median, scale) if p else 0 for p in points],
        "arrayminus": [_arm(p.median - p.low, scale) if p else 0 for p in points],
        **form,
    }


def _arm(length: float, scale: Scale) -> float | None:
    """The length of one arm of an interval; none where it has no bound, as `median_text` says."""
    return drawn(scale.scaled(length)) if math.isfinite(length) else None


def median_text(of: str, point: Estimate, scale: Scale) -> str:
    """What a median, `of` something, tells when it is pointed at."""
    text = f"{of}<br>median {escaped(scale.text(point.median))}"
    if point.low < point.high:
        between = f"{scale.number(point.low)} to {scale.text(point.high)}"
        text += f"<br>95 % interval {escaped(between)}"
    return text


def axis_title(metric: Metric, scale: Scale) -> str:
    better = "" if metric.better == "lower" else ", higher is better"
    return escaped(f"{metric.label}{scale.suffix}{better}")


def label(name: str) -> str:
    """An allocator's name as a figure shows it: no longer than a row's label may be."""
    shown = visible(name)
    if len(shown) > _LONGEST_LABEL:
        shown = shown[: _LONGEST_LABEL - 1] + "…"
    return escaped(shown)


def escaped(text: str) -> str:
    """Plotly reads some HTML within text; nothing from outside may become any."""
    return html.escape(visible(text))


def in_template(text: str) -> str:
    """Return safe text for a hover template, where a per cent sign could name a variable."""
    return text.replace("%", "&#37;")
