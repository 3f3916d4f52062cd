"""The exact solution of the reduced flow: the state at given times, losses or attention masses.

The trajectory is an explicit curve (`qkflow.flow._curve`) and time a quadrature along it,

    t = integral (dt / d omega) d omega,

in scaled form, so that no horizon is too long. A question is answered by finding its point on the curve, once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.flow import derived
from qkflow.flow._curve import CUMULATE, NODES, SMALLEST, WEIGHTS, Curve, Point
from qkflow.flow.observe import ROUNDING, check_target, observe, the_target
from qkflow.setting import ArgumentError, Constants, Number, Parameterization, Problem
from qkflow.trajectory import Trajectory

PANELS = {False: 8, True: 24}
"""Panels of a full quadrature, collapsed and factorized QK (there mu_OV needs a quadrature of its own)."""
_FEW, _FEW_WEIGHTS = (
    (np.polynomial.legendre.leggauss(5)[0] + 1) / 2,
    np.polynomial.legendre.leggauss(5)[1] / 2,
)
_GRID = np.concatenate([np.linspace(0, 0.9, 8)[:-1], 1 - np.geomspace(0.1, 1e-15, 24), [1.0]])
frozen = jax.lax.stop_gradient


def solve_exact(
    problem: Problem,
    *,
    at_loss: Number = None,
    at_time: Number = None,
    at_log_time: Number = None,
    at_attention: Number = None,
    field: Any = derived,
) -> Trajectory:
    kind, target = the_target(loss=at_loss, time=at_time, log_time=at_log_time, attention=at_attention)
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError(
            'The exact solution needs float64: call jax.config.update("jax_enable_x64", True) first.'
        )
    check_target(problem, kind, target, field)
    # NumPy here and no JAX operation: dispatching those one by one would cost as much as the solution.
    c, target = jax.tree.map(_float64, (problem.constants, target))
    log_t, t, *state = _solve(c, target, kind=kind, parameterization=problem.parameterization, field=field)
    return Trajectory(problem, "exact", t, log_t, *state)


def _float64(value: Number) -> Number:
    return value.astype(float) if isinstance(value, jax.Array) else np.asarray(value, float)


@functools.partial(jax.jit, static_argnames=("kind", "parameterization", "field"))
def _solve(c: Constants, target: Number, *, kind: str, parameterization: Parameterization, field: Any):
    """log t, t and the state, each of shape S + (K,)."""
    target = jnp.atleast_1d(target)
    shape = jnp.broadcast_shapes(*map(jnp.shape, c))
    flat = jax.tree.map(lambda v: jnp.broadcast_to(v, shape).reshape(-1), c)
    goal = jnp.log(target) if kind == "time" else target
    one = functools.partial(
        _answer, kind="log_time" if kind == "time" else kind, parameterization=parameterization, field=field
    )
    columns = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(flat, goal)
    log_t, *state = (v.reshape(*shape, *target.shape) for v in columns)
    t = jnp.broadcast_to(target, log_t.shape) if kind == "time" else jnp.exp(log_t)
    return log_t, t, *state


def _answer(c: Constants, target: Number, *, kind: str, parameterization: Parameterization, field: Any):
    """log t, mu_OV, mu_QK and the observables of one problem at one target (scalars)."""
    curve = Curve(field, parameterization, c)
    start = (jnp.array(-jnp.inf), c.mu_ov_0, c.mu_qk_0, *observe(field, c, c.mu_ov_0, c.mu_qk_0))
    if kind == "log_time":
        at_start = target == -jnp.inf
        goal = jnp.where(at_start, 0.0, target)
    elif kind == "loss":
        at_start = target >= jnp.exp(start[5]) * (1 - ROUNDING)
        goal = jnp.log(c.n_classes - 1) - jnp.log(jnp.expm1(target)) - curve.alpha_0 * c.mu_ov_0
        at_start |= goal <= 0
        goal = jnp.where(at_start, 1.0, goal)
    else:
        at_start = target <= start[3] * (1 + ROUNDING)
        goal = jnp.log(target) - jnp.log1p(-target) - field.log_odds(c, c.mu_qk_0)
        at_start |= goal <= 0
        goal = jnp.where(at_start, 1.0, goal)
    still = Curve(field, parameterization, frozen(c))
    if kind == "loss":
        x = _x_of_rise(curve, still, goal)
    elif kind == "attention":
        x = _x_of_gap(curve, still, goal)
    else:
        x = _x_near_time(still, frozen(goal))
    clock = _Clock(curve, still, frozen(x))
    if kind == "log_time":
        x, reading = clock.when(goal)
        log_t = goal
    else:
        reading = clock.now()
        log_t = reading.log_t + reading.pace * (x - reading.x)
    p = curve.point(jnp.exp(x), reading.saturation + reading.saturating * (x - reading.x))
    answer = (log_t, p.mu_ov, p.mu_qk, *observe(field, c, p.mu_ov, p.mu_qk))
    return tuple(jnp.where(at_start, a, b) for a, b in zip(start, answer))


# Time along the curve


def _elapsed(curve: Curve, w_end: Number, edges: Number, saturation: Number, scale: Number | None = None):
    """Integrals over panels of w / w_end: e^-scale t / w_end and X at the last edge, and the scale.

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
    z = u * alpha
    late_z = jnp.maximum(z - z[-1] + 45, 0)
    if curve.kind.qk_factorized:
        steep = jnp.maximum(jnp.log(x / x[-1] + 1e-16) + 36, 0) / 4
    else:
        steep = gap / 10
    monitor = late_z / 10 + jnp.log1p(late_z) + steep + jnp.log1p(1e4 * gap) / 3 + 3 * alpha + 0.5 * _GRID
    d_monitor = jnp.diff(monitor)
    levels = monitor[0] + (monitor[-1] - monitor[0]) * np.arange(1, count)[:, None] / count
    covered = jnp.clip((levels - monitor[:-1]) / jnp.maximum(d_monitor, 1e-30), 0, 1)
    return jnp.concatenate([jnp.zeros(1), covered @ np.diff(_GRID), jnp.ones(1)])


