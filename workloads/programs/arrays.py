"""Arrays are concatenated, sorted and folded: large blocks, most of them for a moment."""

import numpy as np

random = np.random.default_rng(1)
total = 0.0
for turn in range(4):
    parts = [random.random(100_000 * (n + 1)) for n in range(12)]
    joined = np.concatenate(parts)
    joined.sort()
    table = joined[: 2000 * 3000].reshape(2000, 3000)
    total += (table * 2 + table[::-1]).sum() + np.unique(np.round(joined, 4)).size
    total += np.convolve(parts[turn][:20_000], np.ones(50)).max()
print(f"total {total:.3f}")
