"""Interaction plots: each allocator's mean over the levels of another factor, with intervals.

Lines that run parallel say that the other factor changes all allocators alike; lines that cross say
that the best allocator depends on it. Every setting of the remaining factors has a small plot of
its own. Names stand at the lines' ends, each with its symbol, so that no colour and no legend is
needed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from heapfit.drawing import (
    FONT_SIZE,
    Figure,
    Look,
    axis,
    axis_title,
    drawn,
    error_bars,
    escaped,
    label,
    looks_of,
    median_text,
    name_beside,
    widened,
)
from heapfit.records import ALLOCATOR, Estimate, Factor, Metric
from heapfit.report.results import Results
from heapfit.settings import (
    factor_label,
    factor_title,
    level_label,
    level_text,
    levels_label,
    setting_levels,
    setting_of,
)
from heapfit.text import PAGE_DIGITS, Scale

# Geometry in pixels; x is counted in levels.
_LEAST_HEIGHT = 300
_LABEL_HEIGHT = 16
_LINE_ROOM = 22
_TOP, _BOTTOM, _LEFT = 12, 46, 62
_CHARACTER = 7
_SIDE = 0.28
# Marks of one level are moved apart by so much of a level for each level there is.
_DODGE = 0.05
_MARGIN = 0.07
_MARK_SIZE = 8
# Plots share a vertical axis unless that would flatten the one of the smallest values.
_MOST_SPREAD = 4.0

# Levels of the factors that vary, whatever their order.
Key = frozenset[tuple[str, str]]
# The estimates of a line, one for each level; None: there is none.
Line = Sequence[Estimate | None]


@dataclass(frozen=True)
class Plot:
    """One small plot: what it holds fixed, and the figure."""

    title: str
    figure: dict[str, Any]


@dataclass(frozen=True)
class Interaction:
    """All plots over the levels of one factor."""

    across: str
    plots: list[Plot]
    same_axis: bool


def interactions(results: Results, metric: Metric) -> list[Interaction]:
    """Return the plots of `metric` over each factor of several levels, the fewest plots first."""
    points = _points(results, metric)
    factors = [factor for factor in results.study.design() if len(factor.levels) > 1]
    if not factors or not points:
        return []
    lines, *others = factors  # the allocator is the first, unless there is one alone
    scale = results.scale(metric, PAGE_DIGITS)
    made = [
        _across(points, lines, factor, [o for o in others if o is not factor], metric, scale)
        for factor in sorted(others, key=lambda factor: -len(factor.levels))
    ]
    return [each for each in made if each.plots]


def _points(results: Results, metric: Metric) -> dict[Key, Estimate]:
    """The medians by the levels that vary."""
    fixed = {factor.name for factor in results.study.design() if len(factor.levels) == 1}
    found: dict[Key, Estimate] = {}
    for each in results.summary.estimates:
        if each.metric == metric.name:
            levels = {ALLOCATOR: each.allocator, **setting_levels(setting_of(each))}
            found[frozenset(pair for pair in levels.items() if pair[0] not in fixed)] = each
    return found


def _across(
    points: Mapping[Key, Estimate],
    lines: Factor,
    across: Factor,
    held: Sequence[Factor],
    metric: Metric,
    scale: Scale,
) -> Interaction:
    panels: list[tuple[str, dict[str, Line]]] = []
    for levels in product(*(factor.levels for factor in held)):
        at = list(zip((factor.name for factor in held), levels, strict=True))
        by_line: dict[str, Line] = {
            line: [
                points.get(frozenset([*at, (lines.name, line), (across.name, level)]))
                for level in across.levels
            ]
            for line in lines.levels
        }
        if any(point for row in by_line.values() for point in row):
            panels.append((levels_label(at), by_line))
    spans = [_span(by_line) for _, by_line in panels]
    same_axis = bool(spans) and max(s[1] for s in spans) < _MOST_SPREAD * min(s[1] for s in spans)
    shared = (min(s[0] for s in spans), max(s[1] for s in spans)) if same_axis else None
    plots = [
        Plot(title, _figure(by_line, lines, across, metric, scale, shared or span))
        for (title, by_line), span in zip(panels, spans, strict=True)
    ]
    return Interaction(factor_label(across.name), plots, same_axis and len(plots) > 1)


def _span(by_line: Mapping[str, Line]) -> tuple[float, float]:
    found = [point for row in by_line.values() for point in row if point]
    ends = [end for point in found for end in (point.low, point.median, point.high)]
    finite = [end for end in ends if math.isfinite(end)]
    return min(finite), max(finite)


def _figure(
    by_line: Mapping[str, Line],
    lines: Factor,
    across: Factor,
    metric: Metric,
    scale: Scale,
    span: tuple[float, float],
) -> dict[str, Any]:
    height = max(_LEAST_HEIGHT, _TOP + _BOTTOM + _LINE_ROOM * len(by_line))
    figure = Figure(height)
    looks = looks_of(lines.levels)
    low, high = scale.scaled(span[0]), scale.scaled(span[1])
    low, high = widened(low, high, _MARGIN)
    for at, (line, row) in enumerate(by_line.items()):
        shift = _shift(at, len(by_line), len(across.levels))
        _line(figure, line, row, looks[line], scale, shift, across)
    shown = {line: label(line) for line in by_line}
    figure.update(
        xaxis=axis(
            escaped(factor_title(across.name)),
            range=[-_SIDE, len(across.levels) - 1 + _SIDE],
            tickvals=list(range(len(across.levels))),
            ticktext=[escaped(level_text(level)) for level in across.levels],
            showgrid=False,
        ),
        yaxis=axis(
            axis_title(metric, scale), range=[drawn(low), drawn(high)], separatethousands=True
        ),
        annotations=_ends(by_line, looks, shown, scale, (low, high), height - _TOP - _BOTTOM),
        margin={
            "l": _LEFT,
            "r": _CHARACTER * (4 + max(map(len, shown.values()), default=0)),
            "t": _TOP,
            "b": _BOTTOM,
        },
    )
    return figure.plain()


def _shift(line: int, lines: int, levels: int) -> float:
    """How far a line stands beside its levels, so that intervals do not cover each other."""
    return _DODGE * levels * ((line + 0.5) / lines - 0.5)


def _line(
    figure: Figure,
    line: str,
    row: Line,
    look: Look,
    scale: Scale,
    shift: float,
    across: Factor,
) -> None:
    figure.scatter(
        x=[round(at + shift, 3) for at in range(len(row))],
        y=[drawn(scale.scaled(point.median)) if point else None for point in row],
        name=label(line),
        mode="lines+markers",
        line={"color": look.colour, "width": 1.8, "dash": look.dash},
        marker=look.marker(_MARK_SIZE),
        error_y=error_bars(row, scale, color=look.colour, thickness=1.4, width=3),
        hovertext=[
            median_text(f"{label(line)}, {escaped(level_label(across.name, level))}", point, scale)
            if point
            else ""
            for level, point in zip(across.levels, row, strict=True)
        ],
    )


def _ends(
    by_line: Mapping[str, Line],
    looks: Mapping[str, Look],
    names: Mapping[str, str],
    scale: Scale,
    span: tuple[float, float],
    height: int,
) -> list[dict[str, Any]]:
    """The names at the lines' ends, moved apart where they would cover each other."""
    pixels = height / (span[1] - span[0])
    ends = []
    levels = 0
    for number, (line, row) in enumerate(by_line.items()):
        levels = len(row)
        known = [(at, point) for at, point in enumerate(row) if point]
        if known:
            at, point = known[-1]
            shift = _shift(number, len(by_line), levels)
            ends.append((scale.scaled(point.median), at + shift, line))
    ends.sort(reverse=True)
    wanted = [(span[1] - value) * pixels for value, _, _ in ends]
    places = spread(wanted, _LABEL_HEIGHT, height)
    return [
        name_beside(
            f'<span style="color:{looks[line].colour}">{looks[line].character}</span> '
            f"{names[line]}",
            round(at, 3),
            value,
            looks[line].colour,
            axref="x",
            ax=levels - 1 + _SIDE,
            ay=round(place - want, 1),
            align="left",
            standoff=_MARK_SIZE,
            font={"size": FONT_SIZE - 1},
        )
        for (value, at, line), want, place in zip(ends, wanted, places, strict=True)
    ]


def spread(wanted: Sequence[float], gap: float, room: float) -> list[float]:
    """Return places in the order of `wanted` (ascending), `gap` apart and as near as can be.

    >>> spread([10, 11, 50], 5, 60)
    [10, 15, 50]
    """
    places: list[float] = []
    for want in wanted:
        places.append(max(want, places[-1] + gap) if places else want)
    limit = room
    for at in reversed(range(len(places))):
        places[at] = min(places[at], limit)
        limit = places[at] - gap
    return places
