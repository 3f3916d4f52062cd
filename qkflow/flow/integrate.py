"""Integration of the derived field with diffrax, in s = log(1 + t), stopping at times, losses or masses."""

from __future__ import annotations

import functools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from qkflow.flow import derived
from qkflow.flow.observe import ROUNDING, check_target, observe, the_target
from qkflow.setting import ArgumentError, Constants, Parameterization, Problem, require
from qkflow.trajectory import Trajectory

LAST_LOG_TIME = 1e5
"""Beyond this log t an explicit solver needs more than 1e5 steps; the exact solution has no such limit."""
MAX_STEPS = 200_000
"""Of one integration: a flow that needs more, such as a wrong one that never learns, has no answer."""
NEWTON_STEPS = 12
"""Polishing takes 3 to 5; beyond this many it hovers at the rounding of the state."""


def integrate(
    problem: Problem,
    *,
    at_loss: Any = None,
    at_time: Any = None,
    at_log_time: Any = None,
    at_attention: Any = None,
    solver: diffrax.AbstractSolver | None = None,
    rtol: float = 1e-10,
    field: Any = derived,
) -> Trajectory:
    """Follow the reduced flow step by step from the start to every target.

    The state is mu_OV and, for a collapsed QK circuit, mu_QK; for a factorized one its two amplitudes
    sigma_1, sigma_2:

        d mu_OV / dt = R_OV drive_OV,  d mu_QK / dt = beta (1/b + 1/B) drive_QK,
        d sigma_i / dt = nu_i R_QK(sigma_i) drive_QK.

    The targets are visited in order of time, each integration starting where the last one ended. For a loss
    or an attention mass an event ends it with the first step beyond the target; from there Newton's method
    integrates back to it, so that the solver's interpolant, of lower order than its steps, is never used.

    Args:
        problem: numbers may be arrays with a common batch shape S.
        at_loss, at_time, at_log_time, at_attention: exactly one of them, a number or K numbers.
        solver: a diffrax solver with an error estimate; `None` is `diffrax.Dopri8()`.
        rtol: relative tolerance of a step; the absolute one is 1e-6 of it, below any start that is not 0.
        field: where the derived functions come from.

    Returns:
        A `Trajectory` of shape S + (K,), float64 under x64, its `stats` counting steps.

    Raises:
        ArgumentError: for a target without an answer, one beyond log t = 1e5, or an `rtol` that the dtype
            in use cannot carry (in float32 the default).

    >>> import jax; jax.config.update("jax_enable_x64", True)
    >>> float(integrate(Problem(), at_loss=1e-4).mu_ov[0])  # doctest: +ELLIPSIS
    20.562566...
    """
    solver = diffrax.Dopri8() if solver is None else solver
    smallest = 100 * float(jnp.finfo(jnp.result_type(float)).eps)
    dtype = jnp.result_type(float).name
    require(
        "rtol", rtol, lambda x: (x >= smallest) & (x <= 1e-2), f"between {smallest:.1e} ({dtype}) and .01"
    )
    if not isinstance(solver, diffrax.AbstractAdaptiveSolver):
        raise ArgumentError(f"Argument `solver` must have an error estimate, but is {type(solver).__name__}.")
    if any(
        isinstance(leaf, Tracer)
        for leaf in jax.tree.leaves((problem, at_loss, at_time, at_log_time, at_attention))
    ):
        raise ArgumentError(
            "Integration needs concrete numbers: under jit, grad or vmap take the method exact."
        )
    kind, target = the_target(loss=at_loss, time=at_time, log_time=at_log_time, attention=at_attention)
    check_target(problem, kind, target, field)
    target = np.atleast_1d(np.asarray(target, float))
    if kind == "log_time":
        require("at_log_time", target, lambda x: x < LAST_LOG_TIME, f"below {LAST_LOG_TIME:g} with integrate")
    shape = jnp.broadcast_shapes(*(jnp.shape(value) for value in problem.constants))
    flat = Constants(*(jnp.broadcast_to(jnp.asarray(v, float), shape).ravel() for v in problem.constants))
    order = np.argsort(-target if kind == "loss" else target, kind="stable")
    columns, steps, rejected = _follow(
        flat, jnp.asarray(target[order]), rtol, problem.parameterization, kind, solver, field
    )
    back = np.argsort(order)
    ends: dict[str, Any] = {
        name: np.asarray(column)[:, back].reshape((*shape, len(target))) for name, column in columns.items()
    }
    if kind in ("time", "log_time"):
        ends[{"time": "t", "log_time": "log_t"}[kind]] = np.broadcast_to(target, ends["t"].shape)
    elif np.isnan(ends["log_t"]).any():
        raise ArgumentError(
            f"Argument `at_{kind}` must be reached before log t = {LAST_LOG_TIME:g} with integrate; "
            "the method exact has no such limit."
        )
    return Trajectory(
        problem=problem,
        method="integrate",
        **ends,
        options={"solver": type(solver).__name__, "rtol": float(rtol), "variable": "log(1+t)"},
        stats={"steps": int(np.sum(steps)), "rejected_steps": int(np.sum(rejected))},
    )


