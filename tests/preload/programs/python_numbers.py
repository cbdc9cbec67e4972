"""Numbers of any length: blocks that grow by a little, again and again."""

import decimal
import fractions
import hashlib
import math
import sys

sys.set_int_max_str_digits(0)


def short(text: str) -> str:
    return f"{len(text)} digits, {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def fibonacci(count: int) -> int:
    one, other = 0, 1
    for _ in range(count):
        one, other = other, one + other
    return one


def digits_of_pi(digits: int) -> str:
    with decimal.localcontext() as context:
        context.prec = digits + 5
        pi, term, n = decimal.Decimal(0), decimal.Decimal(3), 1
        lasts, na, d, da = decimal.Decimal(0), 0, 0, 24
        pi = term
        while pi != lasts:
            lasts = pi
            n, na = n + na, na + 8
            d, da = d + da, da + 32
            term = term * n / d
            pi += term
        return str(pi)[: digits + 2]


print("factorial:", short(str(math.factorial(6000))))
print("fibonacci:", short(str(fibonacci(30000))))
print("power:", short(str(3**40000 // 7**900)))
print("pi:", short(digits_of_pi(600)))
harmonic = sum(fractions.Fraction(1, number) for number in range(1, 1200))
print("harmonic:", short(f"{harmonic.numerator}{harmonic.denominator}"))
print("prime:", pow(3, 2**1279 - 2, 2**1279 - 1) == 1)
