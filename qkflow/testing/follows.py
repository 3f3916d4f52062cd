"""A record follows the exact flow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qkflow.flow.exact import solve_exact
from qkflow.setting import ArgumentError, Problem, require
from qkflow.testing.judged import Held, allowed_by, column_of, every, judged, needs_float64, rounded
from qkflow.verify.descent import descend

SCATTERED = 0.05
"""Default tolerance where several seeds are averaged."""
CONFIDENCE = 2.5758
"""Normal quantile of the 99 % confidence interval of a mean over seeds."""


def assert_follows_flow(
    problem: Problem, mu_ov: Any, mu_qk: Any, *, t: Any, step_size: float | None = None, tolerance: Any = None
) -> Held:
    """mu_OV and mu_QK follow the exact flow from the problem's start.

    With `step_size` the record is one of gradient descent, and the flow is taken in the same steps: from a
    start on the line population gradient descent then agrees to rounding, at any step size, and that map
    follows the flow to first order in it. Without it the record is compared with the flow itself.

    Args:
        problem: an unbatched problem with concrete numbers.
        mu_ov: (P,), or (S, P) for S seeds: then the 99 % confidence interval of their mean must lie within
            the tolerance as a whole, so that scatter never helps.
        mu_qk: likewise.
        t: (P,) times, at least 0.
        step_size: h; every time must be a whole number of steps.
        tolerance: largest error relative to the distance moved in the record. By default 1e-8 for float64
            columns and 1e-3 for float32, for rounding, and .05 for seeds. Starts off the line (identity,
            random) and minibatches need one of your own.

    Returns:
        The margin.

    Raises:
        AssertionError: with the first violation.
        ArgumentError: for columns that do not match, times out of range, or without float64.

    >>> from qkflow.train import train
    >>> record = train(steps=100, step_size=0.1, records=5)
    >>> held = assert_follows_flow(
    ...     record.problem, record.mu_ov[0], record.mu_qk[0], t=record.t, step_size=0.1
    ... )
    >>> held.margin > 1e4
    True
    """
    needs_float64()
    require("t", t, lambda v: (v >= 0) & np.isfinite(v), "finite and at least 0")
    times = np.asarray(t, dtype=float)
    columns = {"mu_ov": column_of("mu_ov", mu_ov, times), "mu_qk": column_of("mu_qk", mu_qk, times)}
    seeds = {name: len(column) for name, column in columns.items() if column.ndim == 2 and len(column) > 1}
    if step_size is None:
        flow = solve_exact(problem, at_time=times)
        reference = {"mu_ov": np.asarray(flow.mu_ov), "mu_qk": np.asarray(flow.mu_qk)}
    else:
        require("step_size", step_size, lambda v: (v > 0) & np.isfinite(v), "positive and finite")
        steps = np.rint(times / step_size)
        whole = abs(times - steps * step_size) <= 1e-6 * step_size * np.maximum(1.0, steps)
        every("t", times, whole & np.r_[True, np.diff(times) >= 0], "increasing whole numbers of `step_size`")
        reference = dict(zip(columns, descend(problem, steps.astype(int), float(step_size)), strict=True))
    allowed = allowed_by(tolerance, SCATTERED if seeds else rounded(mu_ov, mu_qk))
    errors, values = {}, {}
    for name, column in columns.items():
        mean, half_width = _mean(column)
        errors[name] = (abs(mean - reference[name]) + half_width) / _moved(reference[name])
        values[name] = mean, reference[name]
    statement = "follows the flow" if step_size is None else "follows the flow in its steps"
    return judged(statement, errors, allowed, {"t": times}, values)


def _mean(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean over seeds and the half width of its confidence interval (Student's, by Wallace)."""
    if column.ndim > 2:
        raise ArgumentError(f"A column must have shape (P,) or (S, P), but has shape {column.shape}.")
    if column.ndim == 1 or len(column) == 1:
        return column.reshape(-1), np.zeros(column.shape[-1])
    freedom = len(column) - 1
    quantile = math.sqrt(
        freedom * math.expm1((CONFIDENCE * (8 * freedom + 3) / (8 * freedom + 1)) ** 2 / freedom)
    )
    return column.mean(axis=0), quantile * column.std(axis=0, ddof=1) / math.sqrt(len(column))


def _moved(reference: np.ndarray) -> float:
    """How far a reference moves, or a hundredth of its size where that is more; 1 where it stays at zero."""
    return max(float(np.ptp(reference)), 0.01 * float(abs(reference).max())) or 1.0
