"""Time along the curve of the exact solution, by Gauss-Legendre quadrature in scaled form."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.flow._curve import CUMULATE, NODES, SMALLEST, WEIGHTS, Curve
from qkflow.setting import Number

PANELS = {False: 8, True: 24}
"""Panels of a full quadrature, collapsed and factorized QK (there mu_OV needs a quadrature of its own).

Over 600 random settings 6 and 16 lose one digit, more gain none.
"""

_GRID = np.concatenate([np.linspace(0, 0.9, 8)[:-1], 1 - np.geomspace(0.1, 1e-15, 24), [1.0]])
frozen = jax.lax.stop_gradient


def _panels(curve: Curve, w_end: Number) -> Number:
    """Edges of PANELS panels of w / w_end, shape (PANELS + 1,), fine where the integrands change."""
    count = PANELS[curve.kind.qk_factorized]
    w = w_end * _GRID
    tau = curve.tau(w)
    gap, _ = curve.gap(tau)
    if curve.kind.qk_factorized:  # X as if mu_QK rose evenly between the points
        rise = jnp.maximum(jnp.diff(gap), 1e-6)
        chords = jnp.diff(tau) * jnp.exp(gap[1:]) * -jnp.expm1(-rise) / rise
        x = tau + curve.odds_0 * jnp.concatenate([jnp.zeros(1), np.tri(len(_GRID) - 1) @ chords])
    else:
        x = curve.saturation(tau)
    _, u = curve.mu_ov_rise(x / curve.separation)
    odds = curve.odds_0 * jnp.exp(gap)
    alpha = odds / (1 + odds)
    # What came before z_end - 45, or before X_end e^-36, is below the last digit.
    late_z = jnp.maximum(u * alpha - u[-1] * alpha[-1] + 45, 0)
    late_x = jnp.maximum(jnp.log(x / x[-1] + 1e-16) + 36, 0)
    steep = late_x / 4 if curve.kind.qk_factorized else gap / 10
    monitor = late_z / 10 + jnp.log1p(late_z) + steep + jnp.log1p(1e4 * gap) / 3 + 3 * alpha + 0.5 * _GRID
    # The inverse of the monitor, taken as piecewise linear, at evenly spaced levels.
    levels = monitor[0] + (monitor[-1] - monitor[0]) * np.arange(1, count)[:, None] / count
    covered = jnp.clip((levels - monitor[:-1]) / jnp.maximum(jnp.diff(monitor), 1e-30), 0, 1)
    return jnp.concatenate([jnp.zeros(1), covered @ np.diff(_GRID), jnp.ones(1)])


def _elapsed(curve: Curve, w_end: Number, edges: Number, saturation: Number, scale: Number | None = None):
    """e^-scale t / w_end over panels of w / w_end, X at the last edge, and the scale.

    Args:
        curve: the curve.
        w_end: the unit of `edges`, scalar.
        edges: shape (P + 1,).
        saturation: X at the first edge.
        scale: None takes z at the last edge.
    """
    width = jnp.diff(edges)[:, None]
    w = w_end * (edges[:-1, None] + width * NODES)
    if curve.kind.qk_factorized:
        straight, area = curve.straight(w)
        gap, _ = curve.gap(curve.separation * area / (1 + curve.odds_0))
        relative = (1 + curve.odds_0 * jnp.exp(gap)) / (1 + curve.odds_0)
        d_x = width * w_end * curve.separation * (curve.c.mu_ov_0 + straight) * relative
        x = saturation + np.tri(len(width)) @ (d_x @ WEIGHTS)
        nodes_x = jnp.concatenate([saturation[None], x[:-1]])[:, None] + d_x @ CUMULATE.T
        end_x = x[-1]
    else:
        nodes_x = None
        end_x = curve.saturation(curve.tau(w_end * edges[-1]))
    p = curve.point(w, nodes_x)
    if scale is None:
        last = curve.point(w_end * edges[-1], end_x)
        scale = frozen(last.mu_ov * last.alpha)
    density = curve.field.time_density(curve.c, p.mu_ov, p.mu_qk, scale) * p.d_omega
    return jnp.sum(density * (width * WEIGHTS)), end_x, scale


class Reading(NamedTuple):
    """log t and X at x = log w, and their derivatives in x (themselves without derivatives)."""

    x: Number
    log_t: Number
    saturation: Number
    d_log_t: Number
    d_saturation: Number


class Clock:
    """Time near x_0 = log w: one full quadrature to there, and short ones from there.

    Args:
        curve: the curve.
        still: the same without derivatives.
        x_0: log w, without derivatives.
    """

    def __init__(self, curve: Curve, still: Curve, x_0: Number):
        self.curve, self.still, self.x_0 = curve, still, x_0
        self.w_end = jnp.maximum(jnp.exp(x_0), SMALLEST)
        panels = _panels(still, self.w_end)
        self.elapsed, self.saturation, self.scale = _elapsed(curve, self.w_end, panels, jnp.zeros(()))

    def at(self, x: Number, hold: Callable = lambda v: v) -> Reading:
        """The clock at x near x_0; `hold=frozen` leaves out all derivatives."""
        elapsed, saturation = hold((self.elapsed, self.saturation))
        curve = self.still if hold is frozen else self.curve
        stretch = jnp.exp(x - self.x_0)
        edges = jnp.stack([jnp.ones(()), stretch])
        more, saturation, _ = _elapsed(curve, self.w_end, edges, saturation, self.scale)
        return self._reading(x, elapsed + more, saturation)

    def _reading(self, x: Number, elapsed: Number, saturation: Number) -> Reading:
        stretch = jnp.exp(x - self.x_0)
        still, p = self.still, self.still.point(self.w_end * stretch, frozen(saturation))
        density = still.field.time_density(still.c, p.mu_ov, p.mu_qk, self.scale) * p.d_omega
        return Reading(
            x,
            self.x_0 + self.scale + jnp.log(elapsed),
            saturation,
            frozen(density * stretch / elapsed),
            frozen(self.w_end * stretch * p.d_omega * still.separation * p.mu_ov),
        )

    def now(self) -> Reading:
        """The clock at x_0."""
        return self._reading(self.x_0, self.elapsed, self.saturation)

    def when(self, goal: Number) -> tuple[Number, Reading]:
        """x at which log t is `goal`, and the clock next to it: Newton, two inverse cubics, Newton."""
        a = frozen(self.now())
        b = frozen(self.at(a.x - (a.log_t - frozen(goal)) / a.d_log_t, frozen))
        c = frozen(self.at(_hermite(a, b, frozen(goal)), frozen))
        d = self.at(_hermite(b, c, frozen(goal)))
        return d.x - (d.log_t - goal) / d.d_log_t, d


def _hermite(a: Reading, b: Reading, goal: Number) -> Number:
    """x at log t = goal by the cubic x(log t) through both readings, or Newton's where they coincide."""
    newton = b.x - (b.log_t - goal) / b.d_log_t
    width = b.log_t - a.log_t
    apart = jnp.abs(width) > 1e-7
    h = jnp.where(apart, width, 1.0)
    s = (goal - b.log_t) / h
    chord = (b.x - a.x) / h
    first, last = chord - 1 / a.d_log_t, 1 / b.d_log_t - chord
    cubic = b.x + h * s * (1 / b.d_log_t + s * (last + (s + 1) * (last - first)))
    return jnp.where(apart, cubic, newton)
