"""Words and units: how sentences are put together, and numbers, sizes, shares and times written.

Records hold base units (seconds, bytes, counts, 1/s). A column's numbers have one scale, chosen
from all the values that are shown together, so that they compare by eye. And text from outside
cannot act on a terminal.
"""

import codecs
import math
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
_MINUTE, _HOUR = 60, 3600  # seconds
_DIGITS = 3
_SPARKS = "▁▂▃▄▅▆▇"  # Without a full block, so that lines below each other stay apart.


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
        for character in readable(text)
    )


def shell_word(name: object) -> str:
    """Return a name from outside, such as a file's, as a shell takes it in a printed command.

    >>> shell_word("a b.hft"), shell_word("-a.hft"), shell_word("a.hft")
    ("'a b.hft'", './-a.hft', 'a.hft')
    """
    word = f"{name}"
    return _quoted(f"./{word}" if word.startswith("-") else word)


def shell_words(words: Iterable[str]) -> str:
    """Return the words of a command as a shell takes them, on one line.

    >>> print(shell_words(["sh", "-c", "echo 'a'\\necho b"]))
    sh -c $'echo \\'a\\'\\necho b'
    """
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """Quote a word; one with control characters as bash, zsh and POSIX's sh of 2024 read it."""
    if visible(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    # These would be spelled like bytes.
    escaped = re.sub("[\x80-\x9f\xad]", lambda found: f"\\u{ord(found[0]):04x}", escaped)
    return f"$'{visible(escaped)}'"


def with_variables(variables: Mapping[str, str], command: str) -> str:
    """Return the line with which a shell runs a command with these variables.

    >>> with_variables({"A": "b c", "D": "e"}, "./f")
    "A='b c' D=e ./f"
    """
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*words, command])


def is_text(name: str) -> bool:
    """Whether a name from outside, such as a file's, is UTF-8."""
    return readable(name) == name


def readable(name: str) -> str:
    """Return a name from outside with the bytes spelled out that are not UTF-8: no file, terminal
    or JSON could hold them.

    >>> readable("caf\\udce9.hft")
    'caf\\\\xe9.hft'
    """
    return name.encode(errors=SPELLED_OUT).decode()


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    """Python has such a byte in a name as a character that only a name can have (PEP 383)."""
    assert isinstance(error, UnicodeEncodeError)
    characters = map(ord, error.object[error.start : error.end])
    words = [
        f"\\x{each & 0xFF:02x}" if each >> 8 in (0, 0xDC) else f"\\u{each:04x}"
        for each in characters
    ]
    return "".join(words), error.end


# What an encoding cannot write; also for streams (`errors=`).
SPELLED_OUT = "heapfit-spelled-out"
codecs.register_error(SPELLED_OUT, _spelled_out)


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Join words the way a sentence does.

    >>> join_words(["glibc", "heapfit", "mimalloc"]), join_words(["time", "memory"], "or")
    ('glibc, heapfit and mimalloc', 'time or memory')
    """
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun, in the plural where it is due.

    >>> counted(1, "trial"), counted(15, "trial")
    ('1 trial', '15 trials')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def counted_range(fewest: int, most: int, noun: str) -> str:
    """Return a range of numbers with their noun.

    >>> counted_range(12, 15, "trial"), counted_range(15, 15, "trial")
    ('12 to 15 trials', '15 trials')
    """
    return counted(most, noun) if fewest == most else f"{fewest:,} to {counted(most, noun)}"


def capitalised(sentence: str) -> str:
    """Return the sentence with its first letter in upper case and the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


# ------------------------------------------------------------------------ shares and times


def percent(share: float) -> str:
    """Return a share in per cent, to two digits.

    >>> percent(0.02), percent(0.0314), percent(0.315), percent(1.234), percent(0.001)
    ('2 %', '3.1 %', '32 %', '123 %', '0.1 %')
    """
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 9.95 else f"{value:.2g} %"


def part_of(part: float, whole: float = 1.0) -> str:
    """Return a part of a whole in per cent, never rounded to nothing or to all of it.

    >>> part_of(1, 8), part_of(0), part_of(9999, 10000), part_of(1, 10**6), part_of(3, 3)
    ('12 %', '0 %', '>99 %', '<0.1 %', '100 %')
    """
    share = part / whole if whole else 0.0
    if share <= 0:
        return "0 %"
    if share < 0.001:
        return "<0.1 %"
    return ">99 %" if 0.995 <= share < 1 else percent(share)


def duration(seconds: float) -> str:
    """Return a duration as a person would say it.

    >>> duration(4.2), duration(75), duration(3700)
    ('5 s', '1 min 15 s', '1 h 1 min')
    """
    whole = int(seconds) + (seconds > int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"


# ------------------------------------------------------------------------ single sizes and counts


def size(value: float) -> str:
    """Return a number of bytes, to three digits.

    >>> size(0), size(1000), size(1536), size(1023.9 * 2**20)
    ('0 B', '1000 B', '1.50 KiB', '1024 MiB')
    """
    return _scaled(value, 1024.0, (" B", " KiB", " MiB", " GiB", " TiB"))


def count(value: float) -> str:
    """Return a number of things, to three digits.

    >>> count(12), count(12_345), count(0.25)
    ('12', '12.3k', '0.25')
    """
    return _scaled(value, 1000.0, ("", "k", "M", "G", "T"))


def _scaled(value: float, step: float, units: tuple[str, ...]) -> str:
    if value < 0:
        return f"-{_scaled(-value, step, units)}"
    rung = 0
    while value >= step and rung < len(units) - 1:
        value /= step
        rung += 1
    return f"{_three_digits(value, whole=rung == 0)}{units[rung]}"


def _three_digits(value: float, *, whole: bool) -> str:
    if whole and value == int(value):
        return str(int(value))
    leading = math.floor(math.log10(value)) + 1 if value >= 1 else 1
    return f"{value:.{max(_DIGITS - leading, 0)}f}"


def spark(values: Iterable[float], width: int) -> str:
    """Return the last `width` of `values` as a line of bars, from 0 to the largest of them.

    >>> spark([0, 1, 2, 4], 6)
    '▁▂▄▇'
    """
    last = list(values)[-width:] if width > 0 else []
    most = max(last, default=0)
    steps = len(_SPARKS) - 1
    return "".join(_SPARKS[math.floor(each / most * steps) if most else 0] for each in last)


def suffixed(number: int) -> str:
    """Return a size as options of the library are written.

    >>> suffixed(64 << 20)
    '64m'
    """
    for suffix, unit in (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10)):
        if number % unit == 0:
            return f"{number // unit}{suffix}"
    return str(number)


