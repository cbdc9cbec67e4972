"""The options of heapfit's library as it describes them itself: their meaning and their values."""

import ctypes
from pathlib import Path
from typing import Any

KINDS = ("number", "size", "0 or 1", "word")


class _Option(ctypes.Structure):
    """`hf_option` of heapfit.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("kind", ctypes.c_int),
        ("live", ctypes.c_int),
        ("initial", ctypes.c_uint64),
        ("minimum", ctypes.c_uint64),
        ("maximum", ctypes.c_uint64),
        ("choices", ctypes.POINTER(ctypes.c_char_p)),
        ("unlimited", ctypes.c_int),
        ("words", ctypes.POINTER(ctypes.c_char_p)),
    )


def library_options(path: Path) -> list[Any]:
    """Return the options of the library at `path`."""
    library = ctypes.CDLL(str(path))
    library.hf_option_count.restype = ctypes.c_size_t
    library.hf_option_at.restype = ctypes.POINTER(_Option)
    return [library.hf_option_at(index).contents for index in range(library.hf_option_count())]


def written(option: Any, number: int) -> str:
    """Return a value of `option` as it is written."""
    if option.choices:
        return str(option.choices[number].decode())
    if option.unlimited and number == option.maximum:
        return "unlimited"
    if option.words and number in (option.minimum, option.maximum):
        return str(option.words[number != option.minimum].decode())
    return _size(number) if KINDS[option.kind] == "size" else str(number)


def _size(number: int) -> str:
    for suffix, unit in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if number and number % unit == 0:
            return f"{number // unit}{suffix}"
    return str(number)
