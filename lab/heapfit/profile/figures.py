"""The figures of a profile's page that have no time axis: distributions, squares, bars."""

import math
from collections.abc import Sequence
from typing import Any

from heapfit.drawing import COLOURS, Figure, axis, drawn, escaped, label, legend_above, rows_axis
from heapfit.profile.content import Drawing
from heapfit.profile.figures_of_time import BLUE, ORANGE
from heapfit.profile.model import Distribution, LifetimeCell, Profile, SizePart
from heapfit.profile.words import count, percent, size, size_range, span
from heapfit.text import bytes_text, scale_for

# More lines cannot be told apart; the largest are drawn.
MOST_THREADS = 8
_MOST_PROGRAMS = 4
# The same blue as the lines', from hardly any to what is still told from a label beside it.
_TINTS = [[0.0, "rgba(15,124,192,0.05)"], [1.0, "rgba(15,124,192,0.9)"]]
_ALL = "all threads"
_DASHES = ["solid", "dash", "dot", "dashdot"]

_SIZES_HEIGHT, _BARS_HEIGHT = 380, 260
_ROW_HEIGHT, _FRAME = 26, 84
_LEFT_OF_SIZES, _LEFT_OF_NAMES = 86, 104
# Each tick eight times the one before: sizes that people know by heart, and no crowd on a phone.
_SIZE_TICK_RATIO = 8
_FIRST_SIZE = 8
# Bars are a factor of two apart; where there are many, every third has its size below.
_EVERY_BAR, _ALL_BARS = 3, 9
# In larger squares a number no longer fits into its cell.
_MOST_NUMBERED = 10


# -------------------------------------------------------------------------- sizes


def sizes(profile: Profile) -> Drawing | None:
    """The cumulative distribution of sizes: of programs, and of the threads that ask most."""
    programs = profile.sizes.programs[:_MOST_PROGRAMS]
    if not programs:
        return None
    figure = Figure(_SIZES_HEIGHT)
    for number, each in enumerate(programs):
        name = _ALL if len(programs) == 1 else None
        _add_distribution(figure, each, _colour(number), "solid", width=3, name=name)
    if len(programs) == 1:
        _add_bytes(figure, programs[0])
    threads = profile.sizes.threads[:MOST_THREADS] if len(profile.sizes.threads) > 1 else []
    for number, each in enumerate(threads):
        colour, dash = _colour(number + len(programs)), _DASHES[1 + number % 3]
        _add_distribution(figure, each, colour, dash, width=1.2, name=each.name)
    largest = max(each.largest for each in programs)
    figure.update(
        xaxis=_size_axis(largest),
        yaxis=axis(
            "% of allocations up to this size",
            range=[0, 101],
            tickvals=[20, 40, 60, 80, 100],
        ),
        showlegend=True,
        legend=legend_above(),
        margin={"l": 64, "r": 16, "t": 40, "b": 48},
    )
    return Drawing(
        figure.plain(),
        f"Cumulative distribution of sizes: half of the allocations of {programs[0].name} are of "
        f"at most {size(programs[0].median)}.",
    )


def _colour(number: int) -> str:
    """Blue is the program's own; grey, the first of all, is too quiet for a line."""
    return COLOURS[1 + number % (len(COLOURS) - 1)]


def _add_distribution(
    figure: Figure, of: Distribution, colour: str, dash: str, width: float, name: str | None = None
) -> None:
    shown = label(name or of.name)
    figure.scatter(
        x=[each.size for each in of.points],
        y=[drawn(100 * each.objects) for each in of.points],
        name=shown,
        mode="lines",
        line={"color": colour, "width": width, "dash": dash, "shape": "hv"},
        hovertext=[
            f"{shown}: {percent(each.objects)} of {count(of.amount.objects)}<br>"
            f"up to {escaped(bytes_text(each.size))}"
            for each in of.points
        ],
    )


def _add_bytes(figure: Figure, of: Distribution) -> None:
    """The same by bytes: where a program's few large blocks show."""
    figure.scatter(
        x=[each.size for each in of.points],
        y=[drawn(100 * each.bytes) for each in of.points],
        name="by bytes",
        mode="lines",
        line={"color": BLUE, "width": 2, "dash": "dot", "shape": "hv"},
        hovertext=[
            f"{percent(each.bytes)} of the bytes<br>in blocks up to "
            f"{escaped(bytes_text(each.size))}"
            for each in of.points
        ],
    )


def _size_axis(largest: int) -> dict[str, Any]:
    ticks = [_FIRST_SIZE]
    while ticks[-1] < largest:
        ticks.append(ticks[-1] * _SIZE_TICK_RATIO)
    return axis(
        "requested size (bytes, logarithmic)",
        type="log",
        range=[math.log10(_FIRST_SIZE), math.log10(max(largest, 2 * _FIRST_SIZE))],
        tickvals=ticks,
        ticktext=[_short(each) for each in ticks],
        tickangle=0,
    )


