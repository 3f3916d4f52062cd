"""How far the two factors of a circuit are from the balanced state."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.setting import ArgumentError, require


def imbalance(left: Any, right: Any) -> np.ndarray:
    """The norm of A^T A - B B^T relative to that of A^T A + B B^T, for a circuit A B.

    A = W_O and B = W_V, or A = W_K^T and B = W_Q. The flow conserves the difference; 0 is balanced, and
    near 1 one factor is nothing beside the other.

    Args:
        left: A, (..., rows, h).
        right: B, (..., h, columns).

    Returns:
        float64 (...,); 0 where both factors are zero.

    Raises:
        ArgumentError: for entries that are not finite or widths that differ.

    >>> imbalance(np.eye(3), np.eye(3)).item(), imbalance(np.eye(3), 0 * np.eye(3)).item()
    (0.0, 1.0)
    """
    a, b = np.asarray(left, dtype=float), np.asarray(right, dtype=float)
    for name, value in (("left", a), ("right", b)):
        require(name, value, np.isfinite, "finite")
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ArgumentError(
            "Argument `right` must have as many rows as `left` has columns, "
            f"but the shapes are {a.shape} and {b.shape}."
        )
    one, other = np.swapaxes(a, -1, -2) @ a, b @ np.swapaxes(b, -1, -2)
    off, size = (np.linalg.norm(x, axis=(-2, -1)) for x in (one - other, one + other))
    return np.divide(off, size, out=np.zeros_like(off), where=size > 0)
