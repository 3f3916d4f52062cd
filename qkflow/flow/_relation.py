r"""The first integral in NumPy and in logarithms: mu_OV and the slope of mu_QK at a given mu_QK.

With d omega = d mu_OV / R_OV, d tau = d sigma_i / (nu_i R_i) (collapsed QK: d mu_QK / line_gap) and S(g) =
d mu_QK / d tau, the flow keeps

    I(g) = integral_{g0}^{g} (1 + rho e^s)/S(s) ds = k' (F_OV(u) - F_OV(u0)),    dF_OV = u du / R_OV(u).

I is kept as log I = log rho + g - log S(g) + D(g); the defect D vanishes as g grows, so that no mu_QK is too
large. Nothing here is shared with the exact route (`qkflow.flow._curve`) but the derived field.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from qkflow.flow import derived
from qkflow.setting import Problem

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_NODES, _WEIGHTS = (_NODES + 1.0) / 2.0, _WEIGHTS / 2.0
_STEPS = 100


class Place(NamedTuple):
    """What the QK circuit is at some mu_QK; arrays of its shape.

    Args:
        slope: S = d mu_QK / d tau.
        bend: d log S / d mu_QK.
        second: share of mu_QK that the second mode carries (0 where there is one mode).
        defect: D = log(S I) - log(rho e^g).
    """

    slope: np.ndarray
    bend: np.ndarray
    second: np.ndarray
    defect: np.ndarray


class Relation:
    """The first integral of one problem with concrete numbers.

    Args:
        problem: unbatched.
        field: the derived field whose constants are used.

    >>> relation = Relation(Problem())
    >>> print(f"{relation.mu_ov(2.67113914432597):.10f}")  # at loss 1e-4
    20.5625667089
    """

    def __init__(self, problem: Problem, field: Any = derived):
        c, kind = problem.constants, problem.parameterization
        self.c, self.kind = c, kind
        self.g0, self.u0 = float(c.mu_qk_0), float(c.mu_ov_0)
        self.log_rho = float(field.log_odds(c, 0.0))
        self.rest_0 = math.exp(float(field.log_one_minus_alpha(c, self.g0)))
        self.separation = float(field.separation(c))
        self.log_pace = math.log(c.lr_ov / c.n_distinct_vocab)
        even = c._replace(imbalance_ov=0.0, imbalance_qk=0.0)
        self.rate_ov = float(field.rescaling_ov(even, 1.0)) if kind.ov_factorized else 0.0
        self.imbalance_ov = abs(float(c.imbalance_ov)) if kind.ov_factorized else 1.0
        self.rescaling_0 = float(self.rescaling(self.u0))
        line_gap = float(field.line_gap(c))
        self.unit = float(field.rescaling_qk(even, 1.0))
        if not kind.qk_factorized:
            self.nus, self.weights = np.zeros(1), np.ones(1)
            self.least_slope, self.line_gap = line_gap, line_gap
            return
        # with B infinite both modes are one and the same
        self.nus = np.array([float(nu) for nu in field.singular_values_qk(c)])
        self.weights = np.array([float(field.gap(c, 1.0, 0.0)), float(field.gap(c, 0.0, 1.0))])
        sigma = self.g0 * self.nus / line_gap
        self.imbalance_qk = abs(float(c.imbalance_qk))
        size = np.sqrt(self.imbalance_qk**2 + (self.unit * sigma) ** 2)
        larger = size + self.unit * abs(sigma)
        smaller = self.imbalance_qk**2 / larger
        self.up, self.down = np.where(sigma >= 0, (larger, smaller), (smaller, larger))
        # R falls before sigma passes zero
        floor = size if self.g0 >= 0 else np.full(2, self.imbalance_qk)
        self.least_slope = float(self.weights @ (self.nus * floor))

    def rescaling(self, mu_ov: Any) -> np.ndarray:
        """R_OV, 1 where collapsed."""
        return np.hypot(self.imbalance_ov, self.rate_ov * np.asarray(mu_ov, float))

    def at(self, mu_qk: Any) -> Place:
        """The QK circuit at mu_QK > its start, any shape."""
        g = np.asarray(mu_qk, float)
        rise = np.maximum(g - self.g0, 0.0)
        if not self.kind.qk_factorized:
            with np.errstate(divide="ignore"):
                defect = np.log(rise * np.exp(-self.log_rho - g) - np.expm1(-rise))
            return Place(np.full(g.shape, self.line_gap), np.zeros(g.shape), np.zeros(g.shape), defect)
        tau = self._tau(rise)
        grown = np.exp(np.multiply.outer(tau, self.unit * self.nus))
        up, down = self.up * grown, self.down / grown
        slope = ((up + down) * self.weights * self.nus).sum(-1) / 2.0
        parts = self.weights * (up - down) / (2.0 * self.unit)
        bend = self.unit**2 * (parts * self.nus**2).sum(-1) / slope**2
        # panels towards the end, where e^mu_QK is
        count = max(1, math.ceil(math.log2(max(float(np.max(tau * slope, initial=1.0)), 1.0))) + 1)
        edges = np.concatenate([[0.0], 0.5 ** np.arange(count - 1, -1, -1)])
        back = (edges[:-1, None] + np.diff(edges)[:, None] * _NODES).ravel()
        weights = (np.diff(edges)[:, None] * _WEIGHTS).ravel()
        y = np.multiply.outer(np.multiply.outer(tau, self.unit * self.nus), back)  # (..., mode, node)
        fallen = up[..., None] * np.expm1(-y) - down[..., None] * np.expm1(y)
        fallen = np.einsum("m,...mn->...n", self.weights / (2.0 * self.unit), fallen)
        total = tau * (np.exp(fallen) @ weights) + tau * np.exp(-self.log_rho - g)
        with np.errstate(divide="ignore"):
            return Place(slope, bend, parts[..., 1] / g, np.log(slope * total))

    def _tau(self, rise: np.ndarray) -> np.ndarray:
        """tau at which mu_QK has risen by `rise`."""
        rates = self.unit * self.nus
        high = np.min(
            [
                np.log1p(2.0 * self.unit * rise / (w * up)) / rate
                for w, up, rate in zip(self.weights, self.up, rates, strict=True)
                if up > 0
            ],
            axis=0,
        )
        # Newton's method inside a bracket; mu_QK is convex in tau once it is positive
        low, tau = np.zeros_like(high), high
        for _ in range(_STEPS):
            grown, shrunk = (np.expm1(sign * np.multiply.outer(tau, rates)) for sign in (1.0, -1.0))
            excess = ((self.up * grown - self.down * shrunk) * self.weights).sum(-1) - 2.0 * self.unit * rise
            slope = ((self.up * (grown + 1.0) + self.down * (shrunk + 1.0)) * self.weights * rates).sum(-1)
            low, high = np.where(excess > 0, low, tau), np.where(excess > 0, tau, high)
            new = tau - excess / slope
            new = np.where((new < low) | (new > high), 0.5 * (low + high), new)
            done = np.all(abs(new - tau) <= 1e-15 * high)
            tau = new
            if done:
                break
        return tau

    def log_x(self, mu_qk: Any) -> np.ndarray:
        """log I at mu_QK: it knows the QK circuit and its start, not the ratio and not the OV circuit."""
        place = self.at(mu_qk)
        return self.log_rho + np.asarray(mu_qk, float) - np.log(place.slope) + place.defect

    def log_mu_ov(self, mu_qk: Any, log_faster: Any = 0.0) -> np.ndarray:
        """log mu_OV at mu_QK, with the ratio e^log_faster times the problem's.

        From u^2 = u0^2 + 2 R_OV(u0) A + c A^2 with A = F_OV(u) - F_OV(u0).
        """
        area = self.log_x(mu_qk) - math.log(self.separation) - log_faster
        with np.errstate(divide="ignore"):
            first, second, start = np.log([2.0 * self.rescaling_0, self.rate_ov**2, self.u0**2])
        return 0.5 * np.logaddexp(start, area + np.logaddexp(first, second + area))

    def mu_ov(self, mu_qk: Any) -> np.ndarray:
        """mu_OV at mu_QK."""
        return np.exp(self.log_mu_ov(mu_qk))

    def area(self, mu_ov: Any) -> np.ndarray:
        """F_OV(u) - F_OV(u0)."""
        u = np.asarray(mu_ov, float)
        return (u - self.u0) * (u + self.u0) / (self.rescaling(u) + self.rescaling_0)
