"""The trade-off of time against memory: a mark per allocator, those on the Pareto front joined.

The front is one of means. Who is shown to be beaten has an open mark.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from heapfit.drawing import FONT_SIZE, Figure, axis, drawn, label, looks_of, name_beside
from heapfit.findings import Advice, Standing
from heapfit.text import TIMES

TIME, MEMORY = "time", "memory"

_HEIGHT = 380
_TOP, _BOTTOM = 16, 50
_MARK_SIZE = 12
_MARGIN = 0.12
# What is nearer together shall look so, and the labels of its axis, of two digits, differ.
_LEAST_SPAN = 0.05
_LABEL_GAP = 14
# Names stand a little above their marks, since the border runs to the right of these.
_LABEL_RISE = 11
_LABEL_HEIGHT = 17
_CHARACTER = 7.5
# What the figure is wide on a usual screen; names are placed for that.
_USUAL_WIDTH = 400
_FRONT = "#8a94a0"


def pareto(
    advice: Advice, allocators: Sequence[str], titles: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the figure; None where the advice weighs no time against no memory. `titles` are what
    the costs are called.

    Axes are costs: ratios to the best allocator, so that 1 is the best and nothing is below.
    """
    shown = [each for each in advice.standings if {TIME, MEMORY} <= each.costs.keys()]
    if len(shown) < 2:
        return None
    figure = Figure(_HEIGHT)
    times = _range([each.costs[TIME] for each in shown])
    memories = _range([each.costs[MEMORY] for each in shown])
    _add_front(figure, shown, times[1], memories[1])
    looks = looks_of(allocators)
    for each in shown:
        look = looks[each.allocator]
        figure.scatter(
            x=[drawn(each.costs[TIME])],
            y=[drawn(each.costs[MEMORY])],
            mode="markers",
            name=label(each.allocator),
            marker=look.marker(_MARK_SIZE, is_open=not each.unbeaten),
            hovertext=[_hover(each, titles)],
        )
    form = {"tickformat": ".2f", "ticksuffix": TIMES}
    figure.update(
        xaxis=axis(f"{titles[TIME]}, ratio to the best", range=times, **form),
        yaxis=axis(f"{titles[MEMORY]}, ratio to the best", range=memories, **form),
        annotations=_names(shown, times, memories),
        margin={"l": 66, "r": 16, "t": _TOP, "b": _BOTTOM},
    )
    return figure.plain()


def _range(costs: Sequence[float]) -> tuple[float, float]:
    low = min(costs)
    span = max(max(costs) - low, _LEAST_SPAN)
    # Room for the names, which stand to the right of their marks.
    return drawn(low - span * _MARGIN), drawn(low + span * (1 + 2 * _MARGIN))


def _add_front(figure: Figure, shown: Sequence[Standing], right: float, top: float) -> None:
    """The border of what is reachable, as steps: everything above and right of it is worse."""
    front = sorted((each.costs[TIME], each.costs[MEMORY]) for each in shown if each.on_front)
    if not front:
        return
    corners = [(front[0][0], top), *front, (right, front[-1][1])]
    figure.scatter(
        x=[drawn(x) for x, _ in corners],
        y=[drawn(y) for _, y in corners],
        mode="lines",
        line={"shape": "hv", "color": _FRONT, "width": 1.5, "dash": "dash"},
        hoverinfo="skip",
    )


def _names(
    shown: Sequence[Standing], times: tuple[float, float], memories: tuple[float, float]
) -> list[dict[str, Any]]:
    """The names beside their marks, moved up or down where one would cover another."""
    across = _USUAL_WIDTH / (times[1] - times[0])
    down = (_HEIGHT - _TOP - _BOTTOM) / (memories[1] - memories[0])
    taken: list[tuple[float, float, float]] = []
    names = []
    # Those on the front choose first, so that their names stay beside their marks.
    for each in sorted(shown, key=lambda each: not each.on_front):
        left = (each.costs[TIME] - times[0]) * across + _LABEL_GAP
        mark = (memories[1] - each.costs[MEMORY]) * down
        right = left + _CHARACTER * len(label(each.allocator))
        place = _free_place(taken, left, right, mark - _LABEL_RISE)
        taken.append((left, right, place))
        name = label(each.allocator)
        names.append(
            name_beside(
                f"<b>{name}</b>" if each.unbeaten else name,
                drawn(each.costs[TIME]),
                each.costs[MEMORY],
                _FRONT,
                ax=_LABEL_GAP,
                ay=round(place - mark, 1),
                standoff=_MARK_SIZE / 2,
                font={"size": FONT_SIZE},
            )
        )
    return names


def _free_place(
    taken: Sequence[tuple[float, float, float]], left: float, right: float, wanted: float
) -> float:
    """The height nearest to `wanted` at which a name from `left` to `right` covers no other."""
    steps = range(-len(taken) - 1, len(taken) + 2)
    for offset in sorted((_LABEL_HEIGHT * step for step in steps), key=abs):
        place = wanted + offset
        if 0 <= place <= _HEIGHT - _TOP - _BOTTOM and not any(
            left < others_right and others_left < right and abs(place - other) < _LABEL_HEIGHT
            for others_left, others_right, other in taken
        ):
            return place
    return wanted


def _hover(each: Standing, titles: Mapping[str, str]) -> str:
    costs = "".join(f"<br>{titles[name]} {cost:.3f}{TIMES}" for name, cost in each.costs.items())
    return f"{label(each.allocator)}{costs}"
