"""The figures of a profile that have a time axis: memory, and allocations with the bursts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from heapfit.drawing import COLOURS, Figure, axis, drawn, escaped, label, legend_above
from heapfit.profile.content import Drawing
from heapfit.profile.model import Burst, Course, Profile
from heapfit.profile.tables import program
from heapfit.profile.words import count, size, span, time_scale
from heapfit.text import scale_for

BLUE, ORANGE = COLOURS[1:3]
# The blue again, light enough to lie under a line on a light or a dark page.
UNDER_A_LINE = "rgba(15,124,192,0.16)"

_HEIGHT = 320
_FRAME = 88  # margins above and below
_BURST_ROW = 18
_MARGIN = {"l": 64, "r": 16, "t": 40, "b": 48}
_LEFT_OF_NAMES = 116
# A line of more points than the page is wide says nothing more.
_MOST_POINTS = 1000
# More rows of bursts would leave no room for the rate.
_MOST_BURST_THREADS = 6

_Values = Sequence[int | None]


def memory(profile: Profile, number: int) -> Drawing:
    """Live bytes against resident ones over the time of the recording of that number."""
    recording = profile.recordings[number]
    course = recording.course
    most = max(known([*course.live_bytes, *course.resident, *course.resident_anonymous]), default=1)
    scale = scale_for("bytes", [max(most, 1)])
    times = _TimeAxis(course)
    figure = Figure(_HEIGHT)
    for values, name, look in _memory_lines(course):
        points = times.coarser(values, max)
        figure.scatter(
            x=times.places(),
            y=[None if each is None else drawn(scale.scaled(each)) for each in points],
            name=name,
            mode="lines",
            hovertext=times.hovers([f"{size(each or 0)} {name}" for each in points]),
            **look,
        )
    figure.update(
        xaxis=times.layout(),
        yaxis=axis(scale.unit, rangemode="tozero"),
        showlegend=True,
        legend=legend_above(),
        margin=_MARGIN,
    )
    return Drawing(
        figure.plain(),
        f"Live and resident memory of {program(recording)} over time: at most "
        f"{size(recording.peak.bytes)} live.",
    )


def _memory_lines(course: Course) -> list[tuple[_Values, str, dict[str, Any]]]:
    """What is drawn of memory: values, name and look. What was not looked at is left out."""
    solid = {"line": {"color": BLUE, "width": 2}, "fill": "tozeroy", "fillcolor": UNDER_A_LINE}
    resident = {"line": {"color": ORANGE, "width": 2}, "connectgaps": True}
    anonymous = {"line": {"color": ORANGE, "width": 1.5, "dash": "dot"}, "connectgaps": True}
    lines: list[tuple[_Values, str, dict[str, Any]]] = [
        (course.live_bytes, "live", solid),
        (course.resident, "resident", resident),
        (course.resident_anonymous, "resident, anonymous", anonymous),
    ]
    return [line for line in lines if known(line[0])]


def known(values: _Values) -> list[int]:
    """The values that there are."""
    return [each for each in values if each is not None]


def rate(profile: Profile, number: int) -> Drawing:
    """Allocations per second of the recording of that number, and above them threads' bursts."""
    recording = profile.recordings[number]
    times = _TimeAxis(recording.course)
    per_second = [
        (each or 0) / seconds
        for each, seconds in zip(
            times.coarser(recording.course.allocations, sum), times.seconds(), strict=True
        )
    ]
    bursts = _bursts_by_thread(profile, number)
    figure = Figure(_HEIGHT + _BURST_ROW * len(bursts))
    scale = scale_for("1/s", [max([*per_second, 1.0])])
    figure.scatter(
        x=times.places(),
        y=[drawn(scale.scaled(each)) for each in per_second],
        mode="lines",
        line={"color": BLUE, "width": 1.5, "shape": "vh"},
        fill="tozeroy",
        fillcolor=UNDER_A_LINE,
        hovertext=times.hovers([f"{count(each)}/s" for each in per_second]),
    )
    rows = _HEIGHT - _FRAME + _BURST_ROW * len(bursts)
    floor = 1 - _BURST_ROW * len(bursts) / rows
    figure.update(
        xaxis=times.layout(),
        yaxis=axis(
            f"allocations ({scale.unit})",
            rangemode="tozero",
            domain=[0, drawn(floor - 0.03 if bursts else 1)],
        ),
        margin=_MARGIN | {"t": 16},
    )
    if bursts:
        _add_bursts(figure, bursts, [each.thread for each in profile.transactions.threads], times)
        figure.update(yaxis2=_burst_axis(bursts, profile, floor))
        figure.update(margin=_MARGIN | {"t": 16, "l": _LEFT_OF_NAMES})
    what = f"Allocations per second of {program(recording)} over time"
    return Drawing(figure.plain(), f"{what}{', with the bursts of its threads' if bursts else ''}.")


