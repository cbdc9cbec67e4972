"""A sample fitted on a scale: what all parts of an analysis start from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from heapfit.statistics.linear_model import FactorialModel, Fit, SingularDesignError
from heapfit.statistics.observations import Floats, Layout, Sample
from heapfit.statistics.transform import back, forward
from heapfit.statistics.tukey import Estimates


@dataclass(frozen=True)
class Fitted:
    """The model of `sample` fitted to its figures to the power of `exponent` (logarithms at 0)."""

    sample: Sample
    model: FactorialModel
    exponent: float
    response: Floats
    fit: Fit

    @property
    def variance(self) -> float:
        """The residual mean square."""
        return self.fit.sum_sq / self.model.residual_df

    @cached_property
    def pooled(self) -> Estimates:
        """The cells' means with the common residual variance."""
        covariance = self.model.mean_covariance * self.variance
        return Estimates(self.fit.means, covariance, self.model.residual_df)

    @property
    def means(self) -> Floats:
        """The cells' means on the measured scale."""
        return back(self.fit.means, self.exponent)


def fit_on(sample: Sample, model: FactorialModel, exponent: float) -> Fitted:
    """Return `model` fitted to the figures of `sample` on the scale of `exponent`."""
    response = forward(sample.figures, exponent)
    return Fitted(sample, model, exponent, response, model.fit(response))


# A study's metrics share a layout; where trials lack some figures there are a few.
@lru_cache(maxsize=4)
def model_of(layout: Layout) -> FactorialModel | None:
    """Return the fullest model that leaves the error a degree of freedom; None if none does.

    Interactions of the highest order are given up first, then blocks: where each cell was run once,
    or where blocks hold only part of the cells so that they cannot be told from an interaction.
    """
    for with_blocks in (True, False):
        for order in range(len(layout.factors), 0, -1):
            try:
                model = FactorialModel(layout, order, with_blocks)
            except SingularDesignError:
                continue
            if model.residual_df > 0:
                return model
    return None
