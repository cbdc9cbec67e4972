"""Data sets of published analyses, and their figures in the order of the design's cells.

From R's package `datasets` (public; help pages `warpbreaks`, `npk`, `ToothGrowth`,
`PlantGrowth`), from G. E. P. Box and D. R. Cox (1964), and from the Statistical Reference Datasets
of the National Institute of Standards and Technology (StRD, analysis of variance).
"""

from __future__ import annotations

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


def simon_lesage(offset: float) -> list[float]:
    """NIST StRD SmLs: nine treatments, 21 figures each, with a leading part that costs digits.

    A treatment's first figure is its mean; then one 0.1 below and one 0.1 above in turn.
    """
    tenths = (4, 3, 5, 3, 5, 3, 5, 3, 5)
    return [offset + (mean + step) / 10 for mean in tenths for step in [0, *([-1, 1] * 10)]]
