"""Documents of several formats, written and read back through Python's C libraries."""

import bz2
import hashlib
import json
import lzma
import pickle
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
import zlib


def entries(count: int) -> list[dict[str, object]]:
    return [
        {
            "id": number,
            "name": f"entry {number * 7919 % count:05d}",
            "tags": ["t" * (number % 40)] * 3,
        }
        for number in range(count)
    ]


def as_xml(rows: list[dict[str, object]]) -> str:
    root = ElementTree.Element("rows")
    for row in rows:
        element = ElementTree.SubElement(root, "row", id=str(row["id"]))
        element.text = str(row["name"])
    return ElementTree.tostring(root, encoding="unicode")


def through_a_database(rows: list[dict[str, object]]) -> list[tuple[int, int]]:
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE entry (id INTEGER, name TEXT)")
        pairs = [(row["id"], row["name"]) for row in rows]
        database.executemany("INSERT INTO entry VALUES (?, ?)", pairs)
        query = "SELECT length(name) + id % 10, count(*) FROM entry GROUP BY 1 ORDER BY 1"
        return database.execute(query).fetchall()


rows = entries(8000)
text = json.dumps(rows)
assert json.loads(text) == rows
assert pickle.loads(pickle.dumps(rows)) == rows
print("json", hashlib.sha256(text.encode()).hexdigest())

markup = as_xml(rows)
assert len(ElementTree.fromstring(markup)) == len(rows)
print("xml", hashlib.sha256(markup.encode()).hexdigest())

for codec in (zlib, bz2, lzma):
    packed = codec.compress(text.encode())
    assert codec.decompress(packed) == text.encode()
    print(codec.__name__, hashlib.sha256(packed).hexdigest())

words = re.findall(r"(?P<word>[a-z]+) (?P<number>\d+)", text)
print("words", len(words), hashlib.sha256(repr(sorted(words)).encode()).hexdigest())
print("database", through_a_database(rows)[:5])
