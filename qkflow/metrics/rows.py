"""From the attention of heads and layers to one row of weights for each example.

The row to read is that of the query whose output makes the prediction; of maps (N, L, L) take
`maps[np.arange(N), queries]`. A padding row tells nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.metrics._checked import numbers, scalar, weights
from qkflow.setting import ArgumentError


def merge_heads(attention: Any, heads: str | int = "mean", real: Any = None) -> np.ndarray:
    """One row, or map, from those of all heads.

    Args:
        attention: (N, H, L), or (N, H, L, L) with queries before keys; exactly zero on padding keys.
        heads: "mean", "max" (the largest weight of any head, normalised again), or the number of one head.
        real: booleans (N, L), false on padding; `None` when no token is padding. In maps the rows of padding
            queries are not read, and come out as weight on themselves.

    Returns:
        float64 (N, L) or (N, L, L).

    Raises:
        ArgumentError: for weights that are no attention, or no such head.

    >>> merge_heads([[[0.5, 0.5], [1.0, 0.0]]]).tolist()
    [[0.75, 0.25]]
    """
    found = numbers("attention", attention)
    values, _ = weights("attention", found, "NHLL" if found.ndim == 4 else "NHL", real)
    if isinstance(heads, str) and heads == "mean":
        return values.mean(axis=1)
    if isinstance(heads, str) and heads == "max":
        largest = values.max(axis=1)
        return largest / largest.sum(axis=-1, keepdims=True)
    count = values.shape[1]
    if np.ndim(heads) or isinstance(heads, bool) or heads not in range(count):
        raise ArgumentError(f"Argument `heads` must be mean, max or 0 to {count - 1}, but is {heads!r}.")
    return values[:, int(heads)]


def layer_mean(layers: Any, real: Any = None) -> np.ndarray:
    """The mean over layers.

    Args:
        layers: (depth, N, L, L), heads merged, queries before keys; exactly zero on padding keys.
        real: booleans (N, L), false on padding; `None` when no token is padding. Rows of padding queries are
            not read, and come out as weight on themselves.

    Returns:
        float64 (N, L, L).

    Raises:
        ArgumentError: for weights that are no attention.

    >>> layer_mean([[[[0.5, 0.5], [0.0, 1.0]]], [[[1.0, 0.0], [0.5, 0.5]]]]).tolist()
    [[[0.75, 0.25], [0.25, 0.75]]]
    """
    return _layers(layers, real).mean(axis=0)


def rollout(layers: Any, residual: float, real: Any = None) -> np.ndarray:
    """Attention through all layers: the product of w A + (1 - w) I, the last layer leftmost.

    Abnar and Zuidema 2020 (attention rollout). A is normalised to rows that sum to 1 exactly.

    Args:
        layers: (depth, N, L, L), first layer first, heads merged, queries before keys; exactly zero on
            padding keys.
        residual: w, the part of a layer that is attention, in (0, 1]; 1 leaves the residual stream out, .5
            gives it half.
        real: booleans (N, L), false on padding; `None` when no token is padding. Rows of padding queries are
            not read, and come out as weight on themselves.

    Returns:
        float64 (N, L, L), rows that sum to 1.

    Raises:
        ArgumentError: for weights that are no attention, or w out of range.

    >>> rollout([[[[0.5, 0.5], [0.0, 1.0]]], [[[0.5, 0.5], [0.5, 0.5]]]], residual=1.0).tolist()
    [[[0.25, 0.75], [0.25, 0.75]]]
    """
    w = scalar("residual", residual, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1")
    checked = _layers(layers, real)
    identity = total = np.eye(checked.shape[-1])
    for maps in checked:
        total = (w * maps / maps.sum(axis=-1, keepdims=True) + (1 - w) * identity) @ total
    return total


def _layers(layers: Any, real: Any) -> np.ndarray:
    stacked = numbers("layers", layers)
    if stacked.ndim != 4 or not len(stacked):
        raise ArgumentError(
            f"Argument `layers` must have shape (depth, N, L, L), none of them 0, but has {stacked.shape}."
        )
    return np.stack([weights("layers", layer, "NLL", real)[0] for layer in stacked])
