r"""Bounds on the growth of mu_OV and mu_QK that hold for all t, with their constants.

Throughout u = mu_OV and g = mu_QK start at u0 >= 0 and g0, rho = m/n, rho0 = rho e^{g0}, a0 = rho0/(1 +
rho0) is the attention at the start, k = r b kappa beta^2 (M-1), X = k (F_OV(u) - F_OV(u0)) with dF_OV = u
du / R_OV(u), R_QK is taken at g/beta, and L(Y) = log Y + log log Y + log(e/(e-1)). Why each bound holds:

* Along the flow g and u never fall, so alpha >= a0. `ov_below`: e^{alpha u} + M - 1 <= M e^u, R_OV >=
  R_OV(u0).
* `ov_above`: alpha/(e^{alpha u} + M - 1) <= e^{-a0 u}. With R_OV = 1 this integrates to e^{a0 u}; with
  R_OV = 2 sqrt(b) u, v = a0 u has d(e^v/v)/dt <= 2 eta_OV/sqrt(b), and e^v/v <= Y gives v <= L(Y) because
  v - log v >= v (1 - 1/e).
* `ov_above_saturated`: y = 1 + rho e^g = 1/(1 - alpha) has dy/du = k alpha u R_QK/R_OV >= k a0 R_QK(g0)
  u/R_OV, so (1 - alpha) u <= d for all t, and e^{-alpha u} <= e^{d - u}. This needs one equation for g: the
  line.
* `qk_above_*`: X = integral of (1 + rho e^g)/R_QK(g) dg exactly, and the integrand is bounded below: by its
  value at g0 and by rho e^g (collapsed); by the least secant slope A(g0), by rho (g/2 + 1), by the e^v/v
  argument and by (1 + rho)/g (balanced, times a = R_QK(g)/g).
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.setting import Problem

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(120)

ANY = "any circuit"
LINE = "a collapsed QK circuit, or a balanced one with an infinite common vocabulary"
OV_COLLAPSED, OV_BALANCED = "a collapsed OV circuit", "a balanced OV circuit"
QK_COLLAPSED, QK_BALANCED = (
    "a collapsed QK circuit",
    "a balanced QK circuit with an infinite common vocabulary",
)


@dataclasses.dataclass(frozen=True)
class Bound:
    """One bound, evaluated.

    Args:
        name: its identifier, e.g. "ov_above".
        formula: the bound as it is stated.
        scope: what it is stated for.
        value: float64 array of the shape of the times; `None` where the problem is out of scope.
    """

    name: str
    formula: str
    scope: str
    value: np.ndarray | None

    @property
    def quantity(self) -> str:
        """ "mu_ov" or "mu_qk"."""
        return f"mu_{self.name[:2]}"

    def excess(self, state: Any) -> np.ndarray:
        """How far `state` lies beyond the bound, relative to max(1, |bound|); negative where it keeps it.

        Raises:
            ValueError: when the problem is out of the bound's scope.
        """
        if self.value is None:
            raise ValueError(f"The bound {self.name} is not stated for this problem: it needs {self.scope}.")
        beyond = np.asarray(state, dtype=float) - self.value
        beyond = -beyond if "below" in self.name else beyond
        scale = np.maximum(1.0, abs(self.value))
        return np.where(np.isinf(self.value), np.sign(beyond), beyond / np.where(np.isinf(scale), 1.0, scale))


def _least_slope(g0: float, rho: float) -> float:
    """A(g0), the least slope of a secant of N(g) = log g + rho Ei(g) from g0 (the infimum at g0 included).

    N' = (1 + rho e^g)/g falls while rho e^g (g - 1) < 1 and rises after, so the secant's slope has one
    minimum, where it equals N' (or is least at g0). A secant is a mean of g N' over log g, which never
    cancels.
    """

    def tangent(g):
        return (1.0 + rho * math.exp(g)) / g

    def slope(g):
        if g == g0:
            return tangent(g0)
        ratio = math.log1p((g - g0) / g0)
        mean = 1.0 + rho * float(_WEIGHTS @ np.exp(g0 * np.exp(ratio * (_NODES + 1.0) / 2.0))) / 2.0
        return mean * ratio / (g - g0)

    low, high = g0, g0 + 1.0
    while slope(high) > tangent(high):
        high = g0 + 2.0 * (high - g0)
    for _ in range(200):
        middle = 0.5 * (low + high)
        if slope(middle) > tangent(middle):
            low = middle
        else:
            high = middle
    return slope(high)


def _root(x: float) -> float:
    """The square root; a wrong theory may ask for that of a negative number, which is none."""
    return math.sqrt(x) if x >= 0 else math.nan


def _big_l(log_y):
    return log_y + np.log(log_y) + math.log(math.e / (math.e - 1.0))


def growth_bounds(
    problem: Problem, log_t: Any, mu_ov: Any = None, *, field: Any = derived
) -> dict[str, Bound]:
    """Every bound on mu_OV and mu_QK, at the given log times.

    Args:
        problem: an unbatched problem with concrete numbers.
        log_t: natural logarithms of times, any shape; -inf is t = 0.
        mu_ov: mu_OV at those times: the bounds of mu_QK are bounds in it. `None` puts the least upper bound
            of mu_OV in its place, which gives weaker bounds in t alone.
        field: the derived field whose constants are used.

    Returns:
        The bounds by name, in a fixed order, also those out of scope (with `value=None`).

    >>> bounds = growth_bounds(Problem(), [-math.inf, 10.0, 1e4])
    >>> [round(float(x), 3) for x in bounds["ov_below"].value]
    [0.0, 1.099, 9990.694]
    """
    log_t = np.asarray(log_t, dtype=float)
    with np.errstate(invalid="ignore"):
        ov = _ov_bounds(problem, log_t, field)
    if mu_ov is None:
        uppers = [bound.value for bound in ov if "above" in bound.name and bound.value is not None]
        mu_ov = np.min(uppers, axis=0) if uppers else np.full(log_t.shape, np.inf)
    qk = _qk_bounds(problem, np.asarray(mu_ov, dtype=float), field)
    return {bound.name: bound for bound in (*ov, *qk)}


def _on_line(problem: Problem) -> bool:
    return not problem.parameterization.qk_factorized or _qk_balanced(problem)


def _qk_balanced(problem: Problem) -> bool:
    c = problem.constants
    return problem.parameterization.qk_factorized and c.imbalance_qk == 0 and c.n_common_vocab == math.inf


def _rescaling(problem: Problem, field: Any) -> tuple[float, float]:
    """R_OV(u0) and R_QK(g0/beta)."""
    c, kind = problem.constants, problem.parameterization
    sigma = field.singular_values_qk(c)[1] * c.mu_qk_0 / field.line_gap(c)
    r_ov = float(field.rescaling_ov(c, c.mu_ov_0)) if kind.ov_factorized else 1.0
    r_qk = float(field.rescaling_qk(c, sigma)) if kind.qk_factorized else 1.0
    return r_ov, r_qk


def _ov_bounds(problem: Problem, log_t: np.ndarray, field: Any) -> list[Bound]:
    c, factorized = problem.constants, problem.parameterization.ov_factorized
    u0 = float(c.mu_ov_0)
    a0 = float(field.alpha(c, c.mu_qk_0))
    rho0 = math.exp(field.log_odds(c, c.mu_qk_0))
    k = float(field.separation(c) * field.line_gap(c))
    r_ov, r_qk = _rescaling(problem, field)
    log_rate = math.log(c.lr_ov / c.n_distinct_vocab)  # of eta_OV t / b

    def log_sum(start, factor):
        return np.logaddexp(start, math.log(factor) + log_rate + log_t)

    below = log_sum(u0, r_ov * a0 / c.n_classes)
    start = saturated = above_balanced = saturated_balanced = None
    if not factorized:
        start = log_sum(a0 * u0, a0) / a0
        if _on_line(problem):
            d = (1.0 - a0) * u0 + 1.0 / (2.0 * _root(rho0 * (k / 2.0) * r_qk))
            saturated = np.logaddexp(u0, d + log_rate + log_t)
    elif c.imbalance_ov == 0:
        twice_root_b = r_ov / u0
        above_balanced = _big_l(log_sum(a0 * u0 - math.log(a0 * u0), twice_root_b)) / a0
        if _on_line(problem):
            d = (1.0 - a0) * u0 + 1.0 / (a0 * (k / twice_root_b) * r_qk)
            saturated_balanced = _big_l(
                np.logaddexp(u0 - math.log(u0), d + math.log(twice_root_b) + log_rate + log_t)
            )
    return [
        Bound("ov_below", "u >= log(e^u0 + R_OV(u0) a0 eta_OV t/(b M))", ANY, below),
        Bound("ov_above", "u <= log(e^(a0 u0) + a0 eta_OV t/b)/a0", OV_COLLAPSED, start),
        Bound(
            "ov_above_saturated",
            "u <= log(e^u0 + e^d eta_OV t/b), d = (1-a0) u0 + 1/(2 sqrt(rho0 gamma R_QK(g0)))",
            f"{OV_COLLAPSED} and {LINE}",
            saturated,
        ),
        Bound(
            "ov_above_balanced",
            "u <= L(e^(a0 u0)/(a0 u0) + 2 eta_OV t/sqrt(b))/a0",
            OV_BALANCED,
            above_balanced,
        ),
        Bound(
            "ov_above_balanced_saturated",
            "u <= L(e^u0/u0 + e^d 2 eta_OV t/sqrt(b)), d = (1-a0) u0 + 1/(a0 gamma' R_QK(g0))",
            f"{OV_BALANCED} and {LINE}",
            saturated_balanced,
        ),
    ]


def _x(problem: Problem, mu_ov: np.ndarray, field: Any) -> np.ndarray:
    """X = k (F_OV(u) - F_OV(u0)) >= 0, as a product that keeps its digits near the start."""
    c = problem.constants
    k = float(field.separation(c) * field.line_gap(c))
    squares = np.maximum(mu_ov - c.mu_ov_0, 0.0) * (mu_ov + c.mu_ov_0)  # rounding may put u below u0
    if not problem.parameterization.ov_factorized:
        return k * squares / 2.0
    sum_of_rescalings = np.asarray(field.rescaling_ov(c, mu_ov)) + float(field.rescaling_ov(c, c.mu_ov_0))
    return k * squares / sum_of_rescalings


def _qk_bounds(problem: Problem, mu_ov: np.ndarray, field: Any) -> list[Bound]:
    c = problem.constants
    g0 = float(c.mu_qk_0)
    rho, rho0 = math.exp(field.log_odds(c, 0.0)), math.exp(field.log_odds(c, g0))
    linear = log = secant = root = saturated = exponential = None
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        x = _x(problem, mu_ov, field)
        if not problem.parameterization.qk_factorized:
            linear = g0 + x / (1.0 + rho0)
            log = g0 + np.log1p(x / rho0)
        elif _qk_balanced(problem):
            ax = _rescaling(problem, field)[1] / g0 * x
            secant = g0 + ax / _least_slope(g0, rho)
            root = -2.0 + np.sqrt((g0 + 2.0) ** 2 + 4.0 * ax / rho)
            saturated = _big_l(np.logaddexp(g0 - math.log(g0), np.log(ax / rho)))
            exponential = g0 * np.exp(ax / (1.0 + rho))
    return [
        Bound("qk_above_linear", "g <= g0 + X/(1 + rho0)", QK_COLLAPSED, linear),
        Bound("qk_above_log", "g <= g0 + log(1 + X/rho0)", QK_COLLAPSED, log),
        Bound("qk_above_secant", "g <= g0 + a X/A(g0)", QK_BALANCED, secant),
        Bound("qk_above_root", "g <= -2 + sqrt((g0 + 2)^2 + 4 a X/rho)", QK_BALANCED, root),
        Bound("qk_above_saturated", "g <= L(e^g0/g0 + a X/rho)", QK_BALANCED, saturated),
        Bound("qk_above_exponential", "g <= g0 exp(a X/(1 + rho))", QK_BALANCED, exponential),
    ]
