"""Least squares for factorial designs with blocks, from the totals of cells and blocks.

The model is y = mean + factors and their interactions + machine + block + error. Factors are coded
by contrasts that sum to zero. Blocks, of which there may be thousands, are eliminated first: what
remains are the reduced normal equations of the intra-block analysis, of the size of the treatment
effects alone. A design matrix of 100,000 trials by 700 cells would take half a gigabyte and a
minute to decompose; the totals take milliseconds, and give the same least-squares estimates.

References: F. Yates, "The recovery of inter-block information in balanced incomplete block
designs", Annals of Eugenics 10 (1940), 317-325; J. A. John and E. R. Williams, "Cyclic and Computer
Generated Designs", 2nd ed. (1995), section 1.5; M. C. Lovell, "Seasonal adjustment of economic time
series and multiple regression analysis", JASA 58 (1963), 993-1010 (partialling out).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import combinations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import coo_matrix

from heapfit.statistics.observations import Floats, Integers, Layout

# The normal equations are singular when a pivot is that much smaller than the largest.
_PIVOT = 1e-10


@dataclass(frozen=True)
class Term:
    """An effect and the columns of the model that are its own."""

    name: str
    columns: slice

    @property
    def df(self) -> int:
        return int(self.columns.stop - self.columns.start)


@dataclass(frozen=True)
class Estimates:
    """Means with their covariance, which rests on a residual variance of `df` degrees of
    freedom."""

    means: Floats
    covariance: Floats
    df: float

    def of(self, members: list[int]) -> Estimates:
        """Return the estimates of some of the means."""
        return Estimates(self.means[members], self.covariance[np.ix_(members, members)], self.df)


@dataclass(frozen=True)
class Fit:
    """A model fitted to a response by least squares."""

    model: FactorialModel
    response: Floats
    effects: Floats
    residuals: Floats
    means: Floats  # of each cell, over blocks and machines of equal weight

    @property
    def sum_sq(self) -> float:
        return float(self.residuals @ self.residuals)

    @property
    def variance(self) -> float:
        """The residual mean square."""
        return self.sum_sq / self.model.residual_df

    @cached_property
    def estimates(self) -> Estimates:
        """The cells' means."""
        covariance = self.model.mean_covariance * self.variance
        return Estimates(self.means, covariance, self.model.residual_df)


class SingularDesignError(ValueError):
    """The design does not determine all effects (for example: every block has one cell only)."""