def _short(value: int) -> str:
    """A size as a tick of an axis, which has little room.

    >>> _short(512), _short(4 << 10), _short(2 << 20)
    ('512', '4k', '2M')
    """
    for unit, suffix in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if value >= unit:
            return f"{value // unit}{suffix}"
    return str(value)


# ---------------------------------------------------------------------- lifetimes


def lifetimes(profile: Profile) -> Drawing | None:
    """Which part of each size's blocks lives how long; at the right those that live at the end."""
    rows = [row for row in reversed(profile.lifetimes.rows) if row.amount.objects]
    cells = {(cell.size, _column(cell)): cell for cell in profile.lifetimes.by_time}
    if not rows:
        return None
    columns = _columns([column for _, column in cells])
    last = columns[-1] + 2 if columns else 0
    shares: list[list[float | None]] = []
    hovers: list[list[str]] = []
    for row in rows:
        line = [cells.get((row.size, column)) for column in columns]
        whole = row.amount.objects
        living = row.living.objects
        shares.append(
            [drawn(100 * each.amount.objects / whole) if each else None for each in line]
            + [None, drawn(100 * living / whole) if living else None]
        )
        name = size_range(row.size)
        hovers.append(
            [_lived(each, whole, name) if each else "" for each in line]
            + ["", f"{name}: {percent(living, whole)}, {count(living)} live at the end"]
        )
    figure = Figure(_FRAME + _ROW_HEIGHT * len(rows))
    figure.heat_map(
        x=[*columns, last - 1, last],
        y=list(range(len(rows))),
        z=shares,
        hovertext=hovers,
        hoverongaps=False,
        colorscale=_TINTS,
        zmin=0,
        xgap=1,
        ygap=1,
        colorbar={"thickness": 10, "ticksuffix": " %", "outlinewidth": 0, "nticks": 5},
    )
    figure.update(
        xaxis=_lifetime_axis(columns, last),
        yaxis=rows_axis([size_range(row.size) for row in rows], showgrid=False),
        margin={"l": _LEFT_OF_SIZES, "r": 8, "t": 16, "b": 56},
    )
    return Drawing(
        figure.plain(),
        "Lifetimes by size: each row's blocks by how long they lived, as a heat map.",
    )


def _column(cell: LifetimeCell) -> int:
    """The binary logarithm of the lifetime that is just not reached."""
    return max(cell.lifetime, 1).bit_length() - 1


def _columns(found: Sequence[int]) -> list[int]:
    return list(range(min(found), max(found) + 1)) if found else []


def _lived(cell: LifetimeCell, whole: int, name: str) -> str:
    return (
        f"{name}: {percent(cell.amount.objects, whole)}, {count(cell.amount.objects)} blocks<br>"
        f"lived {span(cell.lifetime / 2)} to {span(cell.lifetime)}"
    )


def _lifetime_axis(columns: Sequence[int], last: int) -> dict[str, Any]:
    """Ticks at powers of a thousand nanoseconds; a column ends where its lifetime does."""
    ticks: list[float] = [last]
    texts = ["end"]
    for power, text in enumerate(["1 ns", "1 µs", "1 ms", "1 s", "1000 s"]):
        place = math.log2(1000**power) + 0.5
        if columns and columns[0] - 0.5 <= place <= columns[-1] + 0.6:
            ticks.append(drawn(place))
            texts.append(text)
    return axis(
        "lifetime, logarithmic", tickvals=ticks, ticktext=texts, showgrid=False, tickangle=0
    )


# ------------------------------------------------------------------------ threads


def threads(profile: Profile) -> Drawing | None:
    """A square: who allocates (rows), who frees (columns)."""
    sharing = profile.sharing
    number = len(sharing.threads)
    if number < 2 or not sharing.freed.objects:
        return None
    shares: list[list[float | None]] = [[None] * number for _ in range(number)]
    texts = [[""] * number for _ in range(number)]
    hovers = [[""] * number for _ in range(number)]
    names = [label(each) for each in sharing.threads]
    for flow in sharing.flow:
        part = flow.amount.objects / sharing.freed.objects
        if not part:
            continue
        # Its square root is drawn: beside what threads free themselves, the rest would not show.
        shares[flow.born][flow.died] = drawn(math.sqrt(part))
        texts[flow.born][flow.died] = (
            percent(part).removesuffix(" %") if number <= _MOST_NUMBERED else ""
        )
        hovers[flow.born][flow.died] = (
            f"{names[flow.born]} \N{RIGHTWARDS ARROW} {names[flow.died]}: {percent(part)} of all "
            f"frees<br>{count(flow.amount.objects)} blocks, {size(flow.amount.bytes)}"
        )
    figure = Figure(_FRAME + 40 + max(_ROW_HEIGHT * number, 120))
    figure.heat_map(
        x=list(range(number)),
        y=list(range(number)),
        z=shares,
        text=texts,
        texttemplate="%{text}",
        textfont={"size": 11},
        hovertext=hovers,
        hoverongaps=False,
        colorscale=[[0.0, "rgba(15,124,192,0.05)"], [1.0, "rgba(15,124,192,0.55)"]],
        zmin=0,
        zmax=1,
        xgap=1,
        ygap=1,
        showscale=False,
    )
    form = {"showgrid": False, "automargin": True}
    ticks = {"tickvals": list(range(number)), "ticktext": names, "tickangle": -35}
    figure.update(
        xaxis=axis("freed by", **ticks, **form),
        yaxis=rows_axis(names, title="allocated by", **form),
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
    )
    return Drawing(
        figure.plain(),
        f"Frees by other threads, as a square of {number} threads: "
        f"{percent(sharing.remote_share or 0.0)} are freed by another thread.",
    )


