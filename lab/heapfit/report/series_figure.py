"""The figure of a series: every allocator's ratio to the best peer, a row per workload.

Allocators that it has no ratio of are left out; the others look as they do in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heapfit.records import PeerComparison
from heapfit.report.drawing import Figure, escaped, label, line_at_one, looks_of, titled
from heapfit.report.series_words import (
    GEOMETRIC_MEAN,
    compared_with,
    part_label,
    shown_ratio,
)
from heapfit.report.units import TIMES

_ROW_HEIGHT = 26
_FRAME_HEIGHT = 140
_MARK_SIZE = 9
_SUBJECT_SIZE = 13
# What a reader of a ratio looks for; a logarithmic axis would choose 1, 2, 5, 10 alone.
_TICKS = [0.25, 0.5, 0.7, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100]


def ratios(comparison: PeerComparison, allocators: Sequence[str], subject: str) -> dict[str, Any]:
    """Return the figure: ratios on a logarithmic axis, the geometric means in the first row."""
    rows = [GEOMETRIC_MEAN, *comparison.ratios]
    reference = escaped(compared_with(comparison.definition))
    labels = [part_label(comparison.definition, part) for part in comparison.ratios]
    figure = Figure(_FRAME_HEIGHT + _ROW_HEIGHT * len(rows))
    drawn_last = sorted(allocators, key=lambda name: name == subject)
    for name in drawn_last:
        look = looks_of(allocators)[name]
        own = _of(comparison, name)
        if not own:
            continue
        figure.scatter(
            x=list(own.values()),
            y=[rows.index(row) for row in own],
            name=label(name),
            mode="markers",
            marker={
                "symbol": look.symbol if name == subject else f"{look.symbol}-open",
                "size": _SUBJECT_SIZE if name == subject else _MARK_SIZE,
                "color": look.colour,
            },
            hovertext=[
                f"{escaped(row)}<br>{label(name)}: {shown_ratio(ratio)}{TIMES}"
                for row, ratio in own.items()
            ],
            hoverinfo="text",
        )
    figure.update(
        xaxis={
            "title": titled(f"ratio to {reference}, logarithmic; less is better"),
            "type": "log",
            "tickvals": _TICKS,
            "ticksuffix": TIMES,
            "fixedrange": True,
            "zeroline": False,
        },
        yaxis={
            "range": [len(rows) - 0.5, -0.5],
            "tickvals": list(range(len(rows))),
            "ticktext": [f"<b>{GEOMETRIC_MEAN}</b>", *map(label, labels)],
            "fixedrange": True,
            "zeroline": False,
            "automargin": True,
        },
        shapes=[line_at_one("x")],
        showlegend=True,
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom", "x": 0},
        margin={"l": 8, "r": 16, "t": 64, "b": 48},
    )
    return figure.plain()


def _of(comparison: PeerComparison, allocator: str) -> dict[str, float]:
    """One allocator's ratios by row."""
    own: dict[str, float] = {}
    if allocator in comparison.combined:
        own[GEOMETRIC_MEAN] = comparison.combined[allocator].geometric_mean
    for workload, by_allocator in comparison.ratios.items():
        if allocator in by_allocator:
            own[workload] = by_allocator[allocator]
    return own
