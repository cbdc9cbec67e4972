"""Makes the data of `php-twig`: the telephone directory's database, and the compiled application.

The entries are made with a seed, so they are the same every time. Compiled are the container, the
routes and the templates, as when an application is deployed. Each visitor reads the table of all
entries, picks one, and updates it.

Usage: prepare.py DATA_FOLDER
"""

from __future__ import annotations

import html
import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENTRIES = 120
SEED = 1
NOTED = 0.4  # the share of entries that have a note

FIRST_NAMES = (
    "Adele Albrecht Amina Anatole Béatrice Bogdan Carmen Chiara Dagmar Dmitri Edith Emeka Fatima "
    "Felipe Greta Haruki Ingrid Isolde Jadwiga Jamal Kaito Katrin Leïla Lorenzo Magda Miguel "
    "Naoko Noé Olga Pavel Priya Quentin Rasmus Rosa Søren Tamar Uwe Vera Wanda Xavier Yusuf Zoë"
)
LAST_NAMES = (
    "Abramov Aoki Bauer Bianchi Castillo Dąbrowski Deniz Eriksen Fischer Fontaine Gruber Haddad "
    "Hughes Ivanova Jansen Johansson Kaya Kowalski Laurent Lindqvist Marín Mendes Müller Nakamura "
    "Novák O'Brien Okafor Patel Quispe Rossi Schäfer Silva Tanaka Ulrich Varga Zieliński"
)
STREETS = "Birch Canal Castle Cedar Church Garden Harbour High Kiln Meadow Mill Station"
TOWNS = {
    "Aldermoor": "1202",
    "Brackwater": "1544",
    "Coldharbour": "1633",
    "Dunmere": "1780",
    "Eastwick & Vale": "1865",
    "Farrowby": "1931",
}
NOTES = (
    "Only in the evening.",
    "Ask for the workshop <not the shop>.",
    "Prefers letters & postcards to calls.",
    'Known as "the clockmaker" to everybody in the street.',
    "Moved in last spring; the old number still rings at the neighbours', who will take a message.",
)

SCHEMA = """
CREATE TABLE entries (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  street TEXT NOT NULL,
  town TEXT NOT NULL,
  number TEXT NOT NULL,
  note TEXT NOT NULL,
  revision INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX entries_by_name ON entries (name, id);
"""

Row = tuple[str, str, str, str, str]

NEW_NUMBER = "+44 1999 {:06d}"


def visit(number: int, row: Row) -> dict[str, object]:
    """What one visitor does, who has a new telephone number for an entry."""
    page = f"/entries/{number}"
    changed = NEW_NUMBER.format(number)
    submit = {
        "form": "entry",
        "textarea": "note",
        "append": "",
        "fields": {"number": changed, "note": f"The number was {row[3]} before."},
        "status": 303,
    }
    name = html.escape(row[0]).replace("&#x27;", "&#039;")  # as PHP spells it
    entry = {"path": page, "contains": f"<title>{name}</title>", "submit": submit}
    stored = {"stored_at": page, "stored": f'value="{changed}"'}
    return {"path": "/", "contains": f"<p>{ENTRIES} entries</p>", "then": [entry | stored]}


def entries() -> Iterator[Row]:
    """Name, street, town, number and note of each entry."""
    chance = random.Random(SEED)
    for _ in range(ENTRIES):
        town, code = chance.choice(sorted(TOWNS.items()))
        yield (
            f"{chance.choice(LAST_NAMES.split())}, {chance.choice(FIRST_NAMES.split())}",
            f"{chance.randint(1, 180)} {chance.choice(STREETS.split())} Street",
            town,
            f"+44 {code} {chance.randint(100_000, 999_999)}",
            chance.choice(NOTES) if chance.random() < NOTED else "",
        )


def make_database(path: Path, rows: list[Row]) -> None:
    """Write the directory's database to `path`; entries are numbered from 1."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    columns = "name, street, town, number, note"
    database.executemany(f"INSERT INTO entries ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
    database.commit()
    database.close()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(entries())
    make_database(folder / "directory.sqlite", rows)
    visits = [visit(number, row) for number, row in enumerate(rows, start=1)]
    (folder / "pages.json").write_text(json.dumps(visits, indent=1) + "\n", encoding="utf-8")
    compiled = folder / "compiled"
    compiled.mkdir()
    command = ["php8.2", str(HERE / "application" / "compile.php"), str(compiled)]
    # Twig names what it compiles by the template's path from the present folder: php-fpm's is this.
    public = HERE / "application" / "public"
    done = subprocess.run(command, cwd=public, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"prepare.py: cannot compile the application: {done.stderr or done.stdout}")


if __name__ == "__main__":
    main()
