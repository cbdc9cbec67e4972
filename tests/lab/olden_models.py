"""What the Olden programs compute, worked out again: lists and loops over the same random numbers.

Each model returns what its program prints. None is made for more than a few hundred objects.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

_WORD = 2**64


def mix(x: int) -> int:
    """The mixing function of micro.h."""
    x %= _WORD
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % _WORD
    return x ^ (x >> 31)


def fold(digest: int, word: int) -> int:
    """The digest of a sequence with one more word, as in olden.h."""
    return mix(digest + word)


def bits(value: float) -> int:
    """The 64 bits of a floating-point number."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


class Random:
    """A stream of random numbers of micro.h."""

    def __init__(self, seed: int, stream: int = 0) -> None:
        """Start the stream."""
        self.state = mix(mix(seed) + stream * 0x9E3779B97F4A7C15) or 1

    def next(self) -> int:
        """64 random bits."""
        self.state ^= self.state >> 12
        self.state ^= (self.state << 25) % _WORD
        self.state ^= self.state >> 27
        return self.state * 0x2545F4914F6CDD1D % _WORD

    def below(self, bound: int) -> int:
        """Return a whole number in [0, bound)."""
        return ((self.next() >> 32) * bound) >> 32

    def unit(self) -> float:
        """Return a number in (0, 1]."""
        return ((self.next() >> 11) + 1) * 2.0**-53


def bisort(seed: int, levels: int) -> dict[str, str]:
    """Sort with Python's sort, upwards and downwards."""
    random = Random(seed)
    numbers = sorted(random.next() >> 33 for _ in range(2**levels))
    digest = 0
    for order in (numbers, numbers[::-1]):
        of_order = 0
        for number in order:
            of_order = fold(of_order, number)
        digest = fold(digest, of_order)
    return {"numbers": str(2**levels), "digest": f"{digest:016x}"}


def mst(seed: int, vertices: int) -> int:
    """The weight of the minimum spanning tree, by Kruskal's algorithm."""
    edges = sorted(
        (mix(mix(seed) + i * vertices + j) % 2048 + 1, i, j)
        for i, j in itertools.combinations(range(vertices), 2)
    )
    part = list(range(vertices))  # the number of the part that a vertex is in
    weight = 0
    for cost, i, j in edges:
        if part[i] != part[j]:
            weight += cost
            part = [part[i] if number == part[j] else number for number in part]
    return weight


def perimeter(levels: int) -> int:
    """The sides of the ring's pixels that have no other pixel of the ring beside them."""
    side = 2**levels
    centre = (side - 1) / 2

    def black(x: int, y: int) -> bool:
        distance = math.hypot(x - centre, y - centre)
        return side / 8 <= distance < side / 4

    pixels = [pixel for pixel in itertools.product(range(side), repeat=2) if black(*pixel)]
    beside = ((1, 0), (-1, 0), (0, 1), (0, -1))
    return sum(not black(x + right, y + down) for x, y in pixels for right, down in beside)


# ------------------------------------------------------------------------------ em3d


def em3d(seed: int, nodes: int, degree: int, steps: int) -> str:
    """The digest of all values, which are kept in two plain lists."""
    random = Random(seed)
    values = [[random.unit() for _ in range(nodes)] for _ in range(2)]
    dependents: list[list[list[int]]] = [[], []]
    for chosen in dependents:
        for _ in range(nodes):
            some: list[int] = []
            while len(some) < degree:
                other = random.below(nodes)
                if other not in some:
                    some.append(other)
            chosen.append(some)
    sources: list[list[list[tuple[int, float]]]] = [[[] for _ in range(nodes)] for _ in range(2)]
    for of_field in (0, 1):
        for node, some in enumerate(dependents[of_field]):
            for other in some:
                sources[1 - of_field][other].append((node, random.unit() / degree))
    for _ in range(steps):
        for of_field in (0, 1):
            for node in range(nodes):
                for source, weight in sources[of_field][node]:
                    values[of_field][node] -= weight * values[1 - of_field][source]
    digest = 0
    for value in itertools.chain(*values):
        digest = fold(digest, bits(value))
    return f"{digest:016x}"


# ---------------------------------------------------------------------------- health


@dataclass(eq=False)
class Patient:
    """Who fell ill, and what has been done since."""

    home: int
    hospitals: int = 0
    time: int = 0
    time_left: int = 0


