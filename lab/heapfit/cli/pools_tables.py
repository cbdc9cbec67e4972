"""Print an explanation of pools as tables."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from heapfit.cli.output import results, table
from heapfit.live.figures import share
from heapfit.pools import Explanation, Group
from heapfit.symbols import Frame
from heapfit.text import count, counted, size

# As many as a screen shows; --all has the others.
_MOST_GROUPS = 24
_MOST_EDGES = 24

_CALLED_BY = "\N{LEFTWARDS ARROW} "


def show(
    explanation: Explanation, frames: Mapping[int, Sequence[Frame]], *, every: bool = False
) -> None:
    """Print what was decided in a run: groups, pools, what points to what, what it took."""
    for line in _headlines(explanation):
        results.print(line, soft_wrap=True)
    groups = _ordered(explanation)
    shown = groups if every else groups[:_MOST_GROUPS]
    _print(_groups(shown, frames))
    if len(groups) > len(shown):
        results.print(f"… and {len(groups) - len(shown)} more; --all shows them", style="dim")
    if explanation.pools:
        _print(_pools(explanation))
    if explanation.edges:
        _print(_edges(explanation, every=every))
    results.print()
    for line in _cost(explanation):
        results.print(line, soft_wrap=True)


def _print(rows: Table) -> None:
    results.print()
    results.print(rows)


# ---------------------------------------------------------------------- headline


def _headlines(explanation: Explanation) -> list[str]:
    states = Counter(group.state for group in explanation.groups)
    by_state = ", ".join(f"{number} {state}" for state, number in states.most_common())
    settings = ", ".join(f"{name} {_setting(v)}" for name, v in explanation.settings.items())
    lines = [
        f"{Path(explanation.program).name} ({explanation.pid}), heapfit {explanation.version}",
        counted(len(explanation.groups), "group") + (f": {by_state}" if states else ""),
        f"settings: {settings}",
    ]
    return [*lines, *_thresholds(explanation)]


def _setting(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _thresholds(explanation: Explanation) -> list[str]:
    """Say how many groups each threshold left out, and of how many objects."""
    left_out: dict[str, list[Group]] = {}
    for group in explanation.groups:
        if group.threshold:
            left_out.setdefault(group.threshold, []).append(group)
    return [
        f"left out by {name} ({explanation.settings.get(name, '?')}): "
        f"{counted(len(groups), 'group')}, {counted(sum(g.objects for g in groups), 'object')}"
        for name, groups in left_out.items()
    ]


# ------------------------------------------------------------------------ groups


def _ordered(explanation: Explanation) -> list[Group]:
    """Return the groups, those with most objects first, merged ones behind what they are in."""
    objects: Counter[int] = Counter()
    for group in explanation.groups:
        objects[explanation.root(group).id] += group.objects

    def place(group: Group) -> tuple[int, int, bool, int]:
        root = explanation.root(group)
        return -objects[root.id], root.id, group.id != root.id, -group.objects

    return sorted(explanation.groups, key=place)


def _groups(groups: Sequence[Group], frames: Mapping[int, Sequence[Frame]]) -> Table:
    rows = table("group", "seen", "bytes each", "placed", "allocated by, and why it is there")
    for column in rows.columns[:3]:
        column.justify = "right"
        column.no_wrap = True
    for group in groups:
        rows.add_row(
            str(group.id),
            count(group.objects),
            _sizes(group),
            Text(_place(group)),
            _why(group, frames.get(group.id, ())),
        )
    return rows


def _sizes(group: Group) -> str:
    """Return the size of the group's objects, or the range of their sizes."""
    sizes = sorted(each.size for each in group.sizes)
    if not sizes:
        return ""
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}\N{EN DASH}{sizes[-1]}"


def _place(group: Group) -> str:
    if group.state == "merged":
        return f"with group {group.merged_into}"
    if group.pool is not None:
        return f"{'mixed pool' if group.state == 'mixed' else 'pool'} {group.pool}"
    return group.state


def _why(group: Group, frames: Sequence[Frame]) -> Text:
    """The chain, a line for each call; the reason; what was seen of the objects."""
    lines = [f"{_CALLED_BY if at else ''}{frame.where}" for at, frame in enumerate(frames)]
    if group.length > len(frames):
        lines.append(f"{_CALLED_BY}{group.length - len(frames)} more")
    if not group.complete:
        lines.append("(its callers could not be determined)")
    said = Text("\n".join(lines))
    merged = f"merged ({group.merged_by})" if group.merged_by else ""
    why = ": ".join(filter(None, [merged, group.reason]))
    for line in filter(None, [why, _signals(group)]):
        said.append(f"\n{line}", style="dim")
    return said


def _signals(group: Group) -> str:
    """What was seen of the objects; nothing of a group that was placed without a look at it."""
    signals = {
        "linked to one group": group.linked_share,
        "of the neighbours its own": group.class_share,
        "freed": group.freed_share,
    }
    if not any(signals.values()):
        return ""
    return ", ".join(f"{share(part)} {what}" for what, part in signals.items() if part is not None)


# ----------------------------------------------------------------- pools, edges, cost


def _pools(explanation: Explanation) -> Table:
    numbers = ("pool", "block", "objects", "live", "memory")
    rows = table("pool", "kind", *numbers[1:], "groups", right=numbers)
    for pool in explanation.pools:
        members = [g.id for g in explanation.groups if explanation.root(g).pool == pool.id]
        rows.add_row(
            str(pool.id),
            pool.kind,
            str(pool.block_size or ""),
            count(pool.objects),
            size(pool.bytes),
            size(pool.footprint),
            ", ".join(map(str, members)),
        )
    return rows


def _edges(explanation: Explanation, *, every: bool) -> Table:
    columns = ("group", "points at offset", "to group", "links", "to the next object")
    rows = table(*columns, right=columns)
    every_edge = [*explanation.edges, *explanation.siblings]
    edges = sorted(every_edge, key=lambda edge: -edge.count)
    for edge in edges if every else edges[:_MOST_EDGES]:
        adjacent = share(edge.adjacent / edge.count) if edge.count else ""
        offset = "as siblings" if edge.offset is None else str(edge.offset)
        ends = str(edge.from_group), offset, str(edge.to_group)
        rows.add_row(*ends, count(edge.count), adjacent)
    return rows


def _cost(explanation: Explanation) -> list[str]:
    """Say what the analysis took, and what it could not understand."""
    chains = explanation.counter("chains")
    length, slow = (explanation.counter(name) for name in ("chain_length_mean", "allocations_slow"))
    lines = [
        f"{count(chains)} chains of {length:.2f} calls on average; "
        f"{count(slow)} allocations looked their chain up"
    ]
    if chains:
        decoded = explanation.counter("instructions_decoded") / chains
        took_us = explanation.counter("analysis_ns_median") / 1000
        lines.append(
            f"a new chain: {count(decoded)} instructions decoded, {took_us:.1f} µs (median)"
        )
    not_understood = [f"{name} {count(n)}" for name, n in explanation.fallbacks().items()]
    if not_understood:
        lines.append(f"left to the ordinary heap: {', '.join(not_understood)}")
    return lines
