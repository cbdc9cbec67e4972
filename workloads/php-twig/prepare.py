"""Makes the data of `php-twig`: the telephone directory's database, and the compiled application.

The entries are made with a seed, so they are the same every time. Compiled are the container, the
routes and the templates, as when an application is deployed.

Usage: prepare.py DATA_FOLDER
"""

from __future__ import annotations

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
    "Felipe Greta Haruki Helmut Ingrid Isolde Jadwiga Jamal Kaito Katrin Leïla Lorenzo Magda Miguel "
    "Naoko Noé Olga Pavel Priya Quentin Rasmus Rosa Søren Tamar Uwe Vera Wanda Xavier Yusuf Zoë"
).split()
LAST_NAMES = (
    "Abramov Aoki Bauer Bianchi Castillo Dąbrowski Deniz Eriksen Fischer Fontaine Gruber Haddad "
    "Hughes Ivanova Jansen Johansson Kaya Kowalski Laurent Lindqvist Marín Mendes Müller Nakamura "
    "Novák O'Brien Okafor Patel Quispe Rossi Schäfer Silva Tanaka Ulrich Varga Weber Yılmaz Zieliński"
).split()
STREETS = "Birch Canal Castle Cedar Church Garden Harbour High Kiln Meadow Mill Station".split()
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


def entries() -> Iterator[Row]:
    """Name, street, town, number and note of each entry."""
    chance = random.Random(SEED)
    for _ in range(ENTRIES):
        town, code = chance.choice(sorted(TOWNS.items()))
        yield (
            f"{chance.choice(LAST_NAMES)}, {chance.choice(FIRST_NAMES)}",
            f"{chance.randint(1, 180)} {chance.choice(STREETS)} Street",
            town,
            f"+44 {code} {chance.randint(100_000, 999_999)}",
            chance.choice(NOTES) if chance.random() < NOTED else "",
        )


def make_database(path: Path) -> None:
    """Write the directory's database to `path`."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    columns = "name, street, town, number, note"
    database.executemany(f"INSERT INTO entries ({columns}) VALUES (?, ?, ?, ?, ?)", entries())
    database.commit()
    database.close()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    make_database(folder / "directory.sqlite")
    compiled = folder / "compiled"
    compiled.mkdir()
    command = ["php8.2", str(HERE / "application" / "compile.php"), str(compiled)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"prepare.py: cannot compile the application: {done.stderr or done.stdout}")


if __name__ == "__main__":
    main()
