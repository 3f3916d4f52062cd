r"""Leading orders of mu_OV, mu_QK and 1 - alpha for large t, with constants, and what is left beside them.

Write l = log t, u = mu_OV, g = mu_QK, y = 1 + rho e^g = 1/(1 - alpha), z = alpha u, k' = `field.separation`,
S(g) = d mu_QK / d tau (beta (1/b + 1/B) where QK is collapsed, the sum of w_i nu_i R_QK(sigma_i) where it is
factorized), I(g) = integral of (1 + rho e^s)/S(s) ds from g0 and A(u) = F_OV(u) - F_OV(u0). The flow keeps
I = k' A. For every problem, whatever its start, vocabularies, score scale and imbalances, as t grows:

    z    = q' log u + log(c t) + o(1)                    q' = 0, c = eta_OV/b;  q' = 1, c = 2 eta_OV/sqrt(b)
    u/l -> 1
    g    = p log g + q log l + log(Gamma/rho) + o(1)     p = 0 QK collapsed, 1 factorized
    1 - alpha = (1 + o(1)) / (Gamma g^p l^q)             q = 2 OV collapsed, 1 factorized

with Gamma = k' s f, S ~ s g^p, A ~ f u^q: s = beta (1/b + 1/B) or 2 nu_1, f = 1/2 or 1/(2 sqrt(b)). With B
infinite that is Gamma = gamma (CACO), 2 sqrt(bQ) gamma/beta (FACO), gamma' (CAFO), 2 sqrt(bQ) gamma'/beta
(FAFO) with gamma = r b kappa beta^2 (M-1)/2 and gamma' = gamma/sqrt(b). With B finite a factorized QK circuit
has 2 nu_1 k' = 2 nu_1 r b beta (M-1)/(M Q), for the first of its two modes outgrows the second. Imbalances do
not enter.

Proofs.

* u. e^z + M - 1 <= M e^u and R_OV >= R_OV(u0) give u >= log(e^u0 + R_OV(u0) a0 eta_OV t/(b M)), which has no
  limit. By dy/du = k' alpha u S/R_OV >= B u/R_OV with B = k' a0 min S, also (1 - alpha) u <= d for all t
  (`attention_gap`), so du/dt <= (eta_OV/b) R_OV(u) e^(d - u). As d(e^u/R_OV)/du <= e^u/R_OV, integrating
  gives u - log R_OV(u) <= log(e^u0/R_OV(u0) + e^d eta_OV t/b). So u/l -> 1.
* g. Exactly, log(rho e^g) = log S + log I - D(g) = log S + log(k' A) - D, D = log(S I) - log(rho e^g). A ~ f
  u^q ~ f l^q, for R_OV(u) - 2 sqrt(b) u -> 0. For a collapsed QK circuit D = log(1 - e^(g0-g) + (g - g0)
  e^-g/rho) -> 0. For a factorized one (log S)' <= c/s, c = nu_1/nu_2, once both sigma_i >= 0: with p_i = w_i
  sigma_i >= 0, p_1 + p_2 = s, S' S = 4 sum nu_i^2 p_i <= 4 nu_1 sum nu_i p_i <= 2 nu_1 S and S >= 2 nu_2 s.
  So S(g)/S(g - v) <= (1 - v/g)^-c <= e^(2 log(2) c v/g) for v <= g/2, and S >= min S before; as S(g) >= S(s),
      log(1 - e^(-g/2)) <= D <= log(1/(1 - 2 log(2) c/g) + S/(min S) ((g - g0) e^-g/rho + e^(-g/2))).
  S/(2 nu_1 g) -> 1: it lies between 1 - (1 - nu_2/nu_1) p_2/g and 1 + |lambda| sum w_i nu_i/(2 nu_1 g), and
  p_2/g -> 0 because sigma_2 grows as sigma_1^(nu_2/nu_1). This is slow: (2 log log t)^-(1 - nu_2/nu_1).
* 1 - alpha = alpha/(rho e^g), and alpha -> 1.
* z. (e^z + M - 1) dz/dt = (eta_OV/b) N with N = alpha^2 R_OV (1 + (1 - alpha) V), V = dg/dlog u = k' S u^2
  (1 - alpha)/R_OV. By the law of g, V -> q and N/R_OV -> 1. Let nu = d log N/dz; dlog z = dlog u + (1 -
  alpha) dg makes it O(1/z). So log t = z - log(eta_OV N/b) + log K, K the integral of e^(s - z) N(z)/N(s)
  over s, 1/(1 + nu) <= K + o(1) <= 1/(1 - nu) with the largest |nu|, and z - log(eta_OV t/b) - log R_OV -> 0.

Not every remainder shrinks all the time: that of mu_QK is log(A/(f l^q)) - D, up to the slope's, and where
the first is positive (FAFO at a large ratio: u exceeds log t by log log t) they may cancel for a while.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.flow._relation import Relation
from qkflow.setting import Problem
from qkflow.trajectory import Trajectory

SATURATED = 10.0
"""rho e^mu_QK from which on a state counts as saturated."""
ROUTE, Z_ROUTE = 1e-9, 1e-11
"""Error of log t over mu_OV at the longest times, and of z over log t, in the exact route."""
SPAN = 100.0
"""What happened this much of z ago is e^-100 of the time."""
_TWICE_LOG_2 = 2.0 * math.log(2.0)


@dataclasses.dataclass(frozen=True)
class Leading:
    """The leading orders of one problem as numbers.

    Args:
        gamma: Gamma in 1 - alpha ~ 1/(Gamma mu_QK^p log(t)^q).
        power_qk: p, 0 for a collapsed QK circuit, 1 for a factorized one.
        power_ov: q, 2 for a collapsed OV circuit, 1 for a factorized one.
        log_rho: log(m/n).
        log_pace: log c in z ~ log(c t), or log u + log(c t) for a factorized OV circuit.
    """

    gamma: float
    power_qk: int
    power_ov: int
    log_rho: float
    log_pace: float

    def z(self, log_t: Any, mu_ov: Any) -> np.ndarray:
        """The leading order of z = alpha mu_OV."""
        return self.log_pace + np.asarray(log_t) + (2 - self.power_ov) * np.log(mu_ov)

    def mu_qk(self, log_t: Any, mu_qk: Any) -> np.ndarray:
        """The leading order of mu_QK, in which mu_QK itself stands once where QK is factorized."""
        return -self.log_rho - self.log_rest(log_t, mu_qk)

    def log_rest(self, log_t: Any, mu_qk: Any) -> np.ndarray:
        """The log of the leading order of 1 - alpha."""
        of_qk = np.log(np.maximum(mu_qk, 1e-300)) if self.power_qk else 0.0
        return -math.log(self.gamma) - of_qk - self.power_ov * np.log(log_t)


def leading(problem: Problem, field: Any = derived) -> Leading:
    """The leading orders of an unbatched problem.

    >>> order = leading(Problem())
    >>> print(f"{order.gamma:.4f} {order.power_qk} {order.power_ov}")
    0.0095 0 2
    """
    c, kind = problem.constants, problem.parameterization
    even = c._replace(imbalance_ov=0.0, imbalance_qk=0.0)
    rate_ov = float(field.rescaling_ov(even, 1.0)) if kind.ov_factorized else 1.0
    if kind.qk_factorized:
        slope = float(field.rescaling_qk(even, 1.0)) * float(field.singular_values_qk(c)[0])
    else:
        slope = float(field.line_gap(c))
    return Leading(
        gamma=float(field.separation(c)) * slope / (rate_ov if kind.ov_factorized else 2.0),
        power_qk=int(kind.qk_factorized),
        power_ov=1 if kind.ov_factorized else 2,
        log_rho=float(field.log_odds(c, 0.0)),
        log_pace=math.log(c.lr_ov / c.n_distinct_vocab * rate_ov),
    )


@dataclasses.dataclass(frozen=True)
class Remainder:
    """A quantity less its leading order, and the interval in which the proofs put it; arrays over the times.

    Args:
        value: the remainder; it tends to 0.
        low, high: the interval, which shrinks to 0 with t.
        next: what the next orders at the state say that it is; does not use `leading`.
        noise: rounding of `value`.
        doubt: error of `next`.
    """

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    next: np.ndarray
    noise: np.ndarray
    doubt: np.ndarray

    def outside(self) -> np.ndarray:
        """Distance from the middle of the interval over half its width, `noise` added; at most 1 inside."""
        middle, half = self._interval()
        endless = np.isinf(half)  # where mu_QK has not moved by a digit, the interval may be everything
        middle, half = np.where(endless, self.value, middle), np.where(endless, 1.0, half + self.noise)
        return abs(self.value - middle) / half

    def resolved(self) -> tuple[np.ndarray, np.ndarray]:
        """The remainder and its uncertainty; from the interval where that is narrower than the noise."""
        middle, half = self._interval()
        better = half < self.noise
        return np.where(better, middle, self.value), np.where(better, half, self.noise)

    def _interval(self) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(invalid="ignore"):
            return 0.5 * (self.high + self.low), 0.5 * (self.high - self.low)


def remainders(trajectory: Trajectory, field: Any = derived) -> dict[str, Remainder]:
    """The remainders of z, mu_qk and log(1 - alpha) along a solved trajectory.

    Args:
        trajectory: an unbatched problem at log times beyond its onset, as `solve_exact` gives it.
        field: the derived field whose constants are used.

    >>> import jax; jax.config.update("jax_enable_x64", True)
    >>> from qkflow.flow.exact import solve_exact
    >>> found = remainders(solve_exact(Problem(), at_log_time=[690.0, 2e3, 1e4]))
    >>> [f"{x:.2g}" for x in found["mu_qk"].value]
    ['-0.013', '-0.0042', '-0.0008']
    """
    order, relation = leading(trajectory.problem, field), Relation(trajectory.problem, field)
    log_t, u, g = (np.asarray(x, float) for x in (trajectory.log_t, trajectory.mu_ov, trajectory.mu_qk))
    log_rest = np.asarray(trajectory.log_one_minus_alpha, float)
    log_alpha = np.log1p(-np.exp(log_rest))
    place = relation.at(g)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # a factorized circuit whose mu_QK is not yet positive has no leading order: anything may be left
        factorized = relation.kind.qk_factorized
        slope = relation.nus[0] * relation.unit * np.maximum(g, 0.0) if factorized else relation.line_gap
        qk = np.log(place.slope / slope) - place.defect
        low, high = (_log_share(relation, bound, log_t) for bound in _ov_bounds(relation, log_t))
        share = _log_share(relation, u, log_t)
        noise = ROUTE + 1e-13 * np.maximum(abs(g), 1.0) / np.maximum(g - relation.g0, 1e-300)
        of_qk, of_rest = g - order.mu_qk(log_t, g), log_rest - order.log_rest(log_t, g)
        known = np.isfinite(qk)
        low, high = np.where(known, low + qk, -np.inf), np.where(known, high + qk, np.inf)
        next_order = share + qk
    return {
        "z": _of_z(log_t, u, g, order, relation),
        "mu_qk": Remainder(of_qk, low, high, next_order, noise, noise),
        "one_minus_alpha": Remainder(
            of_rest, log_alpha - high, log_alpha - low, log_alpha - next_order, noise, noise
        ),
    }


def _log_share(relation: Relation, mu_ov: np.ndarray, log_t: np.ndarray) -> np.ndarray:
    """log(A(u) / (f l^q)), f l^q being what A(l) tends to."""
    limit = log_t / relation.rate_ov if relation.kind.ov_factorized else log_t**2 / 2.0
    return np.log(relation.area(mu_ov) / limit)


def _ov_bounds(relation: Relation, log_t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the proofs say of mu_OV at log t, for every problem."""
    rest_0 = relation.rest_0
    log_r0 = math.log(relation.rescaling_0)
    slowest = log_r0 + math.log1p(-rest_0) - math.log(relation.c.n_classes) + relation.log_pace
    low = np.logaddexp(relation.u0, slowest + log_t)
    most = np.logaddexp(relation.u0 - log_r0, _gap(relation) + relation.log_pace + log_t)
    high = 2.0 * abs(most) + 4.0 * (1.0 + relation.rate_ov + relation.imbalance_ov)
    for _ in range(100):  # from above down to the largest root of u = most + log R_OV(u)
        high = np.minimum(high, most + np.log(relation.rescaling(high)))
    return low, high


