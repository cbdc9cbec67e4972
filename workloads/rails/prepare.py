"""Makes the database of the telephone directory: 100 people with invented names and numbers.

Deterministic. The schema is what a Rails migration would make, so that the application finds
nothing unusual in it.

Usage: prepare.py FOLDER     writes FOLDER/directory.sqlite3
"""

from __future__ import annotations

import random
import sqlite3
import sys
from pathlib import Path

PEOPLE = 100
SEED = 44
CREATED = "2020-01-01 00:00:00.000000"

# fmt: off
FIRST_NAMES = [
    "Ada", "Alan", "Barbara", "Claude", "Dana", "Donald", "Edsger", "Edith", "Frances", "Grace",
    "Hedy", "Ivan", "Jean", "John", "Karen", "Ken", "Leslie", "Margaret", "Niklaus", "Radia",
]
LAST_NAMES = [
    "Abbott", "Brandt", "Castillo", "Dijkman", "Eriksson", "Fischer", "Gruber", "Halvorsen",
    "Ivanova", "Jansen", "Keller", "Lindqvist", "Moreau", "Novak", "O'Brien", "Petrov", "Quist",
    "Rossi", "Schröder", "Tanaka", "Urquhart", "Vasquez", "Weiß", "Young",
]
TOWNS = [
    "Aarhus", "Bergen", "Como", "Dover", "Évora", "Faro", "Ghent", "Huelva", "Izmir", "Jena",
    "Kraków", "Lund",
]
# fmt: on

SCHEMA = """
CREATE TABLE people (
  id integer NOT NULL PRIMARY KEY AUTOINCREMENT,
  name varchar NOT NULL,
  phone varchar NOT NULL,
  email varchar NOT NULL,
  town varchar NOT NULL,
  created_at datetime(6) NOT NULL,
  updated_at datetime(6) NOT NULL
);
CREATE INDEX index_people_on_name ON people (name);
"""


def people() -> list[tuple[str, str, str, str, str, str]]:
    choose = random.Random(SEED)
    rows = []
    for number in range(1, PEOPLE + 1):
        name = f"{choose.choice(FIRST_NAMES)} {choose.choice(LAST_NAMES)}"
        phone = f"+45 {choose.randrange(1000, 10_000)} {choose.randrange(1000, 10_000)}"
        email = f"person{number}@directory.example"
        rows.append((name, phone, email, choose.choice(TOWNS), CREATED, CREATED))
    return rows


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    database = sqlite3.connect(Path(sys.argv[1]) / "directory.sqlite3")
    # Readers do not wait for a writer then; the file remembers it.
    database.execute("PRAGMA journal_mode = WAL")
    database.executescript(SCHEMA)
    insert = (
        "INSERT INTO people (name, phone, email, town, created_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?)"
    )
    database.executemany(insert, people())
    database.commit()
    database.close()


if __name__ == "__main__":
    main()
