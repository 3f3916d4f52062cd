"""The trajectory of the reduced flow as an explicit curve, before time is put on it.

With d omega = d mu_OV / R_OV and d tau = d sigma_i / (nu_i R_i) (collapsed QK: d mu_QK / line_gap) the
two equations separate,

    (1 + rho e^mu_QK) d tau = k' mu_OV d omega,

mu_QK is explicit in tau, and mu_OV in X = integral (1 + rho e^mu_QK) d tau. The curve's coordinate w is the
omega that would have led to this tau with mu_QK at its start,

    (1 + rho_0) tau = k' integral_0^w mu_OV d omega.

In it everything is smooth at a start of zero, logarithmic for a balanced OV circuit, and a sum of positive
terms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.setting import Constants, Number, Parameterization


def gauss(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    x, weights = np.polynomial.legendre.leggauss(count)
    return (x + 1) / 2, weights / 2


NODES, WEIGHTS = gauss(16)
_LEGENDRE = np.polynomial.legendre.legvander(2 * NODES - 1, 16)
_ANTI = np.stack(
    [2 * NODES, *((_LEGENDRE[:, k + 1] - _LEGENDRE[:, k - 1]) / (2 * k + 1) for k in range(1, 16))], 1
)
CUMULATE = (_ANTI * (np.arange(16) + 0.5)) @ (_LEGENDRE[:, :16] * WEIGHTS[:, None]).T
"""CUMULATE @ values: the integral on [0, 1] from 0 to each node."""
LAST = _LEGENDRE[:, 14:16] * (2 * np.arange(14, 16) + 1)
"""(WEIGHTS * values) @ LAST: the two highest coefficients of the Legendre series through the nodes."""

_EDGES = 1 - np.array([1, 0.75, 0.5, 4.0**-1, 4.0**-2, 4.0**-3, 4.0**-4, 0])
_GRADED = (_EDGES[:-1, None] + np.diff(_EDGES)[:, None] * NODES).ravel()
_GRADED_WEIGHTS = (np.diff(_EDGES)[:, None] * WEIGHTS).ravel()
SMALLEST = 1e-120
"""Below this w the state is the start's, but for mu_OV itself; its square is still a normal number."""

once = jax.lax.optimization_barrier
"""Keeps XLA from computing a number of the problem again at every node."""


def hyperbolic(x: Number) -> tuple[Number, Number]:
    """sinh(x) and cosh(x) - 1 for x >= 0, from one exponential and without cancellation."""
    p = jnp.expm1(x)
    return 0.5 * (p + p / (1 + p)), 0.5 * p * p / (1 + p)


class Point(NamedTuple):
    """Where the curve is at w; derivatives are by w."""

    mu_ov_rise: Number  # mu_OV - mu_OV(0)
    mu_ov: Number
    gap: Number  # mu_QK - mu_QK(0)
    mu_qk: Number
    alpha: Number
    rest: Number  # 1 - alpha
    d_omega: Number
    d_gap: Number


