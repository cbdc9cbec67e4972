"""Orders are read, joined, grouped, sorted and turned, five times."""

import io

import numpy as np
import pandas as pd

random = np.random.default_rng(1)
ROWS = 400_000
orders = pd.DataFrame(
    {
        "customer": random.integers(0, 20_000, ROWS),
        "product": random.integers(0, 500, ROWS),
        "price": random.random(ROWS) * 100,
        "day": random.integers(0, 365, ROWS),
    }
)
customers = pd.DataFrame(
    {"customer": np.arange(20_000), "city": [f"city {n % 97}" for n in range(20_000)]}
)
total = 0.0
for turn in range(5):
    joined = orders.merge(customers, on="customer")
    by_city = joined.groupby(["city", "day"])["price"].agg(["sum", "mean", "count"])
    wide = joined.pivot_table(index="city", columns="product", values="price", aggfunc="sum")
    text = joined.head(20_000 + turn).to_csv(index=False)
    again = pd.read_csv(io.StringIO(text)).sort_values(["city", "price"])
    total += by_city["sum"].sum() + wide.to_numpy()[:, 0].sum() + again["price"].iloc[0]
print(f"total {total:.2f}")
