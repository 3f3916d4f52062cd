r"""The flow with the attention held fixed, in closed form, and what sharper attention would be worth.

With the attention mass alpha on distinct tokens held fixed only the OV circuit learns. With z = alpha mu_OV
the derived field, d mu_OV/dt = eta_OV R_OV(mu_OV) alpha / (b (e^z + M - 1)), separates:

    collapsed              e^z - e^z0 + (M-1) (z - z0)           = eta_OV alpha^2 t / b
    factorized, balanced   Ei(z) - Ei(z0) + (M-1) log(z / z0)    = 2 eta_OV alpha t / sqrt(b)

with z0 = alpha mu_OV(0). Both are one equation in omega, d omega = d mu_OV / R_OV:

    (M-1) omega + integral_0^omega e^z d omega = eta_OV alpha t / b.

Its left side is a power series in omega with positive coefficients, so its logarithm is convex in log omega
and Newton's method ends from any start. It is kept as e^-z times itself; for factorized circuits

    e^-z (Ei(z) - log z - Ei(z0) + log z0) = integral_0^(z - z0) e^-u (1 - e^-(z-u)) / (z-u) du,

an integral of positive, entire functions, of which the first 42 units of u are all that float64 sees.

Source: Vashisht and Ramaswamy (2026), where Figure 3 measures L and its finite difference in alpha at given
weights; the closed forms and the incentive along training are derived here.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from qkflow.flow import derived
from qkflow.flow._curve import NODES, WEIGHTS, once
from qkflow.flow.observe import check_target, the_target
from qkflow.setting import ArgumentError, Number, Problem, require

_EDGES = np.array([0.0, 6.0, 18.0, 42.0]) / 42.0
_BACK = (_EDGES[:-1, None] + np.diff(_EDGES)[:, None] * NODES).ravel()
_BACK_WEIGHTS = (np.diff(_EDGES)[:, None] * WEIGHTS).ravel()
_SMALLEST = 1e-305
"""A rise of omega below this is none."""
_FAR = 1e16
_MOST_STEPS = 60
"""Of Newton's method; 400,000 random settings took 10 at most."""


class FixedAttention(NamedTuple):
    """What a layer has learnt with its attention held fixed; float64 arrays of shape S + (A, K).

    Where e^-z underflows the incentives are 0; the loss is kept in its logarithm.

    Args:
        mu_ov: logit gap per unit of attention.
        z: alpha mu_ov, the logit gap.
        log_loss: log of the cross-entropy L.
        loss: L = log(1 + (M-1) e^-z); 0 where that underflows.
        partial_incentive: -dL/dalpha at given weights, (M-1) mu_ov / (e^z + M - 1): what a step of the
            attention alone would gain.
        total_incentive: -dL/dalpha at a given time, the weights being those that this alpha has led to:
            what training with sharper attention from the start would have gained.
    """

    mu_ov: Number
    z: Number
    log_loss: Number
    loss: Number
    partial_incentive: Number
    total_incentive: Number


