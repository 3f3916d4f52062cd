"""The scalar map that gradient descent on the matrices is, from an aligned start."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.flow import derived
from qkflow.setting import Constants, Problem


def descend(problem: Problem, steps: Any, step_size: Any, *, field: Any = derived) -> tuple[np.ndarray, ...]:
    """mu_OV and mu_QK after the given numbers of steps of gradient descent on the population.

    A collapsed circuit takes Euler steps of the flow. A factorized one multiplies factors a and v: a step
    moves sigma = a v by h R(sigma) g + h^2 g^2 sigma and lambda = a^2 - v^2 by -h^2 g^2 lambda, where R =
    a^2 + v^2 and g is the singular value of the direction times the drive.

    Args:
        problem: concrete numbers.
        steps: (P,) increasing step numbers.
        step_size: h.
        field: the derived field.

    Returns:
        Two float64 arrays (P,).
    """
    constants = Constants(*(jnp.asarray(value, float) for value in problem.constants))
    states = _descend(constants, jnp.asarray(steps), step_size, problem.parameterization, field)
    return tuple(np.asarray(column) for column in states)


@functools.partial(jax.jit, static_argnums=(3, 4))
def _descend(c, steps, step_size, kind, field):
    nu = jnp.stack(field.singular_values_qk(c))
    sigma_per_mu = field.rescaling_ov(c._replace(imbalance_ov=0.0), 1.0) / 2.0

    def gap(qk):
        return field.gap(c, qk[0], qk[1]) if kind.qk_factorized else qk

    def step(_, state):
        u, lam_ov, qk, lam_qk = state
        g_ov = step_size * field.drive_ov(c, u, gap(qk))
        g_qk = step_size * field.drive_qk(c, u, gap(qk))
        if kind.ov_factorized:
            rescaling = field.rescaling_ov(c._replace(imbalance_ov=lam_ov), u)
            square = (sigma_per_mu * g_ov) ** 2
            u, lam_ov = u + rescaling * g_ov + square * u, lam_ov * (1.0 - square)
        else:
            u = u + g_ov
        if kind.qk_factorized:
            rescaling = field.rescaling_qk(c._replace(imbalance_qk=lam_qk), qk)
            square = (nu * g_qk) ** 2
            qk, lam_qk = qk + rescaling * nu * g_qk + square * qk, lam_qk * (1.0 - square)
        else:
            qk = qk + field.line_gap(c) * g_qk
        return u, lam_ov, qk, lam_qk

    def to_record(carry, last):
        done, state = carry
        state = jax.lax.fori_loop(done, last, step, state)
        return (last, state), (state[0], gap(state[2]))

    qk = c.mu_qk_0 * nu / field.line_gap(c) if kind.qk_factorized else c.mu_qk_0
    lam_qk = c.imbalance_qk + jnp.zeros_like(qk)
    start = (c.mu_ov_0, c.imbalance_ov, qk, lam_qk)
    return jax.lax.scan(to_record, (jnp.zeros_like(steps[0]), start), steps)[1]
