"""One signature for the exact, the integrated and the certified route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from qkflow.flow import derived
from qkflow.flow.exact import solve_exact
from qkflow.flow.integrate import integrate
from qkflow.flow.observe import observe
from qkflow.setting import ArgumentError, Problem
from qkflow.trajectory import Trajectory

if TYPE_CHECKING:
    from qkflow.flow.certify import Certificate

LAST_LOSS, POINTS = 1e-4, 50
"""Without a target: so many log-spaced losses from the start's to this one."""


@overload
def solve(
    problem: Problem | None = None, *, method: Literal["exact", "integrate"] = "exact", **targets: Any
) -> Trajectory: ...


@overload
def solve(problem: Problem | None = None, *, method: Literal["certify"], **targets: Any) -> Certificate: ...


@overload
def solve(problem: Problem | None = None, *, method: str, **targets: Any) -> Trajectory | Certificate: ...


def solve(
    problem: Problem | None = None,
    *,
    method: str = "exact",
    at_loss: Any = None,
    at_time: Any = None,
    at_log_time: Any = None,
    at_attention: Any = None,
    **options: Any,
) -> Trajectory | Certificate:
    """The state of the reduced flow at given losses, times, log times or attention masses.

    Args:
        problem: the layer; `None` is the paper's, `Problem()`.
        method: "exact" (`qkflow.flow.exact.solve_exact`, quadrature of the closed form), "integrate"
            (`qkflow.flow.integrate.integrate`, diffrax) or "certify" (`qkflow.flow.certify.certify`, balls
            that are proved to hold the exact values of exactly read numbers).
        at_loss, at_time, at_log_time, at_attention: at most one of them, a number or K numbers. Without
            any, 50 log-spaced losses from the start's to 1e-4.
        **options: passed to the method (`solver`, `rtol` of "integrate").

    Returns:
        A `Trajectory` whose last axis runs over the targets in the order asked; from "certify" a
        `qkflow.flow.certify.Certificate`, the same fields in balls.

    Raises:
        ArgumentError: for an unknown method, or a target without an answer.
        FloatingPointError: when an answer cannot be resolved in float64.
        ArithmeticError: when no tried precision certifies an answer.

    >>> import jax; jax.config.update("jax_enable_x64", True)
    >>> float(solve(at_loss=1e-4).mu_qk[0])  # doctest: +ELLIPSIS
    2.671139144...
    """
    routes = {"exact": solve_exact, "integrate": integrate, "certify": _certify}
    if method not in routes:
        raise ArgumentError(f"Argument `method` must be one of {', '.join(routes)}, but is {method!r}.")
    if method != "integrate" and options:
        raise ArgumentError(
            f"Argument `{next(iter(options))}` is for the method integrate, but it is {method}."
        )
    problem = Problem() if problem is None else problem
    targets = {
        "at_loss": at_loss,
        "at_time": at_time,
        "at_log_time": at_log_time,
        "at_attention": at_attention,
    }
    if all(target is None for target in targets.values()):
        targets["at_loss"] = _losses(problem)
        if method == "certify":  # the start's loss as a float may be above the start's
            targets["at_loss"][0] *= 1 - 1e-12
    problem = problem if method == "certify" else problem.in_floats()
    found = routes[method](problem, **targets, **options)
    return found.checked() if isinstance(found, Trajectory) else found


def _losses(problem: Problem) -> np.ndarray:
    c = problem.constants
    first = float(np.min(np.exp(observe(derived, c, c.mu_ov_0, c.mu_qk_0)[2])))
    if first <= LAST_LOSS:
        raise ArgumentError(
            f"A target must be given: the start's loss ({first:.3g}) is not above {LAST_LOSS:g}."
        )
    return np.geomspace(first, LAST_LOSS, POINTS)


def _certify(problem: Problem, **targets: Any) -> Certificate:
    from qkflow.flow.certify import certify  # python-flint is imported only for a certificate

    return certify(problem, **targets)
