"""The PHP applications that are our own, and the blog: what they store, refuse, and show again.

What all PHP applications have in common is tested in test_php_workloads.py.
"""

from __future__ import annotations

import http.client
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from php_stack import FOLDER, Served, figures, serving

pytestmark = pytest.mark.full

TELEPHONE = "php-twig"
SHOP = "php-shop"
BLOG = "php-wordpress"
ANSWER_TIMEOUT_S = 30


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def ask(
    served: Served, path: str, post: dict[str, str] | None = None, visitor: str = "somebody"
) -> tuple[int, str]:
    """Status and text of the answer; redirections are not followed."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=ANSWER_TIMEOUT_S)
    headers = {"Cookie": f"PHPSESSID={visitor}"}
    if post is None:
        connection.request("GET", path, headers=headers)
    else:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request("POST", path, urlencode(post), headers)
    with closing(connection):
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.full
def test_what_is_not_stored_is_noticed(prepared: Any, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(prepared(TELEPHONE), data)
    pages = data / "pages.json"
    pages.write_text(pages.read_text().replace('value=\\"+44 1999 ', 'value=\\"+44 1998 '))
    with serving(FOLDER / TELEPHONE, data, tmp_path / "scratch") as served:
        done = served.drive(requests=9)
    assert done.returncode == 1
    assert "what was submitted is not at /entries/" in done.stderr


# ------------------------------------------------------------------ telephone directory


@pytest.mark.full
def test_every_update_of_the_directory_is_stored(prepared: Any, tmp_path: Path) -> None:
    data = prepared(TELEPHONE)
    with serving(FOLDER / TELEPHONE, data, tmp_path / "scratch") as served:
        done = served.drive(requests=90)
    assert done.returncode == 0, done.stderr
    columns = "SELECT id, name, number, note, revision FROM entries ORDER BY id"
    before = rows(data / "directory.sqlite", columns)
    after = rows(tmp_path / "scratch" / "directory.sqlite", columns)
    for old, new in zip(before, after, strict=True):
        number, _, old_number, _, _ = old
        updated = (f"+44 1999 {number:06d}", f"The number was {old_number} before.")
        assert new[:2] == old[:2]
        assert new[2:4] == (updated if new[4] else old[2:4])
    # Of three requests one is an update; those of the warm-up are there too.
    assert figures(done.stdout)["edits"] >= 28
    assert sum(new[4] for new in after) >= figures(done.stdout)["edits"]


@pytest.mark.full
def test_the_directory_refuses_what_makes_no_sense(prepared: Any, tmp_path: Path) -> None:
    data = prepared(TELEPHONE)
    with serving(FOLDER / TELEPHONE, data, tmp_path / "scratch") as served:
        status, text = ask(served, "/entries/7", {"number": "call me", "note": ""})
        assert (status, "not a telephone number: call me" in text) == (400, True)
        assert ask(served, "/entries/700")[0] == 404
        assert ask(served, "/entries/700", {"number": "12345", "note": ""})[0] == 404
        assert ask(served, "/entries/7/more")[0] == 404
        assert ask(served, "/", {})[0] == 405
        status, _ = ask(served, "/entries/7", {"number": "0123 456", "note": "<b>new</b>"})
        assert status == 303
        assert "&lt;b&gt;new&lt;/b&gt;</textarea>" in ask(served, "/entries/7")[1]
        assert "Updated 1 time<" in ask(served, "/entries/7")[1]


# ---------------------------------------------------------------------------------- shop


@pytest.mark.full
def test_every_order_of_the_shop_adds_up(prepared: Any, tmp_path: Path) -> None:
    data = prepared(SHOP)
    with serving(FOLDER / SHOP, data, tmp_path / "scratch", workers=4) as served:
        done = served.drive(requests=400, workers=4)
    assert done.returncode == 0, done.stderr
    database = tmp_path / "scratch" / "shop.sqlite"
    lines = "SELECT order_id, SUM(count * cents) FROM order_lines GROUP BY order_id"
    orders = rows(database, "SELECT id, cents FROM orders ORDER BY id")
    assert orders == rows(database, lines)
    # A visit takes a dozen requests, of which one is an order.
    assert len(orders) >= 400 // 15
    sold = dict(rows(database, "SELECT product, SUM(count) FROM order_lines GROUP BY product"))
    before = rows(data / "shop.sqlite", "SELECT id, stock FROM products")
    after = dict(rows(database, "SELECT id, stock FROM products"))
    assert {product: stock - sold.get(product, 0) for product, stock in before} == after


def test_each_visitor_of_the_shop_has_a_cart(prepared: Any, tmp_path: Path) -> None:
    with serving(FOLDER / SHOP, prepared(SHOP), tmp_path / "scratch") as served:
        assert ask(served, "/cart.php", {"id": "3", "count": "2"}, "ana")[0] == 303
        assert ask(served, "/cart.php", {"id": "3", "count": "1"}, "ana")[0] == 303
        assert "<td>3</td>" in ask(served, "/cart.php", visitor="ana")[1]
        assert "It is empty." in ask(served, "/cart.php", visitor="bo")[1]
        name = "<Ana> & sons"
        assert ask(served, "/checkout.php", {"customer": name}, "ana")[0] == 303
        assert "It is empty." in ask(served, "/cart.php", visitor="ana")[1]
        assert "<td>3</td>" in ask(served, "/checkout.php", visitor="ana")[1]
        status, text = ask(served, f"/orders.php?{urlencode({'customer': name})}")
        assert status == 200
        assert "<h1>Orders of &lt;Ana&gt; &amp; sons</h1>" in text


def test_the_shop_refuses_what_makes_no_sense(prepared: Any, tmp_path: Path) -> None:
    with serving(FOLDER / SHOP, prepared(SHOP), tmp_path / "scratch") as served:
        assert ask(served, "/product.php?id=100000")[0] == 404
        assert ask(served, "/product.php?id=x")[0] == 404
        assert ask(served, "/index.php?category=99")[0] == 404
        assert ask(served, "/search.php?words=+")[0] == 400
        assert "<p>0 products</p>" in ask(served, "/search.php?words=%25")[1]
        assert ask(served, "/cart.php", {"id": "3", "count": "100"})[0] == 400
        assert ask(served, "/checkout.php", {"customer": "nobody"})[0] == 400
        assert ask(served, "/orders.php?customer=nobody")[0] == 404


# ---------------------------------------------------------------------------------- blog


def posts(data: Path) -> list[str]:
    """The paths of the blog's posts, which alone are checked by their title."""
    pages = json.loads((data / "pages.json").read_text())
    return [page["path"] for page in pages if page["contains"].endswith("</h1>")]


@pytest.mark.full
def test_the_blog_is_the_same_in_every_trial(prepared: Any, tmp_path: Path) -> None:
    data = prepared(BLOG)
    pages = {page["path"] for page in json.loads((data / "pages.json").read_text())}
    seen = []
    for mode in "zend", "malloc":
        with serving(FOLDER / BLOG, data, tmp_path / mode, mode=mode) as served:
            assert set(served.processes()) == {"php-fpm8.2", "nginx", "mariadbd"}
            seen.append({path: ask(served, path) for path in sorted(pages)})
    assert seen[0] == seen[1]
    assert {status for status, _ in seen[0].values()} == {200}
    # Readers say something to nearly every post, and some of them to each other.
    texts = [text for _, text in seen[0].values()]
    assert sum('<li id="comment-' in text for text in texts) > len(posts(data)) // 2
    assert any("depth-2" in text for text in texts)
