"""The scale of the analysis: a power of the figures, chosen by Box and Cox's method.

The exponent of greatest likelihood makes the residuals of the full model (all interactions and the
blocks, so that real effects are not mistaken for skewness) as normal, and their variance as equal,
as a power can. It is then rounded to the nearest exponent that a reader can interpret: 1 (as
measured), 1/2, 0 (the logarithm), -1/2, -1 (the reciprocal, a rate for a time). When the interval
of the exponent holds 1, no transform is needed and none is made.

The likelihood of an exponent e is that of the residual sum of squares of x^(e) = (x^e - 1) /
(e g^(e-1)), g the geometric mean of all figures; the 95 % interval is that of the likelihood ratio.

Reference: G. E. P. Box and D. R. Cox, "An analysis of transformations", Journal of the Royal
Statistical Society B 26 (1964), 211-252; G. E. P. Box, W. G. Hunter and J. S. Hunter, "Statistics
for Experimenters", 2nd ed. (2005), section 8.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, exprel

from heapfit.findings import Transform
from heapfit.statistics.linear_model import FactorialModel
from heapfit.statistics.median import CONFIDENCE
from heapfit.statistics.observations import Floats

NAMES = {1.0: "x", 0.5: "sqrt x", 0.0: "log x", -0.5: "1/sqrt x", -1.0: "1/x"}
_BOUND = 5.0  # no exponent beyond is looked for
_TOLERANCE = 1e-3
_EXACT = 1e-9  # a ratio to the fitted figure that is rounding, and no scatter
# Of the way to the bound, where the curvature of the likelihood is taken.
_PROBE = 0.02


@dataclass(frozen=True)
class BoxCox:
    """The exponent of greatest likelihood and its 95 % interval, cut off at 5 either way."""

    exponent: float
    low: float
    high: float


def _as_measured(reason: str) -> Transform:
    return Transform(exponent=1, name=NAMES[1], box_cox=None, reason=reason)


def choose(model: FactorialModel, figures: Floats) -> Transform:
    """Return the scale on which `figures` are to be analysed by `model`."""
    if figures.min() <= 0:
        return _as_measured("Some figures are zero or less, which have no logarithm or reciprocal.")
    if model.residual_sum_sq(np.log(figures)) <= _EXACT**2 * model.n:
        return _as_measured("Figures of a treatment do not differ, so no scale suits them best.")
    found = box_cox(model, figures)
    exponent, reason = _rounded(found)
    return Transform(
        exponent=exponent,
        name=NAMES[exponent],
        box_cox=found.exponent,
        low=found.low,
        high=found.high,
        reason=reason,
    )


def box_cox(model: FactorialModel, figures: Floats) -> BoxCox:
    """Return Box and Cox's exponent for positive `figures` under `model`."""
    from scipy.optimize import minimize_scalar  # Takes a while to load, and few figures need it.

    likelihood = _profile(model, figures)
    best = minimize_scalar(
        lambda exponent: -likelihood(exponent),
        bounds=(-_BOUND, _BOUND),
        method="bounded",
        options={"xatol": _TOLERANCE},
    )
    exponent = float(best.x)
    floor = -float(best.fun) - float(chdtri(1, 1 - CONFIDENCE)) / 2
    return BoxCox(
        exponent=exponent,
        low=_crossing(likelihood, floor, exponent, -_BOUND),
        high=_crossing(likelihood, floor, exponent, _BOUND),
    )


def forward(figures: Floats, exponent: float) -> Floats:
    """Return the figures on the scale of the analysis: x^exponent, the logarithm at 0."""
    if exponent == 1:
        return figures
    return np.log(figures) if exponent == 0 else figures**exponent


def back(values: Floats, exponent: float) -> Floats:
    """Return values of the scale of the analysis on the measured scale; the inverse of `forward`.

    A value that no figure has on that scale (a bound of an interval below zero) is what the bound
    tends to: 0 for a positive exponent, infinity for a negative one.
    """
    if exponent == 1:
        return values
    if exponent == 0:
        return np.exp(values)
    with np.errstate(divide="ignore"):
        figures: Floats = np.maximum(values, 0.0) ** (1 / exponent)
    return figures


def _profile(model: FactorialModel, figures: Floats) -> Callable[[float], float]:
    logs = np.log(figures)
    logs -= logs.mean()  # figures over their geometric mean

    def likelihood(exponent: float) -> float:
        # (e^(ez) - 1)/e without loss of digits at small e, and the logarithm itself at 0
        response = logs * exprel(exponent * logs)
        return -model.n / 2 * float(np.log(model.residual_sum_sq(response)))

    return likelihood


def _crossing(
    likelihood: Callable[[float], float], floor: float, inside: float, bound: float
) -> float:
    """Where the likelihood falls to `floor` on the way from `inside` to `bound`.

    The likelihood is nearly a parabola about `inside`: that tells where to look.
    """
    from scipy.optimize import brentq

    drop = likelihood(inside) - floor
    probe = inside + (bound - inside) * _PROBE
    fallen = max(likelihood(inside) - likelihood(probe), drop * _PROBE**2)
    step = (probe - inside) * (drop / fallen) ** 0.5
    near = inside
    while abs(near - inside) < abs(bound - inside):
        far = min(inside + 1.2 * step, bound) if step > 0 else max(inside + 1.2 * step, bound)
        if likelihood(far) < floor:
            return float(brentq(lambda e: likelihood(e) - floor, near, far, xtol=_TOLERANCE))
        near, step = far, 2 * step
    return bound


def _rounded(found: BoxCox) -> tuple[float, str]:
    interval = f"{found.low:.2f} to {found.high:.2f}"
    if found.low <= 1 <= found.high:
        return 1, f"Box-Cox's interval, {interval}, holds 1: no transform is needed."
    nearest = min(NAMES, key=lambda exponent: abs(exponent - found.exponent))
    words = f"{NAMES[nearest]} is the simple scale nearest to Box-Cox's {found.exponent:.2f}"
    if found.low <= nearest <= found.high:
        return nearest, f"{words}, within its interval, {interval}."
    return nearest, f"{words}, though outside its interval, {interval}."