def fixed_attention(
    problem: Problem, alpha: Number, *, at_time: Number = None, at_log_time: Number = None
) -> FixedAttention:
    """The layer at given times with the attention mass held at alpha and only the OV circuit learning.

    Accurate to 3e-13 times the condition number of the question, from t = 1e-300 to log t = 1e6. Works under
    jit, vmap and grad, with derivatives in every number (take that of `log_loss` where the loss is below
    1e-200: products of tiny numbers underflow); compiles once for each shape and kind of OV circuit.

    Args:
        problem: the layer. Only its M, b, eta_OV, mu_OV(0) and the kind of its OV circuit are read, numbers
            or arrays of a common broadcast shape S; its QK circuit stands still.
        alpha: attention masses on distinct tokens, above 0 and at most 1, shape () or (A,); a number counts
            as A = 1.
        at_time: times, shape () or (K,), likewise.
        at_log_time: natural logarithms of times, likewise.

    Returns:
        FixedAttention of arrays of shape S + (A, K).

    Raises:
        ArgumentError: unless exactly one of the times is given; for an alpha or a time out of range, an
            imbalance (there is no closed form), a factorized OV circuit started at 0; without float64.
        FloatingPointError: where the answer is beyond the range of float64.

    >>> found = fixed_attention(Problem(), [0.2, 1.0], at_time=1e4)
    >>> found.loss.ravel().round(4).tolist()
    [2.6242, 0.1574]
    """
    kind, target = the_target(time=at_time, log_time=at_log_time)
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError(
            'Fixed attention needs float64: call jax.config.update("jax_enable_x64", True) first.'
        )
    check_target(problem, kind, target, derived)
    require("alpha", alpha, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1")
    if np.ndim(alpha) > 1:
        raise ArgumentError(
            f"Argument `alpha` must be a number or one row of numbers, but has {np.ndim(alpha)} axes."
        )
    c, factorized = problem.constants, problem.parameterization.ov_factorized
    require(
        "imbalance_ov", c.imbalance_ov, lambda x: x == 0, "0, for only balanced factors have a closed form"
    )
    if factorized:  # copies of a Problem are not checked by themselves
        require("mu_ov_0", c.mu_ov_0, lambda x: x > 0, "positive for a balanced factorized OV circuit")
    numbers = (
        jnp.asarray(v, float)[..., None, None] for v in (c.n_classes, c.n_distinct_vocab, c.lr_ov, c.mu_ov_0)
    )
    alpha, target = (jnp.atleast_1d(jnp.asarray(v, float)) for v in (alpha, target))
    found = _solve(*numbers, alpha[:, None], target, kind=kind, factorized=factorized)
    if not isinstance(found.mu_ov, Tracer) and np.isnan(found.total_incentive).any():
        raise FloatingPointError("Fixed attention is not a number somewhere: beyond the range of float64.")
    return found


class _Given(NamedTuple):
    """The numbers of one question, scalars, some under the names that the derived field reads."""

    n_classes: Number
    n_distinct_vocab: Number
    lr_ov: Number
    mu_ov_0: Number
    alpha: Number
    time: Number  # t = time e^log_unit
    log_unit: Number
    imbalance_ov: Number = 0.0


class _Place(NamedTuple):
    """Where the layer is at some omega."""

    mu_ov: Number
    z: Number
    z_rise: Number  # z - z0
    elapsed: Number  # e^-z eta_OV alpha t / b


@functools.partial(jax.jit, static_argnames=("kind", "factorized"))
def _solve(n_classes, n_distinct_vocab, lr_ov, mu_ov_0, alpha, target, *, kind: str, factorized: bool):
    # A float for its digits; later a logarithm, for derivatives of a tiny loss are divided by this float.
    if kind == "time":
        time, log_unit = jnp.minimum(target, _FAR), jnp.log(jnp.maximum(target / _FAR, 1.0))
    else:
        time, log_unit = jnp.exp(jnp.minimum(target, np.log(_FAR))), jnp.maximum(target - np.log(_FAR), 0.0)
    answer = jnp.vectorize(lambda *numbers: _answer(factorized, _Given(*numbers)))
    return FixedAttention(*answer(n_classes, n_distinct_vocab, lr_ov, mu_ov_0, alpha, time, log_unit))


def _answer(factorized: bool, n: _Given) -> FixedAttention:
    p = _place(factorized, n, _root(factorized, n))
    tail = (n.n_classes - 1) * jnp.exp(-p.z)
    wrong = tail / (1 + tail)  # probability of the wrong classes, -dL/dz
    first = jnp.exp(-p.z_rise) + tail  # e^-z (e^z0 + M - 1)
    if factorized:
        by_alpha = p.mu_ov * (first + _rate(n) * p.elapsed) / (1 + tail)  # dz/dalpha at given t
    else:
        by_alpha = (n.mu_ov_0 * first + 2 * p.elapsed) / (1 + tail)
    log_loss = derived.log_loss(n, p.z)
    return FixedAttention(p.mu_ov, p.z, log_loss, jnp.exp(log_loss), wrong * p.mu_ov, wrong * by_alpha)


def _rate(n: _Given) -> Number:
    """R_OV / mu_OV of balanced factors."""
    return derived.rescaling_ov(n, 1.0)


def _place(factorized: bool, n: _Given, omega: Number) -> _Place:
    z_0 = n.alpha * n.mu_ov_0
    if factorized:
        growth = jnp.expm1(_rate(n) * omega)
        mu_ov, z_rise = n.mu_ov_0 * (1 + growth), z_0 * growth
        z = z_0 + z_rise
        back = jnp.minimum(z_rise, 42.0)
        u = back * _BACK
        curved = back * jnp.sum(jnp.exp(-u) * _mean_decay(z - u) * _BACK_WEIGHTS)
        exponential = omega * jnp.exp(-z) + curved / _rate(n)
    else:
        mu_ov, z_rise = n.mu_ov_0 + omega, n.alpha * omega
        z = z_0 + z_rise
        exponential = omega * _mean_decay(z_rise)
    return _Place(mu_ov, z, z_rise, exponential + (n.n_classes - 1) * omega * jnp.exp(-z))


def _mean_decay(v: Number) -> Number:
    """(1 - e^-v) / v for v >= 0, its derivative likewise without cancellation that matters."""
    small = v < 1e-5
    safe = jnp.where(small, 1.0, v)
    return jnp.where(small, 1 - v / 2 + v * v / 6, -jnp.expm1(-safe) / safe)


def _excess(factorized: bool, n: _Given, omega: Number) -> tuple[Number, Number]:
    """log of the time that omega takes over the time that is asked for, and its derivative in log omega."""
    p = _place(factorized, n, omega)
    # In units of omega logarithms have no rounding, nor their derivatives squares of tiny numbers, which XLA
    # would make of quotients that it sees through.
    pace = once(p.elapsed / omega)
    goal = once(n.lr_ov * n.alpha / n.n_distinct_vocab * n.time)
    excess = jnp.log(pace) - jnp.log(once(goal / omega)) + (p.z - n.log_unit)
    return excess, (1 + (n.n_classes - 1) * jnp.exp(-p.z)) / pace


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _root(factorized: bool, n: _Given) -> Number:
    """omega at the time asked for: Newton's method, and the implicit function's derivative."""
    first = _bound(factorized, n)

    def step(carry):
        omega, _, count = carry
        excess, slope = _excess(factorized, n, omega)
        size = excess / slope
        return omega * jnp.exp(-size), jnp.abs(size), count + 1

    # A step of size e leaves an error of about e^2.
    omega, size, _ = jax.lax.while_loop(
        lambda carry: ~(carry[1] < 1e-9) & (carry[2] < _MOST_STEPS),
        step,
        (first, jnp.where(first < _SMALLEST, 0.0, jnp.inf), 0),
    )
    return jnp.where(first < _SMALLEST, 0.0, jnp.where(size < 1e-9, omega, jnp.nan))


@_root.defjvp
def _implicit(factorized, primals, tangents):
    (n,), (n_dot,) = primals, tangents
    omega = _root(factorized, n)
    moves = omega != 0
    at = jnp.where(moves, omega, 1.0)
    n = n._replace(time=jnp.where(moves, n.time, 1.0))
    (_, slope), (by_n, _) = jax.jvp(lambda n: _excess(factorized, n, at), (n,), (n_dot,))
    return omega, -omega / slope * jnp.where(moves, by_n, 0.0)


def _bound(factorized: bool, n: _Given) -> Number:
    """An omega at the one asked for or a little beyond: the lesser of a linear and an exponential bound."""
    z_0 = n.alpha * n.mu_ov_0
    log_pace = jnp.log(n.lr_ov * n.alpha / n.n_distinct_vocab * n.time) + n.log_unit
    linear = jnp.exp(log_pace - jnp.logaddexp(z_0, jnp.log(n.n_classes - 1)))
    if factorized:  # e^z - e^z0 <= z (Ei(z) - Ei(z0))
        log_pace = log_pace + jnp.log(_rate(n))
        z = 1e30
        for _ in range(3):
            z = jnp.logaddexp(z_0, log_pace + jnp.log(z))
        log_growth = log_pace + jnp.log(z) - z_0
        late = jnp.log1p(jnp.logaddexp(0.0, log_growth) / z_0) / _rate(n)
    else:
        log_growth = log_pace + jnp.log(n.alpha) - z_0
        late = jnp.logaddexp(0.0, log_growth) / n.alpha
    return jnp.where(log_growth < -30, linear, jnp.minimum(linear, late))
