"""Makes the data of `php-shop`: the shop's database and what its visitors do, with a seed.

Each visitor looks around, searches, reads about products, puts some into the cart and orders them;
another day the visitor comes back to see what has been ordered.

Usage: prepare.py DATA_FOLDER
"""

from __future__ import annotations

import html
import json
import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, quote_plus

SEED = 1
PRODUCTS_PER_CATEGORY = 60
# More than a trial can sell, so that every order can be served.
STOCK = 1_000_000
PRICE_CENTS = (199, 49_999)
SENTENCES = (2, 6)  # of a description

VISITORS = 200
PRODUCTS_PER_VISIT = 3
SEARCHED = 0.4  # the share of products found by a search
MOST_OF_ONE = 4
SEE_OTHER = 303

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
QUALITIES = "antique,compact,folding,heavy,light,plain,silent,small,sturdy,tall,waterproof"
MATERIALS = "ash,bamboo,brass,ceramic,copper,enamel,glass,iron,leather,oak,steel,tin,walnut"
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
CREATE INDEX orders_by_customer ON orders (customer, id);
CREATE TABLE order_lines (
  order_id INTEGER NOT NULL REFERENCES orders,
  product INTEGER NOT NULL REFERENCES products,
  count INTEGER NOT NULL,
  cents INTEGER NOT NULL,
  PRIMARY KEY (order_id, product)
) WITHOUT ROWID;
"""


class Product(NamedTuple):
    """A row of the table `products`; they are numbered from 1."""

    category: int
    name: str
    description: str
    cents: int
    stock: int


def products(chance: random.Random) -> Iterator[Product]:
    """The catalogue, category by category."""
    for category, things in enumerate(CATEGORIES.values(), start=1):
        for _ in range(PRODUCTS_PER_CATEGORY):
            words = [chance.choice(choice.split(",")) for choice in (QUALITIES, MATERIALS, things)]
            phrases = chance.sample(PHRASES, chance.randint(*SENTENCES))
            name = " ".join(words).capitalize()
            yield Product(category, name, " ".join(phrases), chance.randint(*PRICE_CENTS), STOCK)


def visit(visitor: int, catalogue: list[Product], chance: random.Random) -> dict[str, object]:
    """What one visitor does, step by step; each has a session and a name of its own."""
    customer = f"Visitor {visitor}"
    cookie = f"PHPSESSID=visitor{visitor}"
    steps: list[dict[str, object]] = [{"path": "/index.php", "contains": "<h1>The shop</h1>"}]
    for number in chance.sample(range(len(catalogue)), PRODUCTS_PER_VISIT):
        steps += looks(number, catalogue, chance)
    number, bought = number + 1, catalogue[number]  # the last one looked at
    line = f"<tr><td>{bought.name}</td>"
    order = {
        "path": "/checkout.php",
        "contains": "",
        "post": {"customer": customer},
        "stored_at": f"/orders.php?customer={quote(customer)}",
        "stored": line,
        "status": SEE_OTHER,
    }
    count = str(chance.randint(1, MOST_OF_ONE))
    into_cart = {"id": str(number), "count": count}
    steps += [
        {"path": "/cart.php", "contains": "", "post": into_cart, "status": SEE_OTHER},
        {"path": "/cart.php", "contains": line},
        order,
        {"path": "/checkout.php", "contains": line},
        {"path": f"/orders.php?customer={quote(customer)}", "contains": line},
    ]
    first, *then = (step | {"cookie": cookie} for step in steps)
    return first | {"then": then}


def looks(
    number: int, catalogue: list[Product], chance: random.Random
) -> Iterator[dict[str, object]]:
    """Find a product by its category or by a search, and read about it."""
    product = catalogue[number]
    if chance.random() < SEARCHED:
        words = quote_plus(product.name.lower())
        yield {"path": f"/search.php?words={words}", "contains": product.name}
    else:
        names = list(CATEGORIES)
        path = f"/index.php?category={product.category}"
        yield {"path": path, "contains": f"<h1>{html.escape(names[product.category - 1])}</h1>"}
    yield {"path": f"/product.php?id={number + 1}", "contains": f"<h1>{product.name}</h1>"}


def make_database(path: Path, catalogue: list[Product]) -> None:
    """Write the shop's database to `path`."""
    database = sqlite3.connect(path)
    database.executescript(SCHEMA)
    names = [(name,) for name in CATEGORIES]
    database.executemany("INSERT INTO categories (name) VALUES (?)", names)
    columns = ", ".join(Product._fields)
    database.executemany(f"INSERT INTO products ({columns}) VALUES (?, ?, ?, ?, ?)", catalogue)
    database.commit()
    database.close()


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    (folder / "sessions").mkdir(parents=True)
    chance = random.Random(SEED)
    catalogue = list(products(chance))
    make_database(folder / "shop.sqlite", catalogue)
    visits = [visit(number, catalogue, chance) for number in range(1, VISITORS + 1)]
    (folder / "pages.json").write_text(json.dumps(visits, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
