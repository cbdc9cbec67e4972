"""The figures of single trials: a strip of them for each setting, and their drift over the study;
and a figure of ratios to the best peer. `drawing.py` has what all figures share.

Allocators differ, so a raw value by time says little. Divided by the median of its own cell
(allocator and setting), every trial should scatter around 1 from the first to the last. The random
order keeps a drift from favouring an allocator; it still widens the intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heapfit.drawing import (
    POINT_SIZE,
    Figure,
    Look,
    axis,
    axis_title,
    drawn,
    error_bars,
    escaped,
    in_template,
    label,
    legend_above,
    line_at_one,
    looks_of,
    median_text,
    rows_axis,
    sample,
    sample_with_extremes,
    widened,
)
from heapfit.records import Estimate, Metric, PeerComparison, Setting
from heapfit.report.results import Results
from heapfit.report.series import GEOMETRIC_MEAN, compared_with, part_label, shown_ratio
from heapfit.statistics.median import cell_medians
from heapfit.statistics.observations import Floats, Integers, Readings, figures_of
from heapfit.text import PAGE_DIGITS, TIMES, Scale, counted, percent, visible

# A plot of more points than this per row is a smear, and slow: a sample is shown instead.
MOST_POINTS = 200
MOST_DRIFT_POINTS = 2000

# Thirds: enough trials in each for a median, and a slow rise shows between first and last.
_PARTS = 3
_FEWEST_TRIALS = 12
# Below this the medians of two thirds differ by chance on a quiet machine.
_NOTABLE = 0.02

# Geometry, in pixels and in rows (a row of the strip is one unit high).
_ROW_HEIGHT = 46
_STRIP_FRAME = 96
_DRIFT_HEIGHT = 340
_MEDIAN_OFFSET = -0.16
_POINTS_OFFSET = 0.18
_JITTER = 0.13
_GOLDEN_RATIO = 0.6180339887498949
_MEDIAN_SIZE = 12
_RANGE_MARGIN = 0.06
# A ratio axis shorter than this has ticks closer than two decimals can tell apart.
_FINE_SPAN = 0.05
_RATIO_ROW_HEIGHT = 26
_RATIOS_FRAME = 140
_RATIO_SIZE = 9
_SUBJECT_SIZE = 13
# What a reader of a ratio looks for; a logarithmic axis would choose 1, 2, 5, 10 alone.
_RATIO_TICKS = [0.25, 0.5, 0.7, 1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100]


@dataclass(frozen=True)
class _Strip:
    """What the figure of one metric in one setting is drawn from."""

    results: Results
    metric: Metric
    setting: Setting
    scale: Scale
    figure: Figure

    def add_points(
        self, values: Floats, customdata: list[tuple[int, int]], name: str, row: int, look: Look
    ) -> None:
        self.figure.scatter(
            x=[drawn(self.scale.scaled(value)) for value in values.tolist()],
            y=[round(row + _POINTS_OFFSET + _jitter(index), 3) for index in range(len(values))],
            mode="markers",
            marker={**look.marker(POINT_SIZE, is_open=True), "opacity": 0.75},
            customdata=customdata,
            hovertemplate=_trial_template(name, "x", self.scale),
        )

    def add_median(self, estimate: Estimate, row: int, look: Look) -> None:
        scale = self.scale
        text = median_text(label(estimate.allocator), estimate, scale)
        self.figure.scatter(
            x=[scale.scaled(estimate.median)],
            y=[row + _MEDIAN_OFFSET],
            mode="markers",
            marker=look.marker(_MEDIAN_SIZE),
            error_x=error_bars([estimate], scale, color=look.colour, thickness=2.5, width=6),
            hovertext=[f"{text}<br>{counted(estimate.n, 'trial')}"],
        )

    def add_axes(self, rows: Sequence[str], span: tuple[float, float]) -> None:
        self.figure.update(
            xaxis=axis(
                axis_title(self.metric, self.scale),
                range=span,
                separatethousands=True,
                tickangle=0,
            ),
            yaxis=rows_axis(list(map(label, rows)), showgrid=False, automargin=True),
            margin={"l": 8, "r": 16, "t": 44, "b": 44},
        )

    def add_ratio_axis(self, span: tuple[float, float]) -> None:
        """Add the upper axis, in multiples of the baseline's median, and a line where it is 1."""
        baseline = self.results.baseline
        base = self.results.estimate(self.setting, self.metric, baseline)
        if base is None or not base.median:
            return
        unit = self.scale.scaled(base.median)
        self.figure.update(
            xaxis2=axis(
                f"ratio to {label(baseline)}",
                overlaying="x",
                side="top",
                anchor="y",
                range=[edge / unit for edge in span],
                tickmode="auto",  # else its ticks copy the places of the lower axis
                tickformat=".2f" if (span[1] - span[0]) / unit > _FINE_SPAN else ".3f",
                ticksuffix=TIMES,
                showgrid=False,
                tickangle=0,
            ),
            shapes=[line_at_one("x2")],
        )
        # An axis without a trace is not drawn; this one has no points to show.
        self.figure.scatter(x=[None], y=[None], xaxis="x2", hoverinfo="skip")


