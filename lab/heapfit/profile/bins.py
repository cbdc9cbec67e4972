"""Rounding of sizes and lifetimes, in SQL and back: how finely each is told apart.

Sizes round up, so that a bin is named by its largest size. They are exact up to EXACT_BYTES, since
allocators tell small sizes apart by bytes; above, 128 steps to each doubling bound the number of
different ones whatever the program does. Lifetimes fall into eight steps to each doubling.
"""

EXACT_BYTES = 1 << 16
SMALLEST_POWER = 16  # of the bins by powers of two
_STEPS = 8  # of a lifetime's doubling
_STEP_BITS = 3

# As DuckDB's macros; the arguments are BIGINT, and whole numbers of at most 2^47 are exact.
MACROS = """
CREATE MACRO exponent(v) AS CAST(floor(log2(v)) AS BIGINT);
CREATE MACRO rounded_up(v, bits) AS
    (((v - 1) >> (exponent(v - 1) - bits)) + 1) << (exponent(v - 1) - bits);
CREATE MACRO size_key(v) AS CASE WHEN v <= 65536 THEN v ELSE rounded_up(v, 7) END;
CREATE MACRO size_power(v) AS
    CASE WHEN v <= 16 THEN 16 ELSE CAST(1 AS BIGINT) << (exponent(v - 1) + 1) END;
CREATE MACRO life_bin(v) AS
    CASE WHEN v < 8 THEN greatest(v, 0) ELSE exponent(v) * 8 + ((v >> (exponent(v) - 3)) & 7) END;
CREATE MACRO power_above(v) AS
    CASE WHEN v < 1 THEN 1 ELSE CAST(1 AS BIGINT) << (exponent(v) + 1) END;
"""


def size_point(size: int) -> int:
    """Return the first of 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, ... that is no less.

    >>> [size_point(each) for each in (0, 8, 9, 16, 17, 24, 25, 33, 1000)]
    [8, 8, 10, 16, 20, 24, 28, 40, 1024]
    """
    if size <= 8:
        return 8
    bits = (size - 1).bit_length() - 3
    return (((size - 1) >> bits) + 1) << bits


def size_power(size: int) -> int:
    """Return the power of two, 16 or more, that is no less than `size`.

    >>> [size_power(each) for each in (0, 16, 17, 32, 33)]
    [16, 16, 32, 32, 64]
    """
    return max(SMALLEST_POWER, 1 << max(size - 1, 0).bit_length())


def life_bin(lifetime: int) -> int:
    """Return the bin of a lifetime, as the macro of that name does.

    >>> [life_bin(each) for each in (3, 8, 9, 18, 31)]
    [3, 24, 25, 33, 39]
    """
    if lifetime < _STEPS:
        return max(lifetime, 0)
    exponent = lifetime.bit_length() - 1
    return exponent * _STEPS + ((lifetime >> (exponent - _STEP_BITS)) & (_STEPS - 1))


def life_bounds(number: int) -> tuple[int, int]:
    """Return what a lifetime of that bin is at least, and less than.

    >>> life_bounds(3), life_bounds(24), life_bounds(33), life_bounds(39)
    ((3, 4), (8, 9), (18, 20), (30, 32))
    """
    if number < _STEPS:
        return number, number + 1
    exponent, step = divmod(number, _STEPS)
    shift = exponent - _STEP_BITS
    return (_STEPS + step) << shift, (_STEPS + step + 1) << shift


def life_power(number: int) -> int:
    """Return the power of two that lifetimes of that bin are less than, by less than half.

    >>> life_power(0), life_power(1), life_power(33), life_power(39)
    (1, 2, 32, 32)
    """
    lowest, _ = life_bounds(number)
    return 1 << lowest.bit_length()
