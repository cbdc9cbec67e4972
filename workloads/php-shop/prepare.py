"""Makes the data of `php-shop`: the shop's database of categories and products, with a seed.

Usage: prepare.py DATA_FOLDER
"""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

SEED = 1
PRODUCTS_PER_CATEGORY = 60
# More than a trial can sell, so that every order can be served.
STOCK = 1_000_000
PRICE_CENTS = (199, 49_999)
SENTENCES = (2, 6)  # of a description

CATEGORIES = {
    "Clocks & watches": "alarm clock,chronometer,cuckoo clock,hourglass,metronome,wall clock,watch",
    "Garden": "bird table,hose reel,lantern,parasol,rake,shovel,trellis,watering can",
    "Kitchen": "bread knife,casserole,coffee mill,colander,kettle,mixing bowl,teapot,toaster",
    "Music": "accordion,banjo,drum,flute,guitar,harmonica,music stand,ukulele",
    "Office": "desk lamp,filing cabinet,fountain pen,globe,inkwell,notebook,stapler,typewriter",
    "Sport": "bicycle bell,climbing rope,croquet set,fishing rod,racket,rucksack,sledge,tent",
    "Tools": "chisel,file,hammer,plane,pliers,saw,screwdriver,spanner,vice",
    "Toys": "jigsaw,kite,marble run,model ship,puppet,rocking horse,spinning top,train",
}
QUALITIES = "antique compact folding heavy light plain silent small sturdy tall waterproof".split()
MATERIALS = "ash bamboo brass ceramic copper enamel glass iron leather oak steel tin walnut".split()
PHRASES = (
    "Made to be repaired, not replaced.",
    "Comes in a box of recycled card.",
    'Our customers call it "the one that lasts".',
    "Every part can be ordered on its own.",
    "Weighs less than it looks & packs flat.",
    "Tested in our workshop for a year and a day.",
    "Goes well with anything from the same maker.",
    "Wipe with a damp cloth; keep below <40 °C>.",
)

SCHEMA = """
CREATE TABLE categories (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE products (
  id INTEGER PRIMARY KEY,
  category INTEGER NOT NULL REFERENCES categories,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  cents INTEGER NOT NULL,
  stock INTEGER NOT NULL CHECK (stock >= 0)
);
CREATE INDEX products_by_category ON products (category, name, id);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL);
CREATE TABLE order_lines (
  order_id INTEGER NOT NULL REFERENCES orders,
  product INTEGER NOT NULL REFERENCES products,
  count INTEGER NOT NULL,
  cents INTEGER NOT NULL,
  PRIMARY KEY (order_id, product)
) WITHOUT ROWID;
"""

Product = tuple[int, str, str, int, int]


def products() -> Iterator[Product]:
    """Category, name, description, price and stock of each product."""
    chance = random.Random(SEED)
    for category, things in enumerate(CATEGORIES.values(), start=1):
        for _ in range(PRODUCTS_PER_CATEGORY):
            words = [chance.choice(choice) for choice in (QUALITIES, MATERIALS, things.split(","))]
            phrases = chance.sample(PHRASES, chance.randint(*SENTENCES))
            name = " ".join(words).capitalize()
            yield category, name, " ".join(phrases), chance.randint(*PRICE_CENTS), STOCK


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(folder / "shop.sqlite")
    database.executescript(SCHEMA)
    names = [(name,) for name in CATEGORIES]
    database.executemany("INSERT INTO categories (name) VALUES (?)", names)
    columns = "category, name, description, cents, stock"
    database.executemany(f"INSERT INTO products ({columns}) VALUES (?, ?, ?, ?, ?)", products())
    database.commit()
    database.close()


if __name__ == "__main__":
    main()