def _of_z(log_t: np.ndarray, u: np.ndarray, g: np.ndarray, order: Leading, relation: Relation) -> Remainder:
    nu, parts, log_n = _slope_of_z(relation, u, g)
    z = np.exp(_log_alpha(relation, g)) * u
    first = np.maximum(z - SPAN, 0.0)
    low_g, high_g = np.full(g.shape, relation.g0), g
    for _ in range(12):  # down to before z was SPAN less
        middle = 0.5 * (low_g + high_g)
        below = np.exp(_log_alpha(relation, middle)) * relation.mu_ov(middle) < first
        low_g, high_g = np.where(below, middle, low_g), np.where(below, high_g, middle)
    between = low_g + (g - low_g) * np.linspace(0.02, 1.0, 40)[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # fmax: where mu_QK has hardly moved, some points are the start itself
        seen = abs(_slope_of_z(relation, relation.mu_ov(between), between)[0])
        most = np.fmax(1.05 * np.fmax.reduce(seen, axis=0), abs(nu))
        least = 2.0 * math.log1p(-relation.rest_0) + math.log(relation.rescaling_0)
        early = np.exp(log_n - least - z + np.logaddexp(first, np.log(relation.c.n_classes * z)))
        late = np.where(most < 1.0, 1.0 / (1.0 - np.minimum(most, 1.0)), np.inf)
        low = parts.sum(0) - np.log(late + early)
        high = parts.sum(0) + np.log1p(most) - np.log1p(-np.exp(first - z))
    noise = Z_ROUTE * np.maximum(1.0, log_t)
    return Remainder(
        value=z - order.z(log_t, u),
        low=low,
        high=high,
        next=parts.sum(0) + np.log1p(-np.minimum(nu, 0.5)),
        noise=noise,
        doubt=noise + 4.0 * most * (most + 1.0 / z),
    )


def _log_alpha(relation: Relation, g: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0.0, -relation.log_rho - g)


def _slope_of_z(
    relation: Relation, u: np.ndarray, g: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """nu = d log N/dz, the parts of log(N/N_limit), and log N, at states of the curve."""
    place, rescaling = relation.at(g), relation.rescaling(u)
    alpha, rest = np.exp(_log_alpha(relation, g)), np.exp(-np.logaddexp(0.0, relation.log_rho + g))
    stretch = relation.separation * place.slope * u**2 * rest / rescaling  # V = d mu_QK / d log u
    boost = rest * stretch
    power = (relation.rate_ov * u / rescaling) ** 2  # d log R_OV / d log u
    growth = 2.0 * boost + power
    growth = growth + boost / (1.0 + boost) * ((place.bend - 2.0 * alpha) * stretch + 2.0 - power)
    limit = relation.rate_ov * u if relation.kind.ov_factorized else 1.0
    parts = np.array([2.0 * np.log1p(-rest), np.log(rescaling / limit), np.log1p(boost)])
    log_n = 2.0 * np.log1p(-rest) + np.log(rescaling) + np.log1p(boost)
    return growth / (1.0 + boost) / (alpha * u), parts, log_n


def attention_gap(problem: Problem, field: Any = derived) -> float:
    """d with (1 - alpha) mu_OV <= d for all t, in every circuit.

    y = 1/(1 - alpha) has y - y0 >= B A(u), B = k' a0 min S. With s = u - u0, A = s (u + u0)/(R_OV(u) +
    R_OV(u0)) >= s^2/(2 |lambda| + 2 sqrt(b) s), because R_OV(u) <= |lambda| + 2 sqrt(b) u (collapsed: lambda
    = 1 and no b). So s/y <= 2 sqrt(b)/B + sqrt(|lambda|/(2 B y0)), and u0/y <= (1 - a0) u0.

    >>> print(f"{attention_gap(Problem()):.4f}")
    16.2221
    """
    return _gap(Relation(problem, field))


def _gap(relation: Relation) -> float:
    rest_0 = relation.rest_0
    b = relation.separation * (1.0 - rest_0) * relation.least_slope
    if b <= 0:
        return math.nan  # a wrong theory, in which attention does not sharpen
    root = math.sqrt(relation.imbalance_ov * rest_0 / (2.0 * b))
    return rest_0 * relation.u0 + relation.rate_ov / b + root


def beyond(problem: Problem, mu_qk: Any, field: Any = derived) -> tuple[np.ndarray, np.ndarray]:
    """The remainder of mu_QK where mu_QK is given, at log t to e^(mu_QK/2) and more, and its bound.

    The time is log t = u but for a part less than d + log R_OV + |log(eta_OV/b)| + ..., which is bounded with
    the rest. The bound is that of the proof above and does not use `leading`.

    Args:
        problem: unbatched.
        mu_qk: 1-D, at least 100 and twice the start's; up to 1e6 the remainder keeps ten digits.
        field: the derived field whose constants are used.

    Returns:
        The remainders and their bounds, which tend to 0.

    >>> value, bound = beyond(Problem(parameterization="FAFO"), [100.0, 1e4, 1e6])
    >>> [f"{x:.1e}" for x in value], [f"{x:.1e}" for x in bound]
    (['-1.0e-02', '-1.0e-04', '-1.0e-06'], ['1.4e-02', '1.4e-04', '1.4e-06'])
    """
    order, relation, g = leading(problem, field), Relation(problem, field), np.asarray(mu_qk, float)
    place, log_u = relation.at(g), relation.log_mu_ov(g)
    value = g - (-order.log_rho + math.log(order.gamma) + order.power_qk * np.log(g) + order.power_ov * log_u)
    c, kind = relation.c, problem.parameterization
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_rescaling = np.log(relation.imbalance_ov + relation.rate_ov) + np.maximum(log_u, 0.0)
        late = _gap(relation) + 2.0 * abs(relation.log_pace) + math.log(c.n_classes) + log_rescaling
        late = late + 2.0 * abs(math.log(relation.rescaling_0)) - math.log1p(-relation.rest_0)
        late = late + relation.u0 + relation.rescaling_0 + relation.imbalance_ov
        crumbs = 4.0 * np.exp(np.log(late) - log_u)
        ratio = float(relation.nus[0] / relation.nus[-1]) if kind.qk_factorized else 0.0
        early = place.slope / relation.least_slope
        early = early * ((g - relation.g0) * np.exp(-g - order.log_rho) + np.exp(-g / 2.0))
        steep = np.where(g > 2.0 * _TWICE_LOG_2 * ratio, 1.0 / (1.0 - _TWICE_LOG_2 * ratio / g), np.inf)
        bound = np.log(steep + early) - np.log1p(-np.exp(-g / 2.0)) + crumbs
        if kind.qk_factorized:
            second = (1.0 - 1.0 / ratio) * np.maximum(place.second, 0.0)
            uneven = relation.imbalance_qk * float(relation.weights @ relation.nus)
            above = uneven / (relation.unit * relation.nus[0] * g)
            # while the second mode is still negative, the first carries more than mu_QK
            above = above + (1.0 + 1.0 / ratio) * np.maximum(-place.second, 0.0)
            bound = bound - np.log1p(-second) + np.log1p(above)
    return value, bound
