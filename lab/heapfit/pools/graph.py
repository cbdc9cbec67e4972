"""The storage shape graph as a picture: groups, what their objects point to, the pools around them.

In the language of Graphviz, which also makes images of it.
"""

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from heapfit.errors import HeapfitError, UsageError
from heapfit.pools.explanation import Edge, Explanation, Group, Pool
from heapfit.symbols import Frame

# More than anybody can follow; the groups with the most objects are kept.
_MOST_GROUPS = 60

_IMAGES = (".svg", ".png", ".pdf")
_SOURCE = ".dot"

_HEAD = """\
digraph pools {
  rankdir=LR;
  node [shape=box, fontname="sans-serif", fontsize=10];
  edge [fontname="sans-serif", fontsize=9];
  graph [fontname="sans-serif", fontsize=10, style=rounded];
"""


def write_graph(path: Path, text: str) -> None:
    """Write the graph `text` to `path`, as an image if that is what the path's suffix says.

    Raises UsageError for another suffix, HeapfitError where Graphviz is missing.
    """
    if path.suffix == _SOURCE:
        path.write_text(text, encoding="utf-8")
        return
    if path.suffix not in _IMAGES:
        known = ", ".join([_SOURCE, *_IMAGES])
        raise UsageError(f"a graph's file ends in {known}, not {path.name!r}")
    try:
        command = ["dot", f"-T{path.suffix[1:]}"]
        made = subprocess.run(command, input=text.encode(), capture_output=True, check=True)
    except FileNotFoundError as error:
        raise HeapfitError(
            "images are drawn by Graphviz; run: sudo apt-get install graphviz, or write a .dot file"
        ) from error
    except subprocess.CalledProcessError as error:
        raise HeapfitError(f"dot failed: {error.stderr.decode(errors='replace')}") from error
    path.write_bytes(made.stdout)


def dot(explanation: Explanation, frames: Mapping[int, Sequence[Frame]]) -> str:
    """Return the graph; `frames` are the chains by the number of the group.

    Shown are groups that point or are pointed to, and those in pools. A dashed arrow leads from a
    merged group to the one that it was merged into.
    """
    groups = _shown(explanation)
    pools = {pool.id: pool for pool in explanation.pools}
    by_pool: dict[int | None, list[Group]] = {}
    for group in groups:
        by_pool.setdefault(explanation.root(group).pool, []).append(group)
    parts = [_HEAD]
    for number, members in by_pool.items():
        nodes = [_node(group, frames.get(group.id, ())) for group in members]
        parts += _cluster(number, pools.get(number), nodes) if number is not None else nodes
    kept = {group.id for group in groups}
    parts += _arrows(explanation.edges, groups, kept)
    return "".join([*parts, "}\n"])


def _shown(explanation: Explanation) -> list[Group]:
    ends = {end for edge in explanation.edges for end in (edge.from_group, edge.to_group)}
    placed = [g for g in explanation.groups if g.id in ends or explanation.root(g).pool is not None]
    return sorted(placed, key=lambda group: -group.objects)[:_MOST_GROUPS]


def _cluster(number: int, pool: Pool | None, nodes: Iterable[str]) -> Iterator[str]:
    size = f": {pool.block_size} bytes" if pool and pool.block_size else ""
    kind = f", {pool.kind}" if pool else ""
    yield f"  subgraph cluster_{number} {{\n  label={_quoted(f'pool {number}{kind}{size}')};\n"
    yield from nodes
    yield "  }\n"


def _node(group: Group, chain: Sequence[Frame]) -> str:
    sizes = "/".join(str(each.size) for each in group.sizes[:3]) or "?"
    lines = [f"group {group.id}", f"{group.objects:,} x {sizes} bytes"]
    lines += [frame.where for frame in chain[:2]]
    style = "" if group.state in ("pooled", "mixed", "merged") else ", style=dotted"
    return f"  g{group.id} [label={_quoted(*lines)}{style}];\n"


def _arrows(edges: Iterable[Edge], groups: Iterable[Group], kept: set[int]) -> Iterator[str]:
    for edge in edges:
        if {edge.from_group, edge.to_group} <= kept:
            label = _quoted(f"+{edge.offset}: {edge.count:,}")
            yield f"  g{edge.from_group} -> g{edge.to_group} [label={label}];\n"
    for group in groups:
        if group.merged_into in kept:
            label = _quoted(group.merged_by or "merged")
            yield f"  g{group.id} -> g{group.merged_into} [label={label}, style=dashed];\n"


def _quoted(*lines: str) -> str:
    """Return text of several lines as Graphviz wants it.

    >>> print(_quoted('a "b"', "c"))
    "a \\"b\\"\\nc"
    """
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
