"""From the attention of heads and layers to one row of weights for each example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from qkflow.setting import ArgumentError, require

ROUNDING = 1e-3
"""How far a sum of attention may be from 1: float16 and bfloat16 rows of a thousand tokens reach it."""


def checked_rows(attention: Any, real: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows as float64 and the mask of real tokens, once the rows are attention over those alone.

    Args:
        attention: (..., L).
        real: booleans that broadcast to it; `None` when no token is padding.

    Raises:
        ArgumentError: for weights that are negative, no numbers, not zero on padding, or do not sum to 1.
    """
    rows = np.asarray(attention, dtype=float)
    require("attention", rows, lambda x: (x >= 0) & np.isfinite(x), "finite and not negative")
    mask = np.broadcast_to(True if real is None else np.asarray(real, dtype=bool), rows.shape)
    if rows[~mask].any():
        raise ArgumentError("Argument `attention` must be exactly 0 on padding, but is not.")
    sums = rows.sum(axis=-1)
    wrong = np.abs(sums - 1) > ROUNDING
    if wrong.any():
        raise ArgumentError(
            f"Argument `attention` must sum to 1 in every row, but a sum is {sums[wrong][0]:.6g}."
        )
    return rows, mask


def merge_heads(attention: Any, heads: str | int = "mean") -> np.ndarray:
    """One row (or matrix) from those of all heads.

    Args:
        attention: (N, H, ...), the heads on the second axis.
        heads: "mean", "max" (largest weight of any head, normalised again), or the number of one head.

    >>> merge_heads([[[0.5, 0.5], [1.0, 0.0]]]).tolist()
    [[0.75, 0.25]]
    """
    values, _ = checked_rows(attention)
    if heads == "mean":
        return values.mean(axis=1)
    if heads == "max":
        largest = values.max(axis=1)
        return largest / largest.sum(axis=-1, keepdims=True)
    count = values.shape[1]
    if isinstance(heads, str) or not 0 <= heads < count:
        raise ArgumentError(f"Argument `heads` must be mean, max or 0 to {count - 1}, but is {heads!r}.")
    return values[:, heads]


def layer_mean(layers: Sequence[Any]) -> np.ndarray:
    """The mean over layers of (N, L, L) attention, heads merged."""
    return np.mean(_layers(layers), axis=0)


def _layers(layers: Sequence[Any]) -> list[np.ndarray]:
    if not len(layers):
        raise ArgumentError("Argument `layers` must hold at least 1 layer, but is empty.")
    return [checked_rows(layer)[0] for layer in layers]


def rollout(layers: Sequence[Any], residual: float) -> np.ndarray:
    """Attention through all layers, first layer first: the product of w A + (1 - w) I (Abnar, Zuidema 2020).

    Args:
        layers: of each layer (N, L, L), heads merged, rows of queries that sum to 1. Give rows of padding
            queries weight on themselves.
        residual: w, the part of a layer that is attention, in (0, 1]; 1 leaves the residual stream out, .5
            gives it half.

    Returns:
        (N, L, L), rows that sum to 1.

    >>> rollout([[[[0.5, 0.5], [0.0, 1.0]]]], residual=1.0).tolist()
    [[[0.5, 0.5], [0.0, 1.0]]]
    """
    require("residual", residual, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1")
    checked = _layers(layers)
    identity = total = np.eye(checked[0].shape[-1])
    for rows in checked:
        total = (residual * rows / rows.sum(axis=-1, keepdims=True) + (1 - residual) * identity) @ total
    return total