def _velocity(s, y, args):
    """dy/ds at s = log(1+t): the field times dt/ds = e^s, which enters inside its exponentials."""
    c, kind, field = args
    mu_ov, mu_qk = _gaps(c, y, kind, field)
    ov, qk = field.drive_ov(c, mu_ov, mu_qk, s), field.drive_qk(c, mu_ov, mu_qk, s)
    d_ov = field.rescaling_ov(c, mu_ov) * ov if kind.ov_factorized else ov
    if not kind.qk_factorized:
        return d_ov, field.line_gap(c) * qk
    nus = field.singular_values_qk(c)
    return d_ov, *(nu * field.rescaling_qk(c, sigma) * qk for nu, sigma in zip(nus, y[1:], strict=True))


def _gaps(c, y, kind, field):
    return y[0], field.gap(c, *y[1:]) if kind.qk_factorized else y[1]


def _begin(c, kind, field):
    if not kind.qk_factorized:
        return c.mu_ov_0, c.mu_qk_0
    return c.mu_ov_0, *(c.mu_qk_0 * nu / field.line_gap(c) for nu in field.singular_values_qk(c))


def _last(ys: Any) -> Any:
    return jax.tree.map(lambda y: y[-1], ys)


@functools.partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _follow(constants, targets, rtol, kind: Parameterization, question: str, solver, field):
    controller = diffrax.PIDController(rtol=rtol, atol=1e-6 * rtol)

    def one(c):
        args = (c, kind, field)
        begin = _begin(c, kind, field)

        def solve(s0, s1, y0, event=None):
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(_velocity),
                solver,
                s0,
                s1,
                None,
                y0,
                args,
                stepsize_controller=controller,
                adjoint=diffrax.ForwardMode(),
                event=event,
                max_steps=MAX_STEPS,
                throw=False,
            )
            given_up = solution.result == diffrax.RESULTS.max_steps_reached
            s, y = _last((solution.ts, solution.ys))
            y = jax.tree.map(lambda part: jnp.where(given_up, jnp.nan, part), y)
            return jnp.where(given_up, LAST_LOG_TIME, s), y, solution.stats

        def measure(y):
            """What a loss or an attention mass is a function of; it grows along every trajectory."""
            mu_ov, mu_qk = _gaps(c, y, kind, field)
            return mu_qk if question == "attention" else field.alpha(c, mu_qk) * mu_ov

        def to_time(carry, s1):
            s0, y0 = carry
            _, y1, stats = solve(s0, s1, y0)
            return (s1, y1), (s1, y1, stats)

        def to_goal(carry, goal):
            s0, y0 = carry
            event = diffrax.Event(lambda t, y, args, **kw: measure(y) >= goal)
            s1, y1, stats = solve(s0, jnp.where(measure(y0) < goal, LAST_LOG_TIME, s0), y0, event)

            def unpolished(state):
                s, _, shift, *_ = state
                return jnp.abs(shift) > 8 * jnp.finfo(s.dtype).eps * jnp.maximum(s, 1e-300)

            def polish(state):
                s, y, _, count, stats = state
                value, rate = jax.jvp(measure, (y,), (_velocity(s, y, args),))
                target = jnp.clip(s + (goal - value) / rate, s0, LAST_LOG_TIME)
                _, moved, more = solve(s, target, y)
                shift = jnp.where(count < NEWTON_STEPS, target - s, 0.0)
                return target, moved, shift, count + 1, jax.tree.map(jnp.add, stats, more)

            state = (s1, y1, s1 - s0, 0, stats)
            s1, y1, _, _, stats = jax.lax.while_loop(unpolished, polish, state)
            return (s1, y1), (s1, y1, stats)

        if question in ("time", "log_time"):
            step, goals = to_time, jnp.log1p(targets) if question == "time" else jnp.logaddexp(targets, 0.0)
        else:
            alpha, _, log_loss = observe(field, c, *_gaps(c, begin, kind, field))
            if question == "attention":
                own, goals = alpha, jnp.log(targets) - jnp.log1p(-targets) - field.log_odds(c, 0.0)
            else:
                own, goals = jnp.exp(log_loss), jnp.log(c.n_classes - 1.0) - jnp.log(jnp.expm1(targets))
            step = to_goal
            goals = jnp.where(jnp.abs(targets - own) <= ROUNDING * own, measure(begin), goals)
        _, (s, y, stats) = jax.lax.scan(step, (jnp.zeros_like(goals[0]), begin), goals)
        mu_ov, mu_qk = _gaps(c, y, kind, field)
        log_t = jnp.where(s < LAST_LOG_TIME, s + jnp.log(-jnp.expm1(-s)), jnp.nan)
        columns = {"log_t": log_t, "t": jnp.expm1(s), "mu_ov": mu_ov, "mu_qk": mu_qk}
        seen = observe(field, c, mu_ov, mu_qk)
        columns |= zip(("alpha", "log_one_minus_alpha", "log_loss"), seen, strict=True)
        return columns, stats["num_steps"], stats["num_rejected_steps"]

    return jax.vmap(one)(constants)
