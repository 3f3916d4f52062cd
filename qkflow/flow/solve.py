"""One signature for the exact and the integrated route."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.flow.exact import solve_exact
from qkflow.flow.integrate import integrate
from qkflow.flow.observe import observe
from qkflow.setting import ArgumentError, Problem
from qkflow.trajectory import Trajectory

LAST_LOSS, POINTS = 1e-4, 50
"""Without a target: so many log-spaced losses from the start's to this one."""


def solve(
    problem: Problem | None = None,
    *,
    method: str = "exact",
    at_loss: Any = None,
    at_time: Any = None,
    at_log_time: Any = None,
    at_attention: Any = None,
    **options: Any,
) -> Trajectory:
    """The state of the reduced flow at given losses, times, log times or attention masses.

    Args:
        problem: the layer; `None` is the paper's, `Problem()`.
        method: "exact" (`qkflow.flow.exact.solve_exact`, quadrature of the closed form) or "integrate"
            (`qkflow.flow.integrate.integrate`, diffrax).
        at_loss, at_time, at_log_time, at_attention: at most one of them, a number or K numbers. Without
            any, 50 log-spaced losses from the start's to 1e-4.
        **options: passed to the method (`solver`, `rtol` of "integrate").

    Returns:
        A `Trajectory` whose last axis runs over the targets in the order asked.

    Raises:
        ArgumentError: for an unknown method, or a target without an answer.
        FloatingPointError: when an answer cannot be resolved in float64.

    >>> import jax; jax.config.update("jax_enable_x64", True)
    >>> float(solve(at_loss=1e-4).mu_qk[0])  # doctest: +ELLIPSIS
    2.671139144...
    """
    routes = {"exact": solve_exact, "integrate": integrate}
    if method not in routes:
        raise ArgumentError(f"Argument `method` must be one of {', '.join(routes)}, but is {method!r}.")
    if method == "exact" and options:
        raise ArgumentError(f"Argument `{next(iter(options))}` is for the method integrate, but it is exact.")
    problem = Problem() if problem is None else problem
    targets = {
        "at_loss": at_loss,
        "at_time": at_time,
        "at_log_time": at_log_time,
        "at_attention": at_attention,
    }
    if all(target is None for target in targets.values()):
        c = problem.constants
        first = float(np.min(np.exp(observe(derived, c, c.mu_ov_0, c.mu_qk_0)[2])))
        if first <= LAST_LOSS:
            raise ArgumentError(
                f"A target must be given: the start's loss ({first:.3g}) is not above {LAST_LOSS:g}."
            )
        targets["at_loss"] = np.geomspace(first, LAST_LOSS, POINTS)
    return routes[method](problem, **targets, **options).checked()
