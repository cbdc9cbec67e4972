"""A tree of functions by who calls whom, as the columns that a page draws as an icicle."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import Field

from heapfit.records import Record


class Measure(Record):
    """What each node has itself, its callees' not included: the widths of one icicle."""

    title: str
    bytes: list[int]
    blocks: list[int]


class Tree(Record):
    """Nodes by number: 0 is the root of all, and a node comes after its parent."""

    names: list[str] = Field(default_factory=list)
    parents: list[int] = Field(default_factory=list)  # the root is its own
    labels: list[int] = Field(default_factory=list)  # places in `names`
    measures: list[Measure] = Field(default_factory=list)

    def __bool__(self) -> bool:
        return len(self.parents) > 1


def grow(stacks: Mapping[tuple[str, ...], Sequence[int]], titles: Iterable[str]) -> Tree:
    """Return the tree of stacks, outermost function first.

    A row has blocks and bytes for each of the titles, in turns.
    """
    names: dict[str, int] = {"all": 0}
    nodes: dict[tuple[int, int], int] = {}  # by parent and label
    parents, labels = [0], [0]
    own: dict[int, Sequence[int]] = {}
    for stack, row in sorted(stacks.items()):
        node = 0
        for name in stack:
            label = names.setdefault(name, len(names))
            known = nodes.setdefault((node, label), len(parents))
            if known == len(parents):
                parents.append(node)
                labels.append(label)
            node = known
        own[node] = row
    nothing = [0] * max(map(len, own.values()), default=0)
    rows = [own.get(node, nothing) for node in range(len(parents))]
    return Tree(
        names=list(names),
        parents=parents,
        labels=labels,
        measures=[
            Measure(
                title=title,
                blocks=[row[2 * place] for row in rows],
                bytes=[row[2 * place + 1] for row in rows],
            )
            for place, title in enumerate(titles)
            if nothing
        ],
    )