def _bursts_by_thread(profile: Profile, number: int) -> dict[int, list[Burst]]:
    """The bursts to draw, by thread, in the order of the bursts' table."""
    found: dict[int, list[Burst]] = {}
    for each in sorted(profile.transactions.examples, key=lambda each: each.thread):
        if each.recording == number:
            found.setdefault(each.thread, []).append(each)
    return dict(list(found.items())[:_MOST_BURST_THREADS])


def _add_bursts(
    figure: Figure, bursts: dict[int, list[Burst]], names: Sequence[str], times: _TimeAxis
) -> None:
    """Draw each burst as a bar from its start to its end, with a stroke so that short ones show."""
    for row, (thread, own) in enumerate(bursts.items()):
        x: list[float | None] = []
        texts: list[str] = []
        for each in own:
            lasted = f"{label(names[thread])}: {span(each.end_ns - each.start_ns)}"
            x += [times.at(each.start_ns), times.at(each.end_ns), None]
            texts += [lasted, lasted, ""]
        figure.scatter(
            x=x,
            y=[row] * len(x),
            yaxis="y2",
            mode="lines+markers",
            line={"color": ORANGE, "width": 6},
            marker={"symbol": "line-ns-open", "size": 9, "color": ORANGE, "line": {"width": 1}},
            hovertext=texts,
        )


def _burst_axis(bursts: dict[int, list[Burst]], profile: Profile, floor: float) -> dict[str, Any]:
    names = [label(profile.transactions.threads[each].thread) for each in bursts]
    return axis(
        domain=[drawn(floor), 1],
        range=[-0.6, len(names) - 0.4],
        tickvals=list(range(len(names))),
        ticktext=names,
        automargin=True,
        showgrid=False,
    )


class _TimeAxis:
    """The time of a recording, in a unit that suits it, of so many points as a page can show."""

    def __init__(self, course: Course) -> None:
        self._step_ns = course.step_ns
        self._steps = len(course.allocations)
        self._group = max(1, math.ceil(self._steps / _MOST_POINTS))
        self._scale = time_scale(self._step_ns * self._steps)

    def coarser(self, values: _Values, combined: Callable[[list[int]], int]) -> list[int | None]:
        """The values, or what is `combined` of as many as one point stands for."""
        groups = [known(values[at : at + self._group]) for at in range(0, self._steps, self._group)]
        return [combined(group) if group else None for group in groups]

    def at(self, ns: float) -> float:
        return drawn(ns / self._scale.ns)

    def places(self) -> list[float]:
        """Where each point is: at the end of what it stands for."""
        return [self.at(end * self._step_ns) for end in self._ends()]

    def seconds(self) -> list[float]:
        """How long the time is that each point stands for."""
        ends = [0, *self._ends()]
        return [(b - a) * self._step_ns / 1e9 for a, b in pairwise(ends)]

    def hovers(self, texts: Sequence[str]) -> list[str]:
        """What each point tells when it is pointed at."""
        return [
            f"{escaped(text)}<br>at {place:g} {self._scale.unit}"
            for text, place in zip(texts, self.places(), strict=True)
        ]

    def layout(self) -> dict[str, Any]:
        return axis(
            f"time ({self._scale.unit})",
            range=[0, self.at(self._step_ns * max(self._steps, 1))],
        )

    def _ends(self) -> list[int]:
        """The step after the last of each point's."""
        return [min(at + self._group, self._steps) for at in range(0, self._steps, self._group)]
