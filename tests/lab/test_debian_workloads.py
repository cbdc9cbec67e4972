"""The workloads on Debian's programs: the inputs made for them, and what they stand for."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "workloads"


def prepared(name: str, folder: Path) -> Path:
    """Runs the preparation of a workload, which needs no more than Python, into `folder`."""
    script = WORKLOADS / name / "prepare.py"
    subprocess.run([sys.executable, script, folder], check=True)
    return folder


# ------------------------------------------------------------- what they stand for


def stand_ins() -> list[tuple[str, str]]:
    """SPEC program and workload, as the README has them."""
    readme = (WORKLOADS / "README.md").read_text()
    return re.findall(r"^\| (\d{3}\.\w+) \| `([\w-]+)` \|", readme, re.MULTILINE)


def test_eight_programs_of_spec_have_a_stand_in() -> None:
    assert len(stand_ins()) == 8


@pytest.mark.parametrize(("spec", "workload"), stand_ins())
def test_a_stand_in_says_for_what_it_stands(spec: str, workload: str) -> None:
    text = (WORKLOADS / workload / "workload.toml").read_text()
    head = text.partition("\n\n")[0]
    assert f"# Stands for {spec}" in head


def test_what_takes_gigabytes_is_not_installed_for_the_tests() -> None:
    listed = subprocess.run(
        [ROOT / "scripts" / "test-packages"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "graywolf" in listed
    assert "libdeal.ii-dev" not in listed


# ------------------------------------------------------------- a journal of bookings

BOOKING = re.compile(r"\d{4}-\d\d-\d\d ([*!] )?\(\d{6}\) [A-Z][\w ]+")
POSTING = re.compile(r"    ([A-Z][\w :]+?)(?: {2,}(-?[\d.]+) ([A-Z]+)(?: @ ([\d.]+) ([A-Z]+))?)?")


@pytest.mark.full
def test_every_booking_balances(tmp_path: Path) -> None:
    journal = (prepared("ledger", tmp_path) / "company.ledger").read_text()
    bookings = journal.strip().split("\n\n")
    assert len(bookings) > 10000
    for booking in bookings:
        check_booking(booking)


def check_booking(booking: str) -> None:
    first, *lines = booking.strip().split("\n")
    assert BOOKING.fullmatch(first), booking
    rest: Counter[str] = Counter()
    left_out = 0
    for line in lines:
        if line.startswith("    ;"):
            continue
        posting = POSTING.fullmatch(line)
        assert posting, booking
        _, amount, currency, price, price_currency = posting.groups()
        if amount is None:
            left_out += 1
        else:
            worth = int(Decimal(amount) * Decimal(price or 1) * 100)
            rest[price_currency or currency] += worth
    assert left_out == 1 or not any(rest.values()), booking


# ------------------------------------------------------------- a circuit


def test_each_net_of_the_circuit_has_one_driver_and_a_reader(tmp_path: Path) -> None:
    text = (prepared("graywolf", tmp_path) / "circuit.cel").read_text()
    cells, _, pads = text.partition("\npad ")
    pins = re.findall(r"^pin name (\w+) signal (\w+) ", cells, re.MULTILINE)
    pad_nets = re.findall(r"^pin name (\w+) signal \1 ", pads, re.MULTILINE)
    driven = Counter(net for pin, net in pins if pin in ("Y", "Q"))
    read = Counter(net for pin, net in pins if pin not in ("Y", "Q") and net != "TW_PASS_THRU")
    inputs = {net for net in pad_nets if net not in driven}
    assert set(driven.values()) == {1}
    assert len(set(pad_nets)) == len(pad_nets)
    assert set(read) <= set(driven) | inputs
    assert set(driven) <= set(read) | set(pad_nets)
    assert {"clock", "reset"} <= inputs


# ------------------------------------------------------------- sentences


def test_the_sentences_are_plain_and_none_stands_twice(tmp_path: Path) -> None:
    lines = (prepared("link-grammar", tmp_path) / "sentences.txt").read_text().splitlines()
    assert len(set(lines)) == len(lines) > 500
    assert all(re.fullmatch(r"[A-Z][A-Za-z', ]+[.?]", line) for line in lines)
    assert all(6 <= len(line.split()) <= 16 for line in lines)


# ------------------------------------------------------------- a larger document


def test_a_document_of_more_copies_has_each_type_once(tmp_path: Path) -> None:
    script = WORKLOADS / "xml-transform" / "prepare.py"
    subprocess.run([sys.executable, script, tmp_path, "7"], check=True)
    document = (tmp_path / "media-types.xml").read_text()
    types = re.findall(r'<mime-type type="([^"]+)"', document)
    assert len(set(types)) == len(types)
    assert types.count("text/html") == types.count("text/html.6") == 1
    assert "text/html.7" not in types
