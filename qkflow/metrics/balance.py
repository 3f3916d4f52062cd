"""How far the two factors of a circuit are from the balanced state."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.metrics._checked import numbers
from qkflow.setting import ArgumentError, require


def imbalance(left: Any, right: Any) -> np.ndarray:
    """|A^T A - B B^T| / (|A^T A| + |B B^T|) of a circuit A B, in Frobenius norms.

    A = W_O and B = W_V, or A = W_K^T and B = W_Q. The flow with equal rates conserves the difference. 0 is
    balanced; 1 is reached only when one factor is zero and the other is not.

    Args:
        left: A, (..., rows, h).
        right: B, (..., h, columns), the same leading axes.

    Returns:
        float64 (...,); 0 where both factors are zero.

    Raises:
        ArgumentError: for entries that are not finite, or shapes that do not fit.

    >>> imbalance(np.eye(3), np.eye(3)).item(), imbalance(np.eye(3), 0 * np.eye(3)).item()
    (0.0, 1.0)
    """
    a, b = numbers("left", left), numbers("right", right)
    for name, value in (("left", a), ("right", b)):
        require(name, value, np.isfinite, "finite")
    fits = a.ndim >= 2 and b.ndim >= 2 and (*a.shape[:-2], a.shape[-1]) == b.shape[:-1]
    if not fits or 0 in (*a.shape[-2:], b.shape[-1]):
        raise ArgumentError(
            "Argument `right` must have the leading axes of `left`, and as many rows as that has columns, "
            f"none of them 0, but the shapes are {a.shape} and {b.shape}."
        )
    # The ratio has no scale; without one the squares would underflow where starts are tiny.
    largest = np.maximum(np.abs(a).max(axis=(-2, -1)), np.abs(b).max(axis=(-2, -1)))
    scale = np.where(largest > 0, largest, 1.0)[..., None, None]
    a, b = a / scale, b / scale
    one, other = np.swapaxes(a, -1, -2) @ a, b @ np.swapaxes(b, -1, -2)
    off, *sizes = (np.linalg.norm(x, axis=(-2, -1)) for x in (one - other, one, other))
    return np.divide(off, sum(sizes), out=np.zeros_like(off), where=largest > 0)
