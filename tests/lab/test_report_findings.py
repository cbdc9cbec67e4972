"""Who is said to lead in a report: the findings are those of the real statistics on made trials."""

from __future__ import annotations

import numpy as np
import pytest
from design_data import study_of, trial_of
from heapfit.report.conclusions import conclude
from heapfit.report.letters import grids
from heapfit.report.results import Results
from heapfit.statistics import read, summarise
from report_data import METRICS

pytestmark = pytest.mark.full

WALL = METRICS[0]


def test_who_is_shown_to_be_worse_than_another_does_not_lead_beside_one_that_scatters() -> None:
    """The best mean scatters so that nothing differs from it: all were marked as unsurpassed."""
    study = study_of(["glibc", "noisy", "good", "bad"], {}, (WALL,))
    generator = np.random.default_rng(3)
    truth = {"glibc": (2.4, 0.01), "noisy": (1.7, 0.2), "good": (2.0, 0.003), "bad": (2.1, 0.003)}
    trials = [
        trial_of(study, (name,), {"wall_s": float(mean * np.exp(generator.normal(0, cv)))}, block)
        for block in range(10)
        for name, (mean, cv) in truth.items()
    ]
    results = Results(summarise(read(study, trials)))
    assert "noisy has the best mean; none of the others" in conclude(results, (1, ()), WALL)
    [shown] = grids(results, WALL, results.scale(WALL, 4))
    leaders = [name for name, [cell] in shown.rows if cell is not None and cell.leads]
    assert leaders == ["noisy", "good"]