def strip(
    results: Results,
    readings: Readings,
    trials: Mapping[str, Integers],
    metric: Metric,
    setting: Setting,
    most_points: int = MOST_POINTS,
) -> dict[str, Any]:
    """Every trial of one metric as a point, a row per allocator, with median and interval.

    The lower axis is in the metric's unit, the upper one in multiples of the baseline's median.
    `trials` are, by allocator, those of this setting, as indices of the readings. No more than
    `most_points` of each allocator are drawn.
    """
    estimates = results.estimates(setting, metric)
    scale = results.scale(metric, PAGE_DIGITS)
    figure = Figure(_STRIP_FRAME + _ROW_HEIGHT * len(estimates))
    made = _Strip(results, metric, setting, scale, figure)
    looks = looks_of(results.allocators)
    values = figures_of(readings, metric.name)
    for row, estimate in enumerate(estimates):
        name = estimate.allocator
        own = trials[name][~np.isnan(values[trials[name]])]
        shown = own[sample_with_extremes(values[own], most_points)]
        made.add_points(values[shown], _customdata(readings, shown), name, row, looks[name])
        made.add_median(estimate, row, looks[name])
    low = scale.scaled(min(min(e.minimum, e.low) for e in estimates))
    high = scale.scaled(max(max(e.maximum, e.high) for e in estimates))
    span = widened(low, high, _RANGE_MARGIN)
    made.add_axes([each.allocator for each in estimates], span)
    made.add_ratio_axis(span)
    return figure.plain()


def _jitter(index: int) -> float:
    """A spread that looks random, is even, and is the same in every rendering."""
    return (2 * (index * _GOLDEN_RATIO % 1.0) - 1) * _JITTER


def _customdata(readings: Readings, rows: Integers) -> list[tuple[int, int]]:
    """What a mark tells of its trial when pointed at, counted from 1."""
    columns = readings.index[rows] + 1, readings.block[rows] + 1
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _trial_template(name: str, value: str, scale: Scale) -> str:
    """The words around `_customdata`; `value` is the variable that holds the trial's figure."""
    figure = f"%{{{value}}}" if value == "text" else f"%{{{value}:,.{scale.decimals}f}}"
    unit = f" {in_template(escaped(scale.unit))}" if scale.unit and value != "text" else ""
    return (
        f"{in_template(label(name))}: {figure}{unit}"
        "<br>trial %{customdata[0]}, block %{customdata[1]}<extra></extra>"
    )


# ------------------------------------------------------- drift over the study


@dataclass(frozen=True)
class Deviations:
    """Trials in the order in which they ran: each one's value over the median of its own cell."""

    rows: Integers  # the trials, as indices of the readings
    values: Floats
    relative: Floats


def deviations(readings: Readings, metric: Metric) -> Deviations:
    """Return the deviation of every trial behind the estimates of `metric`."""
    figures = figures_of(readings, metric.name)
    order = np.argsort(readings.index, kind="stable")
    order = order[~np.isnan(figures[order])]
    values = figures[order]
    cell = readings.cell[order]
    centres = cell_medians(values, cell)[cell]
    rows = np.flatnonzero(centres)
    return Deviations(order[rows], values[rows], values[rows] / centres[rows])