def _descend(f: Callable[[Number], tuple[Number, Number]], x: Number, count: int) -> Number:
    """Root of an increasing f from a start above it: Newton, kept between the signs seen."""

    def body(_, carry):
        low, high, x = carry
        value, slope = f(x)
        low, high = jnp.where(value < 0, x, low), jnp.where(value < 0, high, x)
        step = value / slope
        new = x - jnp.where(jnp.isfinite(step), jnp.clip(step, -3, 3), 3.0)
        return low, high, jnp.where((new < low) | (new > high), 0.5 * (low + high), new)

    return jax.lax.fori_loop(0, count, body, (-jnp.inf, jnp.inf, x))[2]


def _rise(curve: Curve, x: Number) -> tuple[Number, Number, Point]:
    """z - z(0) at x = log w without cancellation, its derivative in x, and the point."""
    w = jnp.exp(x)
    p = curve.point(w)
    rise = p.alpha * (p.mu_ov_rise - curve.c.mu_ov_0 * curve.rest_0 * jnp.expm1(-p.gap))
    slope = w * p.alpha * (curve.rescaling(p.mu_ov) * p.d_omega + p.rest * p.mu_ov * p.d_gap)
    return rise, slope, p


def _x_of_rise(curve: Curve, still: Curve, goal: Number) -> Number:
    """x = log w at which z has risen by `goal`."""
    target = frozen(goal)

    def f(x):
        rise, slope, _ = _rise(still, x)
        return jnp.log(rise / target), slope / rise

    x = _descend(f, jnp.log(still.w_bound(target / still.alpha_0)), 14)
    rise, slope, _ = _rise(curve, x)
    return x - (rise - goal) / frozen(slope)


def _x_of_gap(curve: Curve, still: Curve, goal: Number) -> Number:
    """x = log w at which mu_QK has risen by `goal`."""
    target = frozen(goal)

    def f(y):
        gap, slope = still.gap(jnp.exp(y))
        return jnp.log(gap / target), slope * jnp.exp(y) / gap

    y = _descend(f, jnp.log(still.tau_bound(target)), 8)
    gap, slope = curve.gap(jnp.exp(y))
    y = y - (gap - goal) / frozen(slope * jnp.exp(y))
    return jnp.log(curve.w_of_tau(jnp.exp(y)))