class Village:
    """A village with its hospital, and those below it."""

    def __init__(self, seed: int, level: int, number: int) -> None:
        """Build all villages below, too."""
        self.number = number
        self.random = Random(seed, number)
        self.staff = 2 ** (level - 1)
        self.below = [
            Village(seed, level - 1, number * 4 + i + 1) for i in range(4 if level > 1 else 0)
        ]
        self.waiting: list[Patient] = []
        self.assessed: list[Patient] = []
        self.treated: list[Patient] = []
        self.sent_up: list[Patient] = []
        self.healed: list[Patient] = []
        self.fallen_ill = 0

    def assess(self, patient: Patient) -> None:
        """Staff begin to look at a patient."""
        self.staff -= 1
        patient.time_left = 3
        patient.time += 3
        self.assessed.append(patient)

    def admit(self, patient: Patient) -> None:
        """A patient comes in."""
        patient.hospitals += 1
        if self.staff > 0:
            self.assess(patient)
        else:
            self.waiting.append(patient)

    def step(self) -> None:
        """Let one unit of time pass, below first."""
        for village in reversed(self.below):
            village.step()
        for village in self.below:
            for patient in village.sent_up:
                self.admit(patient)
            village.sent_up = []
        self._end_treatments()
        self._end_assessments()
        for patient in list(self.waiting):
            if self.staff > 0:
                self.assess(patient)
                self.waiting.remove(patient)
            else:
                patient.time += 1
        if self.random.unit() <= 1 / 3:
            self.fallen_ill += 1
            self.admit(Patient(self.number))

    def _end_treatments(self) -> None:
        for patient in list(self.treated):
            patient.time_left -= 1
            if patient.time_left == 0:
                self.staff += 1
                self.treated.remove(patient)
                self.healed.append(patient)

    def _end_assessments(self) -> None:
        for patient in list(self.assessed):
            patient.time_left -= 1
            if patient.time_left > 0:
                continue
            self.assessed.remove(patient)
            if self.random.unit() > 0.1 or self.number == 0:
                patient.time_left = 10
                patient.time += 10
                self.treated.append(patient)
            else:
                self.staff += 1
                self.sent_up.append(patient)

    def all(self) -> Iterator[Village]:
        """Yield this village and all below, from the top."""
        yield self
        for village in self.below:
            yield from village.all()


def health(seed: int, levels: int, steps: int) -> dict[str, str]:
    """Simulate with Python's lists."""
    top = Village(seed, levels, 0)
    for _ in range(steps):
        top.step()
    digest = 0
    for village in top.all():
        for patient in (*village.assessed, *village.treated, *village.waiting, *village.healed):
            for word in (patient.home, patient.time, patient.hospitals):
                digest = fold(digest, word)
    return {
        "fallen ill": str(sum(village.fallen_ill for village in top.all())),
        "healed": str(sum(len(village.healed) for village in top.all())),
        "waiting": str(sum(len(village.waiting) for village in top.all())),
        "digest": f"{digest:016x}",
    }


# ------------------------------------------------------------------------------- tsp


@dataclass
class Cities:
    """The cities of a map, in the order in which the program makes them."""

    random: Random
    places: list[tuple[float, float]] = field(default_factory=list)

    def _median(self, low: float, high: float, count: int) -> float:
        total = -6.0
        for _ in range(12):
            total += self.random.unit()
        median = (low + high) / 2 + total * (high - low) / (2 * math.sqrt(count + 2))
        return median if low < median < high else (low + high) / 2

    def make(self, count: int, x: tuple[float, float], y: tuple[float, float], by_x: bool) -> None:
        """Add `count` cities in these ranges, of which one parts the others."""
        if count == 0:
            return
        parted, other = (x, y) if by_x else (y, x)
        middle = self._median(*parted, count)
        beside = other[0] + (other[1] - other[0]) * self.random.unit()
        self.places.append((middle, beside) if by_x else (beside, middle))
        for half in ((parted[0], middle), (middle, parted[1])):
            self.make(count // 2, half if by_x else x, y if by_x else half, not by_x)


def tsp_shortest(seed: int, levels: int) -> float:
    """The length of the shortest tour, out of all."""
    cities = Cities(Random(seed))
    cities.make(2**levels - 1, (0, 1), (0, 1), by_x=True)
    first, *others = cities.places
    return min(
        sum(math.dist(a, b) for a, b in itertools.pairwise((first, *order, first)))
        for order in itertools.permutations(others)
    )