class Curve:
    """The curve of one problem; scalars throughout, `w` may be an array.

    Args:
        field: the derived field.
        kind: the parameterization.
        c: the problem's numbers, scalars.
    """

    def __init__(self, field: Any, kind: Parameterization, c: Constants):
        self.field, self.kind, self.c = field, kind, c
        self.odds_0 = once(jnp.exp(field.log_odds(c, c.mu_qk_0)))
        self.alpha_0 = field.alpha(c, c.mu_qk_0)
        self.rest_0 = jnp.exp(field.log_one_minus_alpha(c, c.mu_qk_0))
        self.separation = once(field.separation(c))
        if kind.ov_factorized:
            self.rescaling_0 = field.rescaling_ov(c, c.mu_ov_0)
            self.rate_ov = field.rescaling_ov(c._replace(imbalance_ov=0.0), 1.0)
        else:
            self.rescaling_0, self.rate_ov = jnp.ones(()), 0.0
        if kind.qk_factorized:
            nus = field.singular_values_qk(c)
            unit = field.rescaling_qk(c._replace(imbalance_qk=0.0), 1.0)
            self.modes = []
            for nu in nus:
                sigma = c.mu_qk_0 * nu / field.line_gap(c)
                # R +- unit sigma multiply e^(+-unit nu tau); the smaller one without cancellation
                larger = field.rescaling_qk(c, sigma) + unit * jnp.where(sigma >= 0, sigma, -sigma)
                smaller = c.imbalance_qk**2 / larger
                up, down = jnp.where(sigma >= 0, larger, smaller), jnp.where(sigma >= 0, smaller, larger)
                self.modes.append((nu, unit, up, down))
            self.growth = unit * nus[0]
        else:
            self.line_gap, self.growth = once(field.line_gap(c)), 0.0
        self.slope_0 = self.gap(0.0)[1]

    # the QK circuit in tau

    def gap(self, tau: Number) -> tuple[Number, Number]:
        """mu_QK - mu_QK(0) and d mu_QK / d tau."""
        if not self.kind.qk_factorized:
            return self.line_gap * tau, self.line_gap
        rises, rates = [], []
        for nu, unit, up, down in self.modes:
            p = jnp.expm1(unit * nu * tau)
            rises.append((up * p + down * p / (1 + p)) / (2 * unit))
            rates.append(nu * (up * (1 + p) + down / (1 + p)) / 2)
        return self.field.gap(self.c, *rises), self.field.gap(self.c, *rates)

    def saturation(self, tau: Number) -> Number:
        """X(tau) = integral (1 + rho e^mu_QK) d tau, pointwise."""
        if not self.kind.qk_factorized:
            y, slope = self.gap(tau)
            return tau + self.odds_0 * jnp.expm1(y) / slope
        # e^mu_QK is steep towards the end, doubly exponential: panels a quarter as wide as the one before,
        # and three in the long first part, where an imbalanced start below zero is still far from its end
        y, _ = self.gap(jnp.asarray(tau)[..., None] * _GRADED)
        return tau + self.odds_0 * tau * (jnp.exp(y) @ _GRADED_WEIGHTS)

    def chord(self, tau: Number) -> Number:
        """X(tau) as if mu_QK rose evenly in tau: exact for a collapsed QK circuit."""
        gap, _ = self.gap(tau)
        flat = gap < 1e-280
        return tau * (1 + self.odds_0 * jnp.where(flat, 1.0, jnp.expm1(gap) / jnp.where(flat, 1.0, gap)))

    def tau_bound(self, gap: Number) -> Number:
        """A tau at which mu_QK has risen by `gap` (one mode) or between that and twice as much."""
        if not self.kind.qk_factorized:
            return gap / self.slope_0
        taus = []
        for i, (nu, unit, up, down) in enumerate(self.modes):
            rise = 2 * unit * gap / self.field.gap(self.c, 1.0 - i, 1.0 * i)
            # the solution p of up p + down p / (1 + p) = rise
            half = 0.5 * (up + down - rise)
            root = jnp.sqrt(half**2 + up * rise)
            p = jnp.where(half > 0, rise / (half + root), (root - half) / up)
            taus.append(jnp.log1p(p) / (unit * nu))
        return jnp.minimum(*taus)

    # the OV circuit in omega

    def straight(self, w: Number) -> tuple[Number, Number]:
        """mu_OV(omega = w) - mu_OV(0) and integral_0^w mu_OV d omega."""
        u, rescaling, s = self.c.mu_ov_0, self.rescaling_0, self.rate_ov
        if not self.kind.ov_factorized:
            return w, w * (u + 0.5 * w)
        sinh, versed = hyperbolic(s * w)
        return u * versed + rescaling * sinh / s, (u * sinh + rescaling * versed / s) / s

    def mu_ov_rise(self, area: Number) -> tuple[Number, Number]:
        """mu_OV - mu_OV(0) and mu_OV where integral mu_OV d omega is `area`."""
        square = area * (2 * self.rescaling_0 + self.rate_ov**2 * area)
        u = jnp.sqrt(self.c.mu_ov_0**2 + square)
        return square / (u + self.c.mu_ov_0), u

    def omega(self, area: Number) -> Number:
        """The omega at which integral mu_OV d omega is `area` (the inverse of `straight`)."""
        rise, _ = self.mu_ov_rise(area)
        if not self.kind.ov_factorized:
            return rise
        s = self.rate_ov
        return jnp.log1p((s * rise + s * s * area) / (s * self.c.mu_ov_0 + self.rescaling_0)) / s

    def rescaling(self, mu_ov: Number) -> Number:
        """R_OV."""
        return self.field.rescaling_ov(self.c, mu_ov) if self.kind.ov_factorized else jnp.ones(())

    # both

    def tau(self, w: Number) -> Number:
        """tau at w."""
        return self.separation * self.straight(w)[1] / (1 + self.odds_0)

    def w_of_tau(self, tau: Number) -> Number:
        """The inverse of `tau`."""
        return self.omega(tau * (1 + self.odds_0) / self.separation)

    def w_bound(self, mu_ov_rise: Number) -> Number:
        """A w at which mu_OV has risen by at least `mu_ov_rise`, close to it but for logarithms."""
        c = self.c
        u = c.mu_ov_0 + mu_ov_rise
        area = mu_ov_rise * (u + c.mu_ov_0) / (self.rescaling(u) + self.rescaling_0)
        saturation = area * self.separation
        gap = 1e3  # e^gap <= 1 + X (d gap / d tau) / rho_0 and d gap / d tau <= slope_0 + growth gap
        for _ in range(3):
            gap = jnp.log1p(saturation * (self.slope_0 + self.growth * gap) / self.odds_0)
        return jnp.minimum(self.omega(area), self.w_of_tau(self.tau_bound(gap)))

    def point(self, w: Number, saturation: Number | None = None) -> Point:
        """The curve at w; `saturation` is X(tau(w)) where it is known."""
        c = self.c
        straight, area = self.straight(w)
        tau = self.separation * area / (1 + self.odds_0)
        gap, slope = self.gap(tau)
        if saturation is None:
            saturation = self.saturation(tau)
        tiny = w < SMALLEST
        rise, u = self.mu_ov_rise(jnp.where(tiny, 1.0, saturation / self.separation))
        rise = jnp.where(tiny, straight, rise)
        u = jnp.where(tiny, c.mu_ov_0 + straight, u)
        mu_qk = c.mu_qk_0 + gap
        odds = self.odds_0 * (1 + jnp.expm1(gap))
        ratio = jnp.where(tiny, 1.0, (c.mu_ov_0 + straight) / jnp.where(tiny, 1.0, u))
        d_omega = (1 + odds) / (1 + self.odds_0) * ratio
        d_gap = slope * self.separation * (c.mu_ov_0 + straight) / (1 + self.odds_0)
        return Point(rise, u, gap, mu_qk, odds / (1 + odds), 1 / (1 + odds), d_omega, d_gap)
