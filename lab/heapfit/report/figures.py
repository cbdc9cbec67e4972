"""The page's figures, as Plotly figures: strips of raw trials, medians by cores, drift.

This module and `series_figure.py` alone make them. Figures carry data and geometry; text colour,
grid and background come from the page's style sheet, so that one serves light, dark and print.
Allocators are told apart by row, symbol and label first, and by colour second.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import plotly.graph_objects as go

from heapfit.records import Metric, Trial
from heapfit.report.drift import Deviation
from heapfit.report.results import Results
from heapfit.report.text import counted, visible
from heapfit.report.units import PAGE_DIGITS, TIMES, Scale

# Mid-tones with a contrast of at least 3:1 to both the light and the dark page, ordered so that
# neighbours differ in lightness too.
_COLOURS = ["#6b7684", "#0f7cc0", "#c2571a", "#1a8f6c", "#a35cc4", "#b07d10", "#c94a6e", "#4f7df0"]
_SYMBOLS = [
    "circle",
    "diamond",
    "square",
    "triangle-up",
    "x",
    "star",
    "triangle-down",
    "pentagon",
    "hexagram",
    "cross",
]
# The same on both schemes: a dark label with a border that shows on a dark page.
_HOVER_BACKGROUND, _HOVER_BORDER, _HOVER_INK = "#24292f", "#8b949e", "#ffffff"
# A plot of more points than this per row is a smear, and slow: an even sample is shown instead.
MOST_POINTS = 200
MOST_DRIFT_POINTS = 2000

# Geometry, in pixels and in rows (a row of the strip is one unit high).
_FONT = "system-ui, sans-serif"
_FONT_SIZE = 12.5
_ROW_HEIGHT = 46
_STRIP_FRAME = 96
_LINE_HEIGHT = 300
_DRIFT_HEIGHT = 340
_MEDIAN_OFFSET = -0.16
_POINTS_OFFSET = 0.18
_JITTER = 0.13
_GOLDEN_RATIO = 0.6180339887498949
_POINT_SIZE = 7
_MEDIAN_SIZE = 12
_RANGE_MARGIN = 0.06
# A ratio axis shorter than this has ticks closer than two decimals can tell apart.
_FINE_SPAN = 0.05
_LONGEST_LABEL = 22

Item = TypeVar("Item")


@dataclass(frozen=True)
class Look:
    """How one allocator is drawn, the same in every figure of a page."""

    colour: str
    symbol: str


def looks(results: Results) -> dict[str, Look]:
    """Give every allocator its colour and symbol."""
    return looks_of(results.allocators)


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Give each name a colour and a symbol; the pair repeats only after forty."""
    return {
        name: Look(_COLOURS[i % len(_COLOURS)], _SYMBOLS[i % len(_SYMBOLS)])
        for i, name in enumerate(names)
    }


def strip(
    results: Results, trials: Mapping[str, Sequence[Trial]], metric: Metric, cores: int
) -> dict[str, Any]:
    """Every trial of one metric as a point, a row per allocator, with median and interval.

    The lower axis is in the metric's unit, the upper one in multiples of the baseline's median.
    `trials` are, by allocator, those behind the estimates: successful, no warm-ups, at this number
    of cores.
    """
    scale = results.scale(metric, PAGE_DIGITS)
    rows = [name for name in results.allocators if results.estimate(cores, metric, name)]
    figure = empty_figure(height=_STRIP_FRAME + _ROW_HEIGHT * len(rows))
    low, high = _range(results, metric, cores, scale)
    for row, name in enumerate(rows):
        look = looks(results)[name]
        own = [trial for trial in trials.get(name, ()) if metric.name in trial.metrics]
        _add_points(figure, own, metric, scale, row, look)
        _add_median(figure, results, metric, cores, name, scale, row, look)
    _strip_axes(figure, results, metric, scale, rows, (low, high))
    _ratio_axis(figure, results, metric, cores, scale, (low, high))
    return plain(figure)


