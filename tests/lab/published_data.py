"""Data sets of published analyses, and their figures in the order of the design's cells.

From R's package `datasets` (public; help pages `warpbreaks`, `npk`, `ToothGrowth`, `InsectSprays`,
`PlantGrowth`), from G. E. P. Box and D. R. Cox (1964), and from the Statistical Reference Datasets
of the National Institute of Standards and Technology (StRD, analysis of variance).
"""

from __future__ import annotations

from collections.abc import Sequence

# Wool A, B by tension L, M, H, nine looms each: warp breaks (Tippett, 1950).
WARPBREAKS_FACTORS = {"wool": "AB", "tension": "LMH"}
WARPBREAKS = [
    *(26, 30, 54, 25, 70, 52, 51, 26, 67),
    *(18, 21, 29, 17, 12, 18, 35, 30, 36),
    *(36, 21, 24, 18, 10, 43, 28, 15, 26),
    *(27, 14, 29, 19, 29, 31, 41, 20, 44),
    *(42, 26, 19, 16, 39, 28, 21, 39, 29),
    *(20, 21, 24, 17, 13, 15, 15, 16, 28),
]

# Supplement OJ, VC by dose 0.5, 1, 2, ten guinea pigs each: tooth length (Crampton, 1947).
TOOTH_FACTORS: dict[str, Sequence[str]] = {"supp": ["VC", "OJ"], "dose": ["0.5", "1", "2"]}
TOOTH_GROWTH = [
    *(4.2, 11.5, 7.3, 5.8, 6.4, 10, 11.2, 11.2, 5.2, 7),
    *(16.5, 16.5, 15.2, 17.3, 22.5, 17.3, 13.6, 14.5, 18.8, 15.5),
    *(23.6, 18.5, 33.9, 25.5, 26.4, 32.5, 26.7, 21.5, 23.3, 29.5),
    *(15.2, 21.5, 17.6, 9.7, 14.5, 10, 8.2, 9.4, 16.5, 9.7),
    *(19.7, 23.3, 23.6, 26.4, 20, 25.2, 25.8, 21.2, 14.5, 27.3),
    *(25.5, 26.4, 22.4, 24.5, 24.8, 30.9, 26.4, 27.3, 29.4, 23),
]

# Sprays A to F, twelve plots each: insects (Beall, 1942).
SPRAYS = "ABCDEF"
INSECT_SPRAYS = [
    *(10, 7, 20, 14, 14, 12, 10, 23, 17, 20, 14, 13),
    *(11, 17, 21, 11, 16, 14, 17, 17, 19, 21, 7, 13),
    *(0, 1, 7, 2, 3, 1, 2, 1, 3, 0, 1, 4),
    *(3, 5, 12, 6, 4, 3, 5, 5, 5, 5, 2, 4),
    *(3, 5, 3, 5, 3, 6, 1, 1, 3, 2, 6, 4),
    *(11, 9, 15, 22, 15, 16, 13, 10, 26, 26, 24, 13),
]

# Control and two treatments, ten plants each: dried weight (Dobson, 1983).
PLANT_GROWTH = [
    *(4.17, 5.58, 5.18, 6.11, 4.5, 4.61, 5.17, 4.53, 5.33, 5.14),
    *(4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69),
    *(6.31, 5.12, 5.54, 5.5, 5.37, 5.29, 4.92, 6.15, 5.8, 5.26),
]

# Block, N, P, K, yield of peas: half of each replicate in a block, N:P:K confounded with blocks.
NPK = [
    (1, "011", 49.5),
    (1, "110", 62.8),
    (1, "000", 46.8),
    (1, "101", 57.0),
    (2, "100", 59.8),
    (2, "111", 58.5),
    (2, "001", 55.5),
    (2, "010", 56.0),
    (3, "010", 62.8),
    (3, "111", 55.8),
    (3, "100", 69.5),
    (3, "001", 55.0),
    (4, "100", 62.0),
    (4, "111", 48.8),
    (4, "001", 45.5),
    (4, "010", 44.2),
    (5, "110", 52.0),
    (5, "000", 51.5),
    (5, "101", 49.8),
    (5, "011", 48.8),
    (6, "101", 57.2),
    (6, "110", 59.0),
    (6, "011", 53.2),
    (6, "000", 56.0),
]

# Poison 1, 2, 3 by treatment A, B, C, D, four animals each: survival in units of ten hours
# (Box and Cox, 1964, table 1).
POISON_FACTORS = {"poison": "123", "treatment": "ABCD"}
POISONS = [
    *(0.31, 0.45, 0.46, 0.43, 0.82, 1.10, 0.88, 0.72),
    *(0.43, 0.45, 0.63, 0.76, 0.45, 0.71, 0.66, 0.62),
    *(0.36, 0.29, 0.40, 0.23, 0.92, 0.61, 0.49, 1.24),
    *(0.44, 0.35, 0.31, 0.40, 0.56, 1.02, 0.71, 0.38),
    *(0.22, 0.21, 0.18, 0.23, 0.30, 0.37, 0.38, 0.29),
    *(0.23, 0.25, 0.24, 0.22, 0.30, 0.36, 0.31, 0.33),
]

# NIST StRD SiRstv: five instruments, five measurements each: resistivity of silicon in ohm cm.
RESISTIVITY = [
    *(196.3052, 196.1240, 196.1890, 196.2569, 196.3403),
    *(196.3042, 196.3825, 196.1669, 196.3257, 196.0422),
    *(196.1303, 196.2005, 196.2889, 196.0343, 196.1811),
    *(196.2795, 196.1748, 196.1494, 196.1485, 195.9885),
    *(196.2119, 196.1051, 196.1850, 196.0052, 196.2090),
]


def simon_lesage(offset: float) -> list[float]:
    """NIST StRD SmLs: nine treatments, 21 figures each, with a leading part that costs digits.

    A treatment's first figure is its mean; then one 0.1 below and one 0.1 above in turn.
    """
    tenths = (4, 3, 5, 3, 5, 3, 5, 3, 5)
    return [offset + (mean + step) / 10 for mean in tenths for step in [0, *([-1, 1] * 10)]]
