"""Faster query-key learning attends more sharply at the same loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.setting import ArgumentError, require
from qkflow.testing.judged import Held, every, judged


def assert_sharper(slow: tuple[Any, Any], fast: tuple[Any, Any]) -> Held:
    """At equal loss the run with the larger ratio attends more sharply.

    The runs are compared at the losses of the records of one within the range of the other, alpha being
    interpolated in log loss. Where leaving out every other record changes the difference by more than its
    size, the records are too sparse to tell; they must tell somewhere.

    Args:
        slow: (loss, alpha) of the smaller ratio, two columns (P,); the loss falls from record to record.
        fast: (loss, alpha) of the larger ratio, likewise with its own number of records.

    Returns:
        The margin; the error is minus the least gain in the log-odds of alpha, `allowed` is 0.

    Raises:
        AssertionError: with the first loss at which attention is not sharper, or when the records do not
            tell.
        ArgumentError: for columns that do not match, losses that are not positive and falling, or alpha
            outside (0, 1).

    >>> import qkflow
    >>> losses = np.geomspace(1.0, 1e-3, 30)
    >>> ratios = qkflow.LearningRates(ratio=np.array([1.0, 2.0]))
    >>> slow, fast = qkflow.solve(qkflow.Problem(rates=ratios), at_loss=losses).alpha
    >>> assert_sharper((losses, slow), (losses, fast)).error < -0.01
    True
    """
    slow_loss, slow_odds = _attention("slow", slow)
    fast_loss, fast_odds = _attention("fast", fast)
    gains, unsure, at = [], [], []
    for x, other_x, other, own, sign in (
        (slow_loss, fast_loss, fast_odds, slow_odds, 1.0),
        (fast_loss, slow_loss, slow_odds, fast_odds, -1.0),
    ):
        inside = (x < other_x[0]) & (x >= other_x[-1])
        there = _interpolated(x[inside], other_x, other)
        thinned = _interpolated(x[inside], *(np.r_[v[:-1:2], v[-1]] for v in (other_x, other)))
        gains.append(sign * (there - own[inside]))
        unsure.append(abs(there - thinned))
        at.append(x[inside])
    gain, doubt, log_loss = map(np.concatenate, (gains, unsure, at))
    order = np.argsort(-log_loss)
    gain, doubt, log_loss = gain[order], doubt[order], log_loss[order]
    told = abs(gain) > doubt
    if not told.any():
        raise AssertionError(
            f"The records do not tell whether attention is sharper: none of {gain.size} losses resolves it."
        )
    return judged(
        "is sharper at equal loss",
        {"log-odds of alpha": np.where(told, -gain, -np.inf)},
        0.0,
        {"loss": np.exp(log_loss)},
        {"log-odds of alpha": (gain, np.zeros(gain.shape))},
    )


def _attention(name: str, run: tuple[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
    """log loss and the log-odds of alpha of a run."""
    if len(run) != 2 or np.shape(run[0]) != np.shape(run[1]) or np.ndim(run[0]) != 1 or np.size(run[0]) < 3:
        raise ArgumentError(f"Argument `{name}` must be two columns (loss, alpha) of at least three records.")
    require(f"{name} loss", run[0], lambda v: (v > 0) & np.isfinite(v), "positive and finite")
    require(f"{name} alpha", run[1], lambda v: (v > 0) & (v < 1), "between 0 and 1")
    loss, alpha = (np.asarray(column, dtype=float) for column in run)
    every(f"{name} loss", loss, np.r_[True, np.diff(loss) < 0], "falling from record to record")
    return np.log(loss), np.log(alpha) - np.log1p(-alpha)


def _interpolated(x: np.ndarray, falling: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.interp(x, falling[::-1], values[::-1])
