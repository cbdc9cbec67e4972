"""Messages of protocol buffers, written: the five lines of their encoding that we need.

A message is the concatenation of its fields. Zero and the empty text are what a reader takes a
field for that is not there, and are left out but in lists.
https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterable

_VARINT, _LENGTH_DELIMITED = 0, 2


def varint(value: int) -> bytes:
    """Return a number of at most 64 bits, seven to a byte.

    >>> varint(1), varint(150).hex()
    (b'\\x01', '9601')
    """
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def number(field: int, value: int) -> bytes:
    """Return a field that holds a number that is not negative."""
    return varint(field << 3 | _VARINT) + varint(value) if value else b""


def message(field: int, content: bytes) -> bytes:
    """Return a field that holds a message, or an element of a list of texts."""
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return a field that holds a text."""
    return message(field, content.encode(errors="replace")) if content else b""


def numbers(field: int, values: Iterable[int]) -> bytes:
    """Return a field that holds a list of numbers."""
    return message(field, b"".join(map(varint, values)))