# ------------------------------------------------------------------------ a column's unit


# Each ladder: (unit as printed, its size in the base unit), smallest first.
_LADDERS: dict[str, list[tuple[str, float]]] = {
    "s": [("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)],
    "bytes": [("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30)],
    "count": [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)],
    "1/s": [("/s", 1.0), ("k/s", 1e3), ("M/s", 1e6), ("G/s", 1e9)],
}
# Counts are exact, so they are abbreviated only from five digits on.
_SMALLEST_SCALED = {"count": 10.0, "1/s": 10.0}

TERMINAL_DIGITS = 3
PAGE_DIGITS = 4
_MOST_DECIMALS = 6

COLUMN_GAP = 2  # between two columns of a table in a terminal
DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Scale:
    """How the values of one metric are printed: `value / divisor`, with so many decimals."""

    unit: str
    divisor: float
    decimals: int

    @property
    def suffix(self) -> str:
        """The unit as it follows a label: ` (ms)`; nothing where there is none."""
        return f" ({self.unit})" if self.unit else ""

    def scaled(self, value: float) -> float:
        return value / self.divisor

    def number(self, value: float) -> str:
        """Return the value without its unit.

        >>> Scale("ms", 1e-3, 1).number(0.4123)
        '412.3'
        """
        if not math.isfinite(value):
            return "∞" if value > 0 else "-∞" if value < 0 else "?"
        return f"{self.scaled(value):,.{self.decimals}f}"

    def difference(self, value: float) -> str:
        """Return a difference of two values, with its sign and without its unit.

        >>> Scale("ms", 1e-3, 1).difference(-0.0123), Scale("", 1.0, 0).difference(1200)
        ('-12.3', '+1,200')
        """
        if not round(self.scaled(value), self.decimals):
            return self.number(0.0)
        return self.number(value) if value < 0 else f"+{self.number(value)}"

    def difference_text(self, value: float) -> str:
        """Return a difference with its sign and its unit."""
        return f"{self.difference(value)} {self.unit}".rstrip()

    def text(self, value: float) -> str:
        """Return the value with its unit.

        >>> Scale("MiB", 2.0**20, 0).text(64 * 2**20)
        '64 MiB'
        """
        return f"{self.number(value)} {self.unit}".rstrip()


def scale_for(unit: str, values: Iterable[float], digits: int = TERMINAL_DIGITS) -> Scale:
    """Return the scale that shows the smallest of `values` with at least `digits` digits.

    >>> scale_for("s", [0.98, 1.05]).text(1.05)
    '1,050 ms'
    """
    magnitudes = [abs(value) for value in values if value and math.isfinite(value)]
    smallest = min(magnitudes, default=1.0)
    name, divisor = _rung(unit, smallest)
    scaled = [magnitude / divisor for magnitude in magnitudes]
    if all(value == int(value) for value in scaled):
        return Scale(name, divisor, 0)
    if not name:  # small counts: only the median of an even number of trials has a fraction
        return Scale(name, divisor, 1)
    return Scale(name, divisor, _decimals(smallest / divisor, digits))


def _rung(unit: str, smallest: float) -> tuple[str, float]:
    ladder = _LADDERS.get(unit)
    if ladder is None:
        return unit, 1.0
    threshold = _SMALLEST_SCALED.get(unit, 1.0)
    fitting = [rung for rung in ladder if smallest / rung[1] >= threshold]
    return fitting[-1] if fitting else ladder[0]


def _decimals(smallest: float, digits: int) -> int:
    leading = math.floor(math.log10(smallest)) + 1
    return min(max(digits - leading, 0), _MOST_DECIMALS)


def ratio(value: float, sign: str = "x", decimals: int = 2) -> str:
    """Return a ratio with its sign.

    >>> ratio(0.8712)
    '0.87x'
    """
    return f"{value:.{decimals}f}{sign}"


def bytes_text(value: int) -> str:
    """Return a size of the machine with its unit, to one decimal.

    >>> bytes_text(16 * 2**30 + 2**29)
    '16.5 GiB'
    """
    name, divisor = _rung("bytes", float(value))
    return f"{value / divisor:.1f}".removesuffix(".0") + f" {name}"


def mid_sentence(label: str) -> str:
    """Return a label as it stands within a sentence: "Wall time" but "RSS", "CPU time"."""
    first = label.split(" ", 1)[0]
    plain = first[:1].isupper() and first[1:] == first[1:].lower()
    return visible(label[:1].lower() + label[1:] if plain else label)
