"""Small helpers for sentences, and the rule that text from outside cannot act on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")


def visible(text: str) -> str:
    """Return `text` on one line with every control or formatting character spelled out.

    Names of allocators, commands and error output come from outside: an escape sequence among
    them must neither colour a terminal nor reverse a line.

    >>> visible("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isprintable():  # nearly always, and much quicker to find out
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _CONTROL_CATEGORIES
        else character
        for character in text
    )


def join_words(words: Sequence[str]) -> str:
    """Join words the way a sentence does.

    >>> join_words(["glibc", "heapfit", "mimalloc"])
    'glibc, heapfit and mimalloc'
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural where it is due.

    >>> counted(1, "trial"), counted(15, "trial")
    ('1 trial', '15 trials')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def capitalised(sentence: str) -> str:
    """Return the sentence with its first letter in upper case and the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def percent(share: float) -> str:
    """Return a share in per cent, to two digits.

    >>> percent(0.02), percent(0.0314), percent(0.315), percent(1.234)
    ('2 %', '3.1 %', '32 %', '123 %')
    """
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"
