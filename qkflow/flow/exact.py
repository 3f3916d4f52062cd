"""The exact solution of the reduced flow: the state at given times, losses or attention masses.

The trajectory is an explicit curve (`qkflow.flow._curve`) and time a quadrature along it,

    t = integral (dt / d omega) d omega,

in scaled form, so that no horizon is too long. A question is answered by finding its point on the curve.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.flow import derived
from qkflow.flow._clock import clock, moved
from qkflow.flow._curve import Curve, Point, gauss
from qkflow.flow.observe import ROUNDING, check_target, observe, the_target
from qkflow.setting import ArgumentError, Constants, Number, Parameterization, Problem
from qkflow.trajectory import Trajectory

NEAR = 3.0
"""A full quadrature this far in log t is continued by short ones: back from afar they would cancel."""
MOST_STEPS = 100
"""Of a root search: bisection alone would need fewer."""
_FEW, _FEW_WEIGHTS = gauss(5)


def solve_exact(
    problem: Problem,
    *,
    at_loss: Number = None,
    at_time: Number = None,
    at_log_time: Number = None,
    at_attention: Number = None,
    field: Any = derived,
) -> Trajectory:
    """The state where a loss, a time or an attention mass is reached, in closed form and one quadrature.

    Accurate to 1e-11 (relative; in log t times max(1, |log t|)) times the condition number of the question,
    at every horizon. Works under jit, vmap and grad, with derivatives in every number of the problem and in
    the target at t > 0; compiles once for each shape, parameterization, kind of target and field.

    Args:
        problem: the layer; its numbers may be arrays of a common broadcast shape S.
        at_loss: cross-entropies, shape () or (K,); a number counts as K = 1.
        at_time: times, likewise.
        at_log_time: natural logarithms of times, likewise.
        at_attention: attention masses on distinct tokens, likewise.
        field: the derived field; another module with the same functions solves another theory.

    Returns:
        Trajectory of float64 arrays of shape S + (K,), in the order asked. A target equal to the start's
        gives the start, with t = 0 and log_t = -inf.

    Raises:
        ArgumentError: unless exactly one target is given; for a question without an answer (see
            `qkflow.flow.observe.check_target`); without float64.

    >>> trajectory = solve_exact(Problem(), at_loss=1e-4)
    >>> print(f"{trajectory.mu_ov[0]:.12f} {trajectory.alpha[0]:.12f} {trajectory.t[0]:.4f}")
    20.562566708925 0.591109540107 12636915.1607
    """
    kind, target = the_target(loss=at_loss, time=at_time, log_time=at_log_time, attention=at_attention)
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError(
            'The exact solution needs float64: call jax.config.update("jax_enable_x64", True) first.'
        )
    check_target(problem, kind, target, field)
    # NumPy here and no JAX operation: dispatching those one by one would cost as much as the solution.
    c, target = Constants(*map(_float64, problem.constants)), _float64(target)
    kind, goal = ("log_time", jnp.log(target)) if kind == "time" else (kind, target)
    log_t, t, *state = _solve(c, goal, kind=kind, parameterization=problem.parameterization, field=field)
    if at_time is not None:
        t = jnp.broadcast_to(target, log_t.shape)
    return Trajectory(problem, "exact", t, log_t, *state)


def _float64(value: Number) -> Number:
    return value.astype(float) if isinstance(value, jax.Array) else np.asarray(value, float)


@functools.partial(jax.jit, static_argnames=("kind", "parameterization", "field"))
def _solve(c: Constants, target: Number, *, kind: str, parameterization: Parameterization, field: Any):
    """log t, t and the state, each of shape S + (K,)."""
    target = jnp.atleast_1d(target)
    shape = jnp.broadcast_shapes(*map(jnp.shape, c))
    flat = jax.tree.map(lambda v: jnp.broadcast_to(v, shape).reshape(-1), c)
    one = functools.partial(_answer, kind=kind, parameterization=parameterization, field=field)
    columns = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))(flat, target)
    log_t, *state = (v.reshape(*shape, *target.shape) for v in columns)
    return log_t, jnp.exp(log_t), *state


def _answer(c: Constants, target: Number, *, kind: str, parameterization: Parameterization, field: Any):
    """log t, mu_OV, mu_QK and the observables of one problem at one target (scalars)."""
    curve = Curve(field, parameterization, c)
    start = (jnp.array(-jnp.inf), c.mu_ov_0, c.mu_qk_0, *observe(field, c, c.mu_ov_0, c.mu_qk_0))
    _, _, _, alpha_0, _, log_loss_0 = start
    if kind == "loss":
        goal = jnp.log(c.n_classes - 1) - jnp.log(jnp.expm1(target)) - alpha_0 * c.mu_ov_0
        at_start = (target >= jnp.exp(log_loss_0) * (1 - ROUNDING)) | (goal <= 0)
    elif kind == "attention":
        goal = jnp.log(target) - jnp.log1p(-target) - field.log_odds(c, c.mu_qk_0)
        at_start = (target <= alpha_0 * (1 + ROUNDING)) | (goal <= 0)
    else:
        goal = target
        at_start = target == -jnp.inf
    goal = jnp.where(at_start, 1.0, goal)
    x = _root(kind, parameterization, field, c, goal)
    p = curve.point(jnp.exp(x))
    if kind == "log_time":
        log_t = goal
    else:
        # From z = 1e12 on log t is z but for less than 1e-10 of it, and a float resolves no exponential of z.
        z, log_t = p.alpha * p.mu_ov, clock(curve, x).log_t
        log_t = jnp.where(z > 1e12, z, jnp.where(jnp.isfinite(log_t), log_t, jnp.nan))
    answer = (log_t, p.mu_ov, p.mu_qk, *observe(field, c, p.mu_ov, p.mu_qk))
    return tuple(jnp.where(at_start, a, b) for a, b in zip(start, answer))


# Questions: the x = log w at which something has a given value


def _measure(kind: str, curve: Curve, x: Number) -> Number:
    """What a question of this kind fixes: the rise of z, the rise of mu_QK, or log t."""
    if kind == "loss":
        return _rise(curve, x)[0]
    if kind == "attention":
        return curve.gap(curve.tau(jnp.exp(x)))[0]
    return clock(curve, x).log_t


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _root(kind: str, parameterization: Parameterization, field: Any, c: Constants, goal: Number) -> Number:
    """x at which `_measure` is `goal`, found by search and differentiated as an implicit function."""
    curve = Curve(field, parameterization, c)
    return {"loss": _x_of_rise, "attention": _x_of_gap, "log_time": _x_of_log_time}[kind](curve, goal)


@_root.defjvp
def _implicit(kind, parameterization, field, primals, tangents):
    (c, goal), (c_dot, goal_dot) = primals, tangents
    x = _root(kind, parameterization, field, c, goal)

    def measure(c, x):
        return _measure(kind, Curve(field, parameterization, c), x)

    _, slope = jax.jvp(functools.partial(measure, c), (x,), (jnp.ones_like(x),))
    _, by_c = jax.jvp(lambda c: measure(c, x), (c,), (c_dot,))
    return x, (goal_dot - by_c) / slope


class _Search(NamedTuple):
    """A root search: the next x, the bracket of the signs seen, the size of the last step, steps taken."""

    x: Number
    low: Number
    high: Number
    step: Number
    count: Number


def _search(x: Number) -> _Search:
    return _Search(x, -jnp.inf, jnp.inf, jnp.inf, 0)


def _newton(search: _Search, value: Number, slope: Number) -> _Search:
    """A step towards the root of an increasing function: Newton's while it shrinks, else half the bracket.

    It is at most 3, and shrinks when it is half the last one or less: two steps that lead to and fro across a
    bend would move the ends of the bracket by less and less.
    """
    x = search.x
    low, high = jnp.where(value < 0, x, search.low), jnp.where(value < 0, search.high, x)
    step = value / slope
    new = x - jnp.where(jnp.isfinite(step), jnp.clip(step, -3, 3), 3.0)
    outside = (new != x) & ((new <= low) | (new >= high))
    slow = jnp.isfinite(high - low) & (jnp.abs(new - x) > 0.5 * search.step)
    new = jnp.where(outside | slow, 0.5 * (low + high), new)
    return _Search(new, low, high, jnp.abs(new - x), search.count + 1)


def _descend(f: Callable[[Number], tuple[Number, Number]], x: Number, near: float) -> Number:
    """Root of an increasing f, from a start above it, by steps until one is below `near` max(1, |x|)."""

    def unfinished(s):
        return ~(s.step <= near * jnp.maximum(1.0, jnp.abs(s.x)))

    last = jax.lax.while_loop(
        lambda s: unfinished(s) & (s.count < MOST_STEPS), lambda s: _newton(s, *f(s.x)), _search(x)
    )
    return jnp.where(unfinished(last), jnp.nan, last.x)


def _rise(curve: Curve, x: Number) -> tuple[Number, Number, Point]:
    """z - z(0) at x = log w without cancellation, its derivative in x, and the point."""
    w = jnp.exp(x)
    p = curve.point(w)
    rise = p.alpha * (p.mu_ov_rise - curve.c.mu_ov_0 * curve.rest_0 * jnp.expm1(-p.gap))
    slope = w * p.alpha * (curve.rescaling(p.mu_ov) * p.d_omega + p.rest * p.mu_ov * p.d_gap)
    return rise, slope, p


def _x_of_rise(curve: Curve, goal: Number) -> Number:
    """x at which z has risen by `goal`."""

    def f(x):
        rise, slope, _ = _rise(curve, x)
        return jnp.log(rise / goal), slope / rise

    return _descend(f, jnp.log(curve.w_bound(goal / curve.alpha_0)), near=4e-16)


def _x_of_gap(curve: Curve, goal: Number) -> Number:
    """x at which mu_QK has risen by `goal`."""

    def f(y):
        gap, slope = curve.gap(jnp.exp(y))
        return jnp.log(gap / goal), slope * jnp.exp(y) / gap

    y = _descend(f, jnp.log(curve.tau_bound(goal)), near=4e-16)
    return jnp.log(curve.w_of_tau(jnp.exp(y)))


def _x_of_log_time(curve: Curve, goal: Number) -> Number:
    """x at which log t is `goal`: a full quadrature, then short ones from it where they can be trusted."""

    # Newton's step from a distance e ends within about e^2: the last one need not be looked at.
    close = 1e-8 * jnp.maximum(1.0, jnp.abs(goal))

    def step(search, now):
        # Where the state overflows, time is later than any.
        late = jnp.where(jnp.isfinite(now.log_t), now.log_t - goal, jnp.inf)
        return _newton(search, late, now.d_log_t)

    def full(carry):
        search, _ = carry
        base = clock(curve, search.x)
        off = jnp.abs(base.log_t - goal)

        def short(carry):
            search, _, _ = carry
            now = moved(curve, base, search.x)
            sure = now.doubt < 1e-8
            after = jax.tree.map(functools.partial(jnp.where, sure), step(search, now), search)
            return after, jnp.where(sure, jnp.abs(now.log_t - goal), jnp.inf), sure

        search, off, _ = jax.lax.while_loop(
            lambda carry: carry[2] & ~(carry[1] < close) & (carry[0].count < MOST_STEPS),
            short,
            (step(search, base), off, off < NEAR),
        )
        return search, off

    search, off = jax.lax.while_loop(
        lambda carry: ~(carry[1] < close) & (carry[0].count < MOST_STEPS),
        full,
        (_search(_x_near_time(curve, goal)), jnp.full_like(goal, jnp.inf)),
    )
    return jnp.where(off < close, search.x, jnp.nan)


def _x_near_time(curve: Curve, goal: Number) -> Number:
    """x = log w where log t is `goal` within a unit or two (median .01), from an estimate of t.

    Early, t is the start's pace times w; late, the last of an exponential: dt/dz (1 - e^(z(0) - z)).
    """
    c, field = curve.c, curve.field
    z_0 = curve.alpha_0 * c.mu_ov_0
    pace = z_0 + jnp.log(field.time_density(c, c.mu_ov_0, c.mu_qk_0, z_0))
    onset = pace - jnp.log(curve.alpha_0 * curve.rescaling_0)

    def bend(log_t):  # about linear in x: log t itself early on, then log log t; and its derivative
        v = log_t - onset
        soft = jnp.logaddexp(v, 0.0)
        early = v < -30
        return jnp.where(early, v, jnp.log(soft)), jnp.where(early, 1.0, jax.nn.sigmoid(v) / soft)

    def f(x):
        rise, slope, p = _rise(curve, x)
        z = z_0 + rise
        d_log_t = x + z + jnp.log(field.time_density(c, p.mu_ov, p.mu_qk, z) * p.d_omega)
        early = x + pace + jnp.log(_slowness(curve, jnp.exp(x)))
        late = d_log_t + jnp.log(-jnp.expm1(-rise) / slope)
        log_t = jnp.fmax(early, late)
        value, bent = bend(log_t)
        return value - bend(goal)[0], bent * jnp.exp(jnp.minimum(d_log_t - log_t, 50.0))

    log_scaled = goal + jnp.log(c.lr_ov * curve.alpha_0 / c.n_distinct_vocab) - z_0
    rise = 1e30
    for _ in range(3):  # e^(alpha_0 rise) <= 1 + e^log_scaled R_OV(mu_OV)
        rise = jnp.logaddexp(0.0, log_scaled + jnp.log(curve.rescaling(c.mu_ov_0 + rise))) / curve.alpha_0
    first = jnp.where(rise < 1e-100, goal - pace, jnp.log(curve.w_bound(jnp.maximum(rise, 1e-100))))
    return _descend(f, first, near=1e-3)


def _slowness(curve: Curve, w: Number) -> Number:
    """About the mean of (alpha_0 / alpha) d omega / dw over [0, w]."""
    p = curve.point(w * _FEW, curve.chord(curve.tau(w * _FEW)))
    return jnp.sum(curve.alpha_0 / p.alpha * p.d_omega * _FEW_WEIGHTS)
