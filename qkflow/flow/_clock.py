"""Time along the curve of the exact solution, by Gauss-Legendre quadrature in scaled form."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.flow._curve import CUMULATE, LAST, NODES, SMALLEST, WEIGHTS, Curve
from qkflow.setting import Number

PANELS = {False: 8, True: 24}
"""Panels of a full quadrature, collapsed and factorized QK (there mu_OV needs a quadrature of its own).

Over 600 random settings 6 and 16 lose one digit, more gain none.
"""

_GRID = np.concatenate([np.linspace(0, 0.9, 8)[:-1], 1 - np.geomspace(0.1, 1e-15, 24), [1.0]])


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
    """e^-scale t / w_end over panels of w / w_end, its uncertainty, X at the last edge, and the scale.

    The uncertainty is the size of the last two Legendre coefficients of the integrand; Gauss's rule, exact to
    twice their degree, errs by about its square.

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
        scale = jax.lax.stop_gradient(last.mu_ov * last.alpha)
    density = curve.field.time_density(curve.c, p.mu_ov, p.mu_qk, scale) * p.d_omega
    weighted = density * (width * WEIGHTS)
    return jnp.sum(weighted), jnp.sum(jnp.abs(weighted @ LAST)), end_x, scale


class Clock(NamedTuple):
    """Time at x = log w by a full quadrature to x_0: t = e^(x_0 + scale) elapsed.

    `doubt` is the relative uncertainty of the last panels' integrand, `saturation` X at x, and `d_log_t` the
    derivative of log t in x.
    """

    x: Number
    x_0: Number
    scale: Number
    elapsed: Number
    doubt: Number
    saturation: Number
    log_t: Number
    d_log_t: Number


def clock(curve: Curve, x: Number) -> Clock:
    """The clock at x by a full quadrature from the start."""
    unit = _unit(x)
    edges = jax.lax.stop_gradient(_panels(curve, unit))
    elapsed, doubt, saturation, scale = _elapsed(curve, unit, edges, jnp.zeros(()))
    return _clock(curve, x, x, scale, elapsed, doubt, saturation)


def moved(curve: Curve, base: Clock, x: Number) -> Clock:
    """The clock at an x near that of `base`, a full one, by a short quadrature from there."""
    edges = jnp.stack([jnp.ones(()), jnp.exp(x - base.x_0)])
    more, doubt, saturation, _ = _elapsed(curve, _unit(base.x_0), edges, base.saturation, base.scale)
    return _clock(curve, x, base.x_0, base.scale, base.elapsed + more, doubt, saturation)


def _unit(x: Number) -> Number:
    return jnp.maximum(jnp.exp(x), SMALLEST)


def _clock(curve: Curve, x, x_0, scale, elapsed, doubt, saturation) -> Clock:
    stretch = jnp.exp(x - x_0)
    p = curve.point(_unit(x_0) * stretch, saturation)
    density = curve.field.time_density(curve.c, p.mu_ov, p.mu_qk, scale) * p.d_omega
    log_t = x_0 + scale + jnp.log(elapsed)
    return Clock(x, x_0, scale, elapsed, doubt / elapsed, saturation, log_t, density * stretch / elapsed)