def _x_near_time(still: Curve, goal: Number, count: int = 8) -> Number:
    """x = log w where log t is about `goal`, within a few units."""
    c, field = still.c, still.field
    z_0 = still.alpha_0 * c.mu_ov_0
    pace = z_0 + jnp.log(field.time_density(c, c.mu_ov_0, c.mu_qk_0, z_0))
    onset = pace - jnp.log(still.alpha_0 * still.rescaling_0)

    def bend(log_t):
        v = log_t - onset
        soft = jnp.logaddexp(v, 0.0)
        early = v < -30
        return jnp.where(early, v, jnp.log(soft)), jnp.where(early, 1.0, jax.nn.sigmoid(v) / soft)

    target = bend(goal)[0]

    def f(x):
        rise, slope, p = _rise(still, x)
        w = jnp.exp(x)
        z = z_0 + rise
        density = z + jnp.log(field.time_density(c, p.mu_ov, p.mu_qk, z) * p.d_omega)
        early = x + pace + jnp.log(_slowness(still, w))
        late = x + density + jnp.log(-jnp.expm1(-rise) / slope)
        log_t = jnp.fmax(early, late)
        value, bent = bend(log_t)
        return value - target, bent * jnp.exp(jnp.minimum(x + density - log_t, 50.0))

    log_scaled = goal + jnp.log(c.lr_ov * still.alpha_0 / c.n_distinct_vocab) - z_0
    rise = 1e30
    for _ in range(3):  # e^(alpha_0 rise) <= 1 + e^log_scaled R_OV(mu_OV)
        rise = jnp.logaddexp(0.0, log_scaled + jnp.log(still.rescaling(c.mu_ov_0 + rise))) / still.alpha_0
    first = jnp.where(rise < 1e-100, goal - pace, jnp.log(still.w_bound(jnp.maximum(rise, 1e-100))))
    return _descend(f, first, count)


def _slowness(still: Curve, w: Number) -> Number:
    """About the mean of (alpha_0 / alpha) d omega / dw over [0, w]."""
    p = still.point(w * _FEW, still.chord(still.tau(w * _FEW)))
    return jnp.sum(still.alpha_0 / p.alpha * p.d_omega * _FEW_WEIGHTS)


class _Clock:
    """Time near x_0: one full quadrature to x_0 = log w, and short ones from there."""

    def __init__(self, curve: Curve, still: Curve, x_0: Number):
        self.curve, self.still, self.x_0 = curve, still, x_0
        self.w_end = jnp.maximum(jnp.exp(x_0), SMALLEST)
        panels = _panels(still, self.w_end)
        self.elapsed, self.saturation, self.scale = _elapsed(curve, self.w_end, panels, jnp.zeros(()))

    def at(self, x: Number, hold: Callable = lambda v: v) -> _Reading:
        """The clock at x."""
        elapsed, saturation = hold((self.elapsed, self.saturation))
        curve = self.still if hold is frozen else self.curve
        stretch = jnp.exp(x - self.x_0)
        edges = jnp.stack([jnp.ones(()), stretch])
        more, saturation, _ = _elapsed(curve, self.w_end, edges, saturation, self.scale)
        return self._reading(x, elapsed + more, saturation)

    def _reading(self, x, elapsed, saturation):
        stretch = jnp.exp(x - self.x_0)
        still, p = self.still, self.still.point(self.w_end * stretch, frozen(saturation))
        density = still.field.time_density(still.c, p.mu_ov, p.mu_qk, self.scale) * p.d_omega
        return _Reading(
            x,
            self.x_0 + self.scale + jnp.log(elapsed),
            saturation,
            frozen(density * stretch / elapsed),
            frozen(self.w_end * stretch * p.d_omega * still.separation * p.mu_ov),
        )

    def now(self) -> _Reading:
        """The clock at x_0."""
        return self._reading(self.x_0, self.elapsed, self.saturation)

    def when(self, goal: Number) -> tuple[Number, _Reading]:
        """x at which log t is `goal`, and the clock close to it."""
        a = frozen(self.now())
        b = frozen(self.at(a.x - (a.log_t - frozen(goal)) / a.pace, frozen))
        c = frozen(self.at(_hermite(a, b, frozen(goal)), frozen))
        d = self.at(_hermite(b, c, frozen(goal)))
        return d.x - (d.log_t - goal) / d.pace, d


class _Reading(NamedTuple):
    """log t and X at x = log w, and their derivatives in x."""

    x: Number
    log_t: Number
    saturation: Number
    pace: Number
    saturating: Number


def _hermite(a: _Reading, b: _Reading, goal: Number) -> Number:
    """x at log t = goal by the cubic x(log t) through both readings, or Newton's where they coincide."""
    newton = b.x - (b.log_t - goal) / b.pace
    width = b.log_t - a.log_t
    apart = jnp.abs(width) > 1e-7
    h = jnp.where(apart, width, 1.0)
    s = (goal - b.log_t) / h
    chord = (b.x - a.x) / h
    first, last = (chord - 1 / a.pace), (1 / b.pace - chord)
    # Hermite in Newton's form, from b
    x = b.x + h * s * (1 / b.pace + (s) * (last + (s + 1) * (last - first)))
    return jnp.where(apart, x, newton)
