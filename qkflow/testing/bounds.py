"""A record keeps the bounds on its growth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.flow.asymptotics import growth_bounds
from qkflow.setting import ArgumentError, Problem, require
from qkflow.testing.judged import Held, column_of, judged, needs_float64, rounded


def assert_growth_bound(
    problem: Problem, mu_ov: Any, mu_qk: Any, *, t: Any = None, log_t: Any = None, step_size: float = 0.0
) -> Held:
    """mu_OV and mu_QK keep every bound on their growth that is stated for the problem.

    The bounds are those of `qkflow.flow.asymptotics.growth_bounds`: mu_OV = O(log t) from both sides and
    mu_QK by mu_OV. They hold for the flow; a record of gradient descent may be one step ahead or behind.

    Args:
        problem: an unbatched problem with concrete numbers.
        mu_ov: (..., P).
        mu_qk: (..., P).
        t: (P,) times, at least 0.
        log_t: their logarithms, in place of `t`.
        step_size: h, 0 for the flow itself.

    Returns:
        The margin; the error is the worst excess over max(1, |bound|), negative where there is room.

    Raises:
        AssertionError: with the bound, and the first violation.
        ArgumentError: unless exactly one of `t` and `log_t` is given, for columns that do not match, or
            without float64.

    >>> from qkflow.flow.exact import solve_exact
    >>> flow = solve_exact(Problem(), at_log_time=[1.0, 10.0, 1000.0])
    >>> assert_growth_bound(Problem(), flow.mu_ov, flow.mu_qk, log_t=flow.log_t).error <= 0
    True
    """
    needs_float64()
    if (t is None) == (log_t is None):
        raise ArgumentError("Arguments `t` and `log_t`: exactly one of them must be given.")
    require("step_size", step_size, lambda v: (v >= 0) & np.isfinite(v), "finite and at least 0")
    if log_t is None:
        require("t", t, lambda v: (v >= 0) & np.isfinite(v), "finite and at least 0")
        times = np.asarray(t, dtype=float)
        with np.errstate(divide="ignore"):
            log_t = np.log(times)
    else:
        require("log_t", log_t, lambda v: v < math.inf, "less than infinity")
        log_t = np.asarray(log_t, dtype=float)
        with np.errstate(over="ignore"):
            times = np.exp(log_t)
    states = {name: column_of(name, value, log_t) for name, value in (("mu_ov", mu_ov), ("mu_qk", mu_qk))}
    later = states["mu_ov"] + step_size * _rate_ov(problem, states["mu_ov"], states["mu_qk"])
    # Times of a record with steps are numbers; times of the flow itself may overflow.
    with np.errstate(divide="ignore"):
        one_less = np.log(np.maximum(times - step_size, 0.0)) if step_size else log_t
        one_more = np.log(times + step_size) if step_size else log_t
    behind, ahead = growth_bounds(problem, one_less, later), growth_bounds(problem, one_more, later)
    errors, values = {}, {}
    for name in ahead:
        bound = (behind if "below" in name else ahead)[name]
        if bound.value is not None:
            state = states[bound.quantity]
            errors[f"{bound.quantity} by {name}"] = bound.excess(state)
            values[f"{bound.quantity} by {name}"] = state, np.broadcast_to(bound.value, state.shape)
    return judged("keeps its bounds", errors, rounded(mu_ov, mu_qk), {"log_t": log_t}, values)


def _rate_ov(problem: Problem, mu_ov: np.ndarray, mu_qk: np.ndarray) -> np.ndarray:
    c = problem.constants
    drive = np.asarray(derived.drive_ov(c, np.maximum(mu_ov, 0.0), np.clip(mu_qk, -700, 700)))
    if not problem.parameterization.ov_factorized:
        return drive
    return drive * np.asarray(derived.rescaling_ov(c, mu_ov))