class FactorialModel:
    """The model of figures on a layout.

    `order` bounds the interactions; with None the model has all of them. Blocks take the place of
    the mean: without blocks the whole sample is one block. Without machines their effect is in that
    of the blocks.

    Raises `SingularDesignError` where effects and blocks cannot be told apart.
    """

    def __init__(
        self,
        layout: Layout,
        order: int | None = None,
        with_blocks: bool = True,
        with_machines: bool = True,
    ) -> None:
        self.layout = layout
        self.order = len(layout.factors) if order is None else order
        self.terms, self._cell_columns = _factorial(layout, self.order)
        machines = int(layout.machine.max()) + 1 if with_machines else 1
        self.machine = _machine_term(self.terms, machines)
        self._group, self._columns = _groups(layout, self._cell_columns, machines)
        self._block = layout.block if with_blocks else np.zeros_like(layout.block)
        self.n = len(layout.cell)
        self.block_count = int(self._block.max()) + 1
        groups = len(self._columns)
        self._incidence = coo_matrix(
            (np.ones(self.n), (self._block, self._group)), (self.block_count, groups)
        ).tocsr()
        group_sizes = np.bincount(self._group, minlength=groups)
        self._block_sizes = np.bincount(self._block, minlength=self.block_count)
        by_block = np.asarray(self._incidence @ self._columns)
        self._block_means = by_block / self._block_sizes[:, None]  # of the columns
        normal = self._columns.T @ (self._columns * group_sizes[:, None])
        normal -= by_block.T @ self._block_means
        self.inverse = _inverse(normal)

    @cached_property
    def without_blocks(self) -> FactorialModel:
        return FactorialModel(self.layout, self.order, False, self.machine is not None)

    @property
    def residual_df(self) -> int:
        return self.n - int(self._columns.shape[1]) - self.block_count

    def fit(self, response: Floats) -> Fit:
        """Return the least-squares fit of `response`, one figure per observation of the layout."""
        centre = response.mean()
        y = response - centre  # so that a large common part costs no digits
        effects, blocks, residuals = self._solve(y)
        # One step of iterative refinement takes out what rounding left in the residuals.
        more_effects, more_blocks, residuals = self._solve(residuals)
        effects, blocks = effects + more_effects, blocks + more_blocks
        means = centre + blocks.mean() + self._cell_columns @ effects[: self._factor_columns]
        return Fit(self, response, effects, residuals, means)

    def residual_sum_sq(self, response: Floats) -> float:
        """As `fit(response).sum_sq`, faster, for searches."""
        residuals = self._solve(response - response.mean())[2]
        return float(residuals @ residuals)

    @cached_property
    def mean_covariance(self) -> Floats:
        """The covariance of the cells' means in units of the residual variance."""
        share = self._block_means.mean(axis=0)
        columns = -np.tile(share, (len(self._cell_columns), 1))
        columns[:, : self._factor_columns] += self._cell_columns
        common = (1 / self._block_sizes).sum() / self.block_count**2
        covariance: Floats = common + columns @ self.inverse @ columns.T
        return covariance

    @property
    def _factor_columns(self) -> int:
        return int(self._cell_columns.shape[1])

    def _solve(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        totals = np.bincount(self._group, y, len(self._columns))
        block_totals = np.bincount(self._block, y, self.block_count)
        adjusted = self._columns.T @ totals - self._block_means.T @ block_totals
        effects = self.inverse @ adjusted
        fitted = self._columns @ effects
        blocks = (block_totals - self._incidence @ fitted) / self._block_sizes
        return effects, blocks, y - fitted[self._group] - blocks[self._block]


# A study's metrics share a layout; where trials lack some figures there are a few.
@lru_cache(maxsize=4)
def fullest_model(layout: Layout) -> FactorialModel | None:
    """Return the fullest model that leaves the error a degree of freedom; None if none does.

    Interactions of the highest order are given up first, then machines, from which blocks that ran
    on one each cannot be told, then blocks: where each cell was run once, or where blocks hold only
    part of the cells so that they cannot be told from an interaction.
    """
    for with_blocks, with_machines in ((True, True), (True, False), (False, True)):
        for order in range(len(layout.factors), 0, -1):
            try:
                model = FactorialModel(layout, order, with_blocks, with_machines)
            except SingularDesignError:
                continue
            if model.residual_df > 0:
                return model
    return None


def _factorial(layout: Layout, order: int) -> tuple[list[Term], Floats]:
    """The terms up to `order` and the cells' rows of the model matrix, without the mean."""
    axes = range(len(layout.factors))
    terms: list[Term] = []
    parts: list[Floats] = []
    start = 0
    for size in range(1, order + 1):
        for chosen in combinations(axes, size):
            part = _contrasts(layout.shape, chosen)
            name = ":".join(layout.factors[axis].name for axis in chosen)
            terms.append(Term(name, slice(start, start + part.shape[1])))
            parts.append(part)
            start += part.shape[1]
    return terms, np.hstack(parts)


def _contrasts(shape: tuple[int, ...], chosen: tuple[int, ...]) -> Floats:
    by_axis = [
        _sum_to_zero(levels) if axis in chosen else np.ones((levels, 1))
        for axis, levels in enumerate(shape)
    ]
    return reduce(lambda left, right: np.asarray(np.kron(left, right)), by_axis)


def _sum_to_zero(levels: int) -> Floats:
    return np.vstack([np.eye(levels - 1), -np.ones(levels - 1)])


def _machine_term(terms: list[Term], machines: int) -> Term | None:
    if machines == 1:
        return None
    start = terms[-1].columns.stop
    return Term("machine", slice(start, start + machines - 1))


def _groups(layout: Layout, cell_columns: Floats, machines: int) -> tuple[Integers, Floats]:
    """Observations of the same cell and machine share a row of the model matrix."""
    if machines == 1:
        return layout.cell, cell_columns
    pairs = layout.cell * machines + layout.machine
    present, group = np.unique(pairs, return_inverse=True)
    cells, on = np.divmod(present, machines)
    columns = np.hstack([cell_columns[cells], _sum_to_zero(machines)[on]])
    return group.astype(np.int64), columns


def _inverse(normal: Floats) -> Floats:
    try:
        factor = cho_factor(normal)
    except LinAlgError as error:
        raise SingularDesignError("the design does not determine all effects") from error
    pivots = np.diag(factor[0]) ** 2
    if pivots.min() < _PIVOT * pivots.max():
        raise SingularDesignError("the design does not determine all effects")
    inverse: Floats = cho_solve(factor, np.eye(len(normal)))
    return inverse