def drift_sentence(found: Deviations, metric: Metric) -> str:
    """Return one sentence about the drift between the first and the last third of the study."""
    label = visible(metric.label)
    relative = found.relative
    if len(relative) < _FEWEST_TRIALS:
        return f"Too few trials to judge whether {label} drifted during the study."
    part = len(relative) // _PARTS
    first = float(np.median(relative[:part]))
    if not first:
        return f"{label} is mostly zero: no drift to judge."
    change = float(np.median(relative[-part:])) / first
    shown = percent(abs(change - 1))
    if abs(change - 1) < _NOTABLE:
        return (
            f"{label}: no notable drift; the last third of the trials differs from the first "
            f"by {shown}."
        )
    direction = "higher" if change > 1 else "lower"
    return (
        f"{label} drifted: the last third of the trials is {shown} {direction} than the first. "
        "The order is random, so no allocator is favoured, but the intervals are wider for it."
    )


def drift(
    results: Results, readings: Readings, found: Deviations, metric: Metric
) -> dict[str, Any]:
    """Each trial over the median of its own cell, in the order in which the trials ran."""
    scale = results.scale(metric, PAGE_DIGITS)
    figure = Figure(_DRIFT_HEIGHT)
    shown = sample(np.arange(len(found.rows)), MOST_DRIFT_POINTS)
    allocator = readings.levels[0][found.rows[shown]]
    looks = looks_of(results.allocators)
    for number, name in enumerate(results.allocators):
        own = shown[allocator == number]
        rows = found.rows[own]
        look = looks[name]
        figure.scatter(
            x=(readings.index[rows] + 1).tolist(),
            y=[drawn(relative) for relative in found.relative[own].tolist()],
            name=label(name),
            mode="markers",
            marker=look.marker(POINT_SIZE),
            customdata=_customdata(readings, rows),
            text=[scale.text(value) for value in found.values[own].tolist()],
            hovertemplate=_trial_template(name, "text", scale),
        )
    figure.update(
        xaxis=axis("Trial, in the order of running"),
        yaxis=axis(f"{escaped(metric.label)} / its own median", tickformat=".2f"),
        shapes=[line_at_one("y")],
        showlegend=True,
        legend=legend_above(),
        margin={"l": 64, "r": 16, "t": 48, "b": 48},
    )
    return figure.plain()


# ------------------------------------------------------- ratios to the best peer


def peer_ratios(
    comparison: PeerComparison, allocators: Sequence[str], subject: str
) -> dict[str, Any]:
    """Every allocator's ratio to the best peer on a logarithmic axis, a row per workload; the
    geometric means are in the first row.

    Allocators without a ratio are left out; the others look as they do in every figure.
    """
    rows = [GEOMETRIC_MEAN, *comparison.ratios]
    reference = escaped(compared_with(comparison.definition))
    labels = [part_label(comparison.definition, part) for part in comparison.ratios]
    figure = Figure(_RATIOS_FRAME + _RATIO_ROW_HEIGHT * len(rows))
    looks = looks_of(allocators)
    for name in sorted(allocators, key=lambda name: name == subject):  # the subject on top
        look, own = looks[name], _ratios_of(comparison, name)
        if not own:
            continue
        figure.scatter(
            x=list(own.values()),
            y=[rows.index(row) for row in own],
            name=label(name),
            mode="markers",
            marker=look.marker(
                _SUBJECT_SIZE if name == subject else _RATIO_SIZE, is_open=name != subject
            ),
            hovertext=[
                f"{escaped(row)}<br>{label(name)}: {shown_ratio(ratio)}{TIMES}"
                for row, ratio in own.items()
            ],
        )
    figure.update(
        xaxis=axis(
            f"ratio to {reference}, logarithmic; less is better",
            type="log",
            tickvals=_RATIO_TICKS,
            ticksuffix=TIMES,
        ),
        yaxis=rows_axis([f"<b>{GEOMETRIC_MEAN}</b>", *map(label, labels)], automargin=True),
        shapes=[line_at_one("x")],
        showlegend=True,
        legend=legend_above(),
        margin={"l": 8, "r": 16, "t": 64, "b": 48},
    )
    return figure.plain()


def _ratios_of(comparison: PeerComparison, allocator: str) -> dict[str, float]:
    """One allocator's ratios by row."""
    combined = comparison.combined.get(allocator)
    mean = {} if combined is None else {GEOMETRIC_MEAN: combined.geometric_mean}
    rows = comparison.ratios.items()
    return mean | {workload: row[allocator] for workload, row in rows if allocator in row}
