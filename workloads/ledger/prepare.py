"""Makes the journal of `ledger`: years of a small company's bookings, by a fixed seed.

Customers pay invoices in several currencies, wages and rents fall due, stock is bought in lots and
sold, and some bookings carry notes and tags. Every booking balances, and accounts are three levels
deep. Needs Python's standard library only; same input, same output.

Usage: prepare.py DATA_FOLDER
"""

import random
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

SEED = 20240229
BOOKINGS = 150000
CUSTOMERS = 400
PRODUCTS = 40
FIRST_DAY = date(2004, 1, 1)
DAYS = 20 * 365

CURRENCIES = ("EUR", "EUR", "EUR", "USD", "GBP")
COSTS = ("Wages", "Rent", "Travel", "Power", "Post", "Software", "Repairs", "Insurance")
PLACES = ("Berlin", "Lyon", "Turin", "Leeds", "Boston")
WORDS = ("order", "late", "paid", "return", "discount", "export", "sample", "urgent", "monthly")


def amount(cents: int, currency: str) -> str:
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02} {currency}"


def posting(account: str, value: str) -> str:
    return f"    {account:<44}  {value}".rstrip()


def invoice(chance: random.Random) -> tuple[str, list[str]]:
    customer = f"Customer {chance.randrange(CUSTOMERS):04}"
    currency = chance.choice(CURRENCIES)
    lines, total = [], 0
    for _ in range(chance.randint(1, 4)):
        cents = chance.randint(500, 90000)
        total += cents
        product = f"Product {chance.randrange(PRODUCTS):02}"
        lines.append(posting(f"Income:{chance.choice(PLACES)}:{product}", amount(-cents, currency)))
    tax = total * 19 // 100
    lines.append(posting("Liabilities:Taxes:Sales", amount(-tax, currency)))
    lines.append(posting(f"Assets:Receivable:{customer}", amount(total + tax, currency)))
    return customer, lines


def payment(chance: random.Random) -> tuple[str, list[str]]:
    customer = f"Customer {chance.randrange(CUSTOMERS):04}"
    currency = chance.choice(CURRENCIES)
    cents = chance.randint(500, 200000)
    return customer, [
        posting(f"Assets:Bank:{chance.choice(PLACES)}", amount(cents, currency)),
        posting(f"Assets:Receivable:{customer}", ""),
    ]


def cost(chance: random.Random) -> tuple[str, list[str]]:
    kind, place = chance.choice(COSTS), chance.choice(PLACES)
    cents = chance.randint(1000, 300000)
    return f"{kind} in {place}", [
        posting(f"Expenses:{kind}:{place}", amount(cents, "EUR")),
        posting(f"Assets:Bank:{place}", amount(-cents, "EUR")),
    ]


def purchase(chance: random.Random) -> tuple[str, list[str]]:
    place = chance.choice(PLACES)
    pieces, price = chance.randint(1, 500), chance.randint(10, 9000)
    product = f"P{chr(65 + chance.randrange(26))}{chr(65 + chance.randrange(26))}"
    return f"Supplier {chance.randrange(60):02}", [
        posting(f"Assets:Stock:{place}", f"{pieces} {product} @ {amount(price, 'EUR')}"),
        posting(f"Assets:Bank:{place}", amount(-pieces * price, "EUR")),
    ]


def bookings() -> Iterator[str]:
    chance = random.Random(SEED)
    kinds = (invoice, invoice, invoice, payment, payment, cost, purchase)
    days = sorted(chance.randrange(DAYS) for _ in range(BOOKINGS))
    for number, day in enumerate(days):
        payee, lines = chance.choice(kinds)(chance)
        state = chance.choice(("* ", "* ", "! ", ""))
        yield f"{(FIRST_DAY + timedelta(day)).isoformat()} {state}({number:06}) {payee}"
        if chance.randrange(4) == 0:
            yield f"    ; {' '.join(chance.choices(WORDS, k=chance.randint(2, 9)))}"
        if chance.randrange(6) == 0:
            yield f"    ; Project: {chance.choice(WORDS)}-{chance.randrange(30):02}"
        yield from lines
        yield ""


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "company.ledger").write_text("\n".join(bookings()) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
