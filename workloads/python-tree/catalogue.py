"""Python's part in `python-tree`: names of the world's languages and regions, as objects.

Reads the JSON files of iso-codes, keeps every version of a balanced tree while it grows and
shrinks (so that nodes are born and die by path copying), indexes the names by their letters in
dictionaries of sets, and rewrites the whole as text. Run it with PYTHONMALLOC=malloc: then every
small object is a call of malloc. Prints what it found and a digest; exits 1 if it contradicts
itself.

Usage: catalogue.py FOLDER_OF_JSON_FILES
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

# Each seed is one order of insertions and removals, from an empty tree.
SEEDS = (11, 23, 37, 41)
# The last versions of the tree that stay alive, as a database keeps its latest snapshots.
SNAPSHOTS_KEPT = 16
LETTERS_PER_KEY = 3
REWRITES = 3


class Record:
    """One language or region."""

    __slots__ = ("code", "fields", "name")

    def __init__(self, code: str, name: str, fields: dict[str, str]) -> None:
        self.code = code
        self.name = name
        self.fields = fields


class Node:
    """A node of a persistent AVL tree: never changed once made, shared between versions."""

    __slots__ = ("height", "key", "left", "record", "right", "size")

    def __init__(self, key: str, record: Record, left: Node | None, right: Node | None) -> None:
        self.key = key
        self.record = record
        self.left = left
        self.right = right
        self.height = 1 + max(height(left), height(right))
        self.size = 1 + size(left) + size(right)


def height(node: Node | None) -> int:
    return node.height if node else 0


def size(node: Node | None) -> int:
    return node.size if node else 0


def balanced(key: str, record: Record, left: Node | None, right: Node | None) -> Node:
    """A node over two subtrees whose heights differ by two at most, rotated into balance."""
    difference = height(left) - height(right)
    if difference > 1:
        assert left is not None
        if height(left.left) < height(left.right):
            middle = left.right
            assert middle is not None
            return Node(
                middle.key,
                middle.record,
                Node(left.key, left.record, left.left, middle.left),
                Node(key, record, middle.right, right),
            )
        return Node(left.key, left.record, left.left, Node(key, record, left.right, right))
    if difference < -1:
        assert right is not None
        if height(right.right) < height(right.left):
            middle = right.left
            assert middle is not None
            return Node(
                middle.key,
                middle.record,
                Node(key, record, left, middle.left),
                Node(right.key, right.record, middle.right, right.right),
            )
        return Node(right.key, right.record, Node(key, record, left, right.left), right.right)
    return Node(key, record, left, right)


def insert(node: Node | None, key: str, record: Record) -> Node:
    if node is None:
        return Node(key, record, None, None)
    if key < node.key:
        return balanced(node.key, node.record, insert(node.left, key, record), node.right)
    if key > node.key:
        return balanced(node.key, node.record, node.left, insert(node.right, key, record))
    return Node(key, record, node.left, node.right)


def smallest(node: Node) -> Node:
    while node.left:
        node = node.left
    return node


def remove(node: Node | None, key: str) -> Node | None:
    if node is None:
        return None
    if key < node.key:
        return balanced(node.key, node.record, remove(node.left, key), node.right)
    if key > node.key:
        return balanced(node.key, node.record, node.left, remove(node.right, key))
    if node.left is None or node.right is None:
        return node.left or node.right
    heir = smallest(node.right)
    return balanced(heir.key, heir.record, node.left, remove(node.right, heir.key))


def in_order(node: Node | None) -> Iterator[Node]:
    if node:
        yield from in_order(node.left)
        yield node
        yield from in_order(node.right)


def load(folder: Path) -> list[Record]:
    """Every entry of the languages (ISO 639-3) and the regions (ISO 3166-2)."""
    records = []
    for file, key in (("iso_639-3", "alpha_3"), ("iso_3166-2", "code")):
        document = json.loads((folder / f"{file}.json").read_text(encoding="utf-8"))
        (entries,) = document.values()
        records += [Record(entry[key], entry["name"], entry) for entry in entries]
    return records


def grow_and_shrink(records: list[Record], seed: int) -> tuple[Node, set[str]]:
    """Inserts all records in random order and removes every third as it goes."""
    chance = random.Random(seed)
    order = records[:]
    chance.shuffle(order)
    tree: Node | None = None
    present: set[str] = set()
    snapshots: list[Node | None] = [None] * SNAPSHOTS_KEPT
    for count, record in enumerate(order):
        key = f"{record.name.casefold()}\t{record.code}"
        tree = insert(tree, key, record)
        present.add(key)
        if count % 3 == 2:
            victim = order[chance.randrange(count)]
            victim_key = f"{victim.name.casefold()}\t{victim.code}"
            tree = remove(tree, victim_key)
            present.discard(victim_key)
        snapshots[count % SNAPSHOTS_KEPT] = tree
    assert tree is not None
    return tree, present


def letter_index(tree: Node) -> dict[str, set[str]]:
    """Which codes' names hold which run of letters."""
    index: dict[str, set[str]] = {}
    for node in in_order(tree):
        name = f" {node.record.name.casefold()} "
        for start in range(len(name) - LETTERS_PER_KEY + 1):
            index.setdefault(name[start : start + LETTERS_PER_KEY], set()).add(node.record.code)
    return index


def rewritten(tree: Node) -> str:
    """The tree's records as JSON text, written and read back several times over."""
    text = json.dumps([node.record.fields for node in in_order(tree)])
    for _ in range(REWRITES):
        entries = json.loads(text)
        text = json.dumps([dict(sorted(entry.items())) for entry in entries], ensure_ascii=False)
    return text


def build_once(records: list[Record], seed: int) -> tuple[str, bool]:
    """Builds and drops everything once; returns what was found and whether it fits together."""
    tree, present = grow_and_shrink(records, seed)
    index = letter_index(tree)
    text = rewritten(tree)

    keys = [node.key for node in in_order(tree)]
    consistent = keys == sorted(present) and len(json.loads(text)) == tree.size
    commonest = min(index, key=lambda letters: (-len(index[letters]), letters))
    digest = hashlib.sha256("\n".join([*keys, *sorted(index), text]).encode()).hexdigest()
    found = (
        f"{tree.size} of {len(records)} records in a tree of height {tree.height}, "
        f"{commonest!r} in {len(index[commonest])} names, digest {digest}"
    )
    return found, consistent


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    records = load(Path(sys.argv[1]))
    verdicts = []
    for seed in SEEDS:
        found, consistent = build_once(records, seed)
        print(found)
        verdicts.append(consistent)
    print("catalogue consistent" if all(verdicts) else "catalogue INCONSISTENT")
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