def by_cores(results: Results, metric: Metric) -> dict[str, Any]:
    """The medians of one metric against the number of cores, a line per allocator."""
    scale = results.scale(metric, PAGE_DIGITS)
    figure = empty_figure(height=_LINE_HEIGHT)
    places = [str(cores) for cores in results.cores]
    for name in results.allocators:
        found = [results.estimate(cores, metric, name) for cores in results.cores]
        look = looks(results)[name]
        figure.add_scatter(
            x=places,
            y=[scale.scaled(e.median) if e else None for e in found],
            name=label(name),
            mode="lines+markers",
            line={"color": look.colour, "width": 2},
            marker={"symbol": look.symbol, "size": 10},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [scale.scaled(e.high - e.median) if e else 0 for e in found],
                "arrayminus": [scale.scaled(e.median - e.low) if e else 0 for e in found],
                "thickness": 1.5,
                "width": 4,
            },
            hovertext=[f"{label(name)}, {scale.text(e.median)}" if e else "" for e in found],
            hoverinfo="text",
        )
    figure.update_layout(
        xaxis={"title": titled("Cores"), "type": "category", "fixedrange": True},
        yaxis={
            "title": titled(_axis_title(metric, scale)),
            "separatethousands": True,
            "fixedrange": True,
        },
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        margin={"l": 64, "r": 16, "t": 48, "b": 48},
    )
    return plain(figure)


def drift(results: Results, found: Sequence[Deviation], metric: Metric) -> dict[str, Any]:
    """Each trial over the median of its own cell, in the order in which the trials ran."""
    scale = results.scale(metric, PAGE_DIGITS)
    figure = empty_figure(height=_DRIFT_HEIGHT)
    shown = _sample(found, MOST_DRIFT_POINTS)
    for name in results.allocators:
        own = [d for d in shown if d.trial.planned.allocator == name]
        look = looks(results)[name]
        figure.add_scatter(
            x=[d.trial.planned.index + 1 for d in own],
            y=[d.relative for d in own],
            name=label(name),
            mode="markers",
            marker={"symbol": look.symbol, "size": _POINT_SIZE, "color": look.colour},
            hovertext=[_trial_text(d.trial, scale.text(d.value)) for d in own],
            hoverinfo="text",
        )
    figure.update_layout(
        xaxis={"title": titled("Trial, in the order of running"), "fixedrange": True},
        yaxis={
            "title": titled(f"{escaped(metric.label)} / its allocator's median"),
            "tickformat": ".2f",
            "fixedrange": True,
        },
        shapes=[line_at_one("y")],
        showlegend=True,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        margin={"l": 64, "r": 16, "t": 48, "b": 48},
    )
    return plain(figure)


def empty_figure(height: int) -> go.Figure:
    """An empty figure without Plotly's own theme; the page's style sheet colours it."""
    return go.Figure(
        layout={
            "template": go.layout.Template(),
            "height": height,
            "autosize": True,
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": _FONT, "size": _FONT_SIZE},
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
    )


def _add_points(
    figure: go.Figure, trials: Sequence[Trial], metric: Metric, scale: Scale, row: int, look: Look
) -> None:
    shown = _sample(trials, MOST_POINTS)
    values = [trial.metrics[metric.name] for trial in shown]
    figure.add_scatter(
        x=[scale.scaled(value) for value in values],
        y=[row + _POINTS_OFFSET + _jitter(index) for index in range(len(shown))],
        mode="markers",
        marker={
            "symbol": f"{look.symbol}-open",
            "size": _POINT_SIZE,
            "color": look.colour,
            "opacity": 0.75,
        },
        hovertext=[_trial_text(t, scale.text(v)) for t, v in zip(shown, values, strict=True)],
        hoverinfo="text",
    )


def _add_median(
    figure: go.Figure,
    results: Results,
    metric: Metric,
    cores: int,
    name: str,
    scale: Scale,
    row: int,
    look: Look,
) -> None:
    estimate = results.estimate(cores, metric, name)
    if estimate is None:
        return
    trials = counted(estimate.n, "trial")
    text = f"{label(name)}: median {escaped(scale.text(estimate.median))}"
    if estimate.low < estimate.high:
        between = f"{scale.number(estimate.low)} to {scale.text(estimate.high)}"
        text += f"<br>95 % interval {escaped(between)}"
    text += f"<br>{trials}"
    figure.add_scatter(
        x=[scale.scaled(estimate.median)],
        y=[row + _MEDIAN_OFFSET],
        mode="markers",
        marker={"symbol": look.symbol, "size": _MEDIAN_SIZE, "color": look.colour},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [scale.scaled(estimate.high - estimate.median)],
            "arrayminus": [scale.scaled(estimate.median - estimate.low)],
            "color": look.colour,
            "thickness": 2.5,
            "width": 6,
        },
        hovertext=[text],
        hoverinfo="text",
    )