# --------------------------------------------------------------------------- bars


def peak(profile: Profile) -> Drawing | None:
    """The peak's bytes by size."""
    return _by_size(profile.peak.sizes, "of the peak")


def _by_size(parts: Sequence[SizePart], of_what: str) -> Drawing | None:
    if not parts:
        return None
    scale = scale_for("bytes", [max(max(each.amount.bytes for each in parts), 1)])
    largest = max(parts, key=lambda each: each.amount.bytes)
    every = _EVERY_BAR if len(parts) > _ALL_BARS else 1
    figure = Figure(_BARS_HEIGHT)
    figure.bars(
        x=list(range(len(parts))),
        y=[drawn(scale.scaled(each.amount.bytes)) for each in parts],
        marker={"color": BLUE},
        hovertext=[
            f"{size_range(each.size)}: {size(each.amount.bytes)}, {percent(each.share)} "
            f"{of_what}<br>{count(each.amount.objects)} blocks"
            for each in parts
        ],
    )
    figure.update(
        xaxis=axis(
            "size, up to (bytes)",
            tickvals=list(range(0, len(parts), every)),
            ticktext=[_short(each.size) for each in parts[::every]],
            tickangle=0,
        ),
        yaxis=axis(scale.unit),
        bargap=0.25,
        margin={"l": 64, "r": 16, "t": 16, "b": 64},
    )
    return Drawing(
        figure.plain(),
        f"Bytes by size: most, {percent(largest.share)} {of_what}, in blocks of "
        f"{size_range(largest.size)}.",
    )


def rounding(profile: Profile) -> Drawing | None:
    """What each allocator's size classes add to the peak, as a part of it."""
    rows = [each for each in profile.waste.allocators if each.peak_waste is not None]
    if not rows:
        return None
    figure = Figure(_FRAME + _ROW_HEIGHT * len(rows))
    figure.bars(
        x=[drawn(100 * (each.peak_waste or 0.0)) for each in rows],
        y=list(range(len(rows))),
        orientation="h",
        marker={"color": [ORANGE if each.recorded else BLUE for each in rows]},
        text=[percent(each.peak_waste or 0.0) for each in rows],
        textposition="outside",
        cliponaxis=False,
        hovertext=[f"{label(each.title)}: {size(each.peak_bytes)}" for each in rows],
    )
    figure.update(
        xaxis=axis("% that rounding adds to the peak", rangemode="tozero"),
        yaxis=rows_axis([label(each.allocator) for each in rows]),
        bargap=0.3,
        margin={"l": _LEFT_OF_NAMES, "r": 56, "t": 16, "b": 48},
    )
    return Drawing(figure.plain(), "What each allocator adds to the peak by rounding, as bars.")


def end(profile: Profile) -> Drawing | None:
    """When what lives at the end was born, by tenths of all allocations."""
    born = profile.leaks.born
    most = max((each.bytes for each in born), default=0)
    if not most:
        return None
    scale = scale_for("bytes", [most])
    tenths = [f"{100 * i // len(born)}" for i in range(len(born))]
    figure = Figure(_BARS_HEIGHT)
    figure.bars(
        x=[i + 0.5 for i in range(len(born))],
        y=[drawn(scale.scaled(each.bytes)) for each in born],
        marker={"color": BLUE},
        hovertext=[
            f"allocated from {start} % of all on: {size(each.bytes)}<br>{count(each.objects)} "
            "blocks"
            for start, each in zip(tenths, born, strict=True)
        ],
    )
    figure.update(
        xaxis=axis(
            "allocated, in % of all allocations before",
            tickvals=[0, len(born) / 2, len(born)],
            ticktext=["0", "50", "100"],
        ),
        yaxis=axis(f"live at the end ({scale.unit})"),
        bargap=0.15,
        margin={"l": 64, "r": 16, "t": 16, "b": 48},
    )
    return Drawing(
        figure.plain(), "When what lives at the end was allocated, by tenths of all allocations."
    )