def _strip_axes(
    figure: go.Figure,
    results: Results,
    metric: Metric,
    scale: Scale,
    rows: Sequence[str],
    span: tuple[float, float],
) -> None:
    figure.update_layout(
        xaxis={
            "title": titled(_axis_title(metric, scale)),
            "range": span,
            "fixedrange": True,
            "zeroline": False,
            "separatethousands": True,
            "tickangle": 0,
        },
        yaxis={
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [label(name) for name in rows],
            "fixedrange": True,
            "zeroline": False,
            "showgrid": False,
            "automargin": True,
        },
        margin={"l": 8, "r": 16, "t": 44, "b": 44},
    )


def _ratio_axis(
    figure: go.Figure,
    results: Results,
    metric: Metric,
    cores: int,
    scale: Scale,
    span: tuple[float, float],
) -> None:
    """Add the upper axis, in multiples of the baseline's median, and a line where it is 1."""
    base = results.estimate(cores, metric, results.baseline)
    if base is None or not base.median:
        return
    unit = scale.scaled(base.median)
    figure.update_layout(
        xaxis2={
            "overlaying": "x",
            "side": "top",
            "anchor": "y",
            "range": [edge / unit for edge in span],
            "title": titled(f"ratio to {label(results.baseline)}"),
            "tickmode": "auto",  # else its ticks copy the places of the lower axis
            "tickformat": ".2f" if (span[1] - span[0]) / unit > _FINE_SPAN else ".3f",
            "ticksuffix": TIMES,
            "fixedrange": True,
            "showgrid": False,
            "zeroline": False,
            "tickangle": 0,
        },
        shapes=[line_at_one("x2")],
    )
    # An axis without a trace is not drawn; this one has no points to show.
    figure.add_scatter(x=[None], y=[None], xaxis="x2", hoverinfo="skip")


def line_at_one(axis: str) -> dict[str, Any]:
    """A dashed line across the figure where `axis` is 1, behind the data."""
    line = {"type": "line", "layer": "below", "line": {"width": 1.5, "dash": "dash"}}
    if axis.startswith("x"):
        return line | {"xref": axis, "yref": "paper", "x0": 1, "x1": 1, "y0": 0, "y1": 1}
    return line | {"xref": "paper", "yref": axis, "x0": 0, "x1": 1, "y0": 1, "y1": 1}


def _range(results: Results, metric: Metric, cores: int, scale: Scale) -> tuple[float, float]:
    estimates = results.estimates(cores, metric)
    low = scale.scaled(min(min(e.minimum, e.low) for e in estimates))
    high = scale.scaled(max(max(e.maximum, e.high) for e in estimates))
    margin = (high - low) * _RANGE_MARGIN or abs(high) * _RANGE_MARGIN or 1.0
    return low - margin, high + margin


def _jitter(index: int) -> float:
    """A spread that looks random, is even, and is the same in every rendering."""
    return (2 * (index * _GOLDEN_RATIO % 1.0) - 1) * _JITTER


def _sample(items: Sequence[Item], most: int) -> Sequence[Item]:
    """At most `most` of the items, evenly spaced."""
    if len(items) <= most:
        return items
    return [items[index * len(items) // most] for index in range(most)]


def _trial_text(trial: Trial, value: str) -> str:
    planned = trial.planned
    return (
        f"{label(planned.allocator)}: {escaped(value)}"
        f"<br>trial {planned.index + 1}, block {planned.block + 1}"
        f"<br>{trial.started:%Y-%m-%d %H:%M:%S}"
    )


def titled(text: str) -> dict[str, Any]:
    """An axis title from text that is already safe."""
    return {"text": text, "font": {"size": _FONT_SIZE}, "standoff": 6}


def _axis_title(metric: Metric, scale: Scale) -> str:
    unit = f" ({scale.unit})" if scale.unit else ""
    better = "" if metric.better == "lower" else ", higher is better"
    return escaped(f"{metric.label}{unit}{better}")


def label(name: str) -> str:
    """An allocator's name as a figure shows it: no longer than a row's label may be."""
    shown = visible(name)
    if len(shown) > _LONGEST_LABEL:
        shown = shown[: _LONGEST_LABEL - 1] + "…"
    return escaped(shown)


def escaped(text: str) -> str:
    """Plotly reads some HTML within text; nothing from outside may become any."""
    return html.escape(visible(text))


def plain(figure: go.Figure) -> dict[str, Any]:
    plain: dict[str, Any] = figure.to_plotly_json()
    return plain
