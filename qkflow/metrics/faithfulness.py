"""Comprehensiveness and sufficiency: what happens to the prediction without, and with only, the top tokens.

DeYoung et al. 2020 (ERASER). They say whether the model uses what it attends, not whether that is relevant.
Removed tokens are deleted, kept ones stay in order, and the query always stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qkflow.metrics._checked import ROUNDING, numbers, scalar, weights
from qkflow.setting import ArgumentError, require

AOPC_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the tokens over which ERASER averages."""

Predict = Callable[[Sequence[np.ndarray]], Any]
"""From the columns of `attention` that each example keeps to probabilities (N, classes).

One increasing int64 array an example, every real token at first; it is empty when all is removed. The model
indexes its tokens by them: `tokens[i][kept[i]]`, and the query is then at `np.searchsorted(kept[i], query)`.
"""


def comprehensiveness(
    predict: Predict,
    attention: Any,
    queries: Any = None,
    *,
    real: Any = None,
    k: int | None = None,
    shares: Sequence[float] = AOPC_SHARES,
) -> float:
    """The mean of c(x) - c(x without its top tokens), c the probability of the class predicted on x.

    Higher is better. It is averaged over `shares` of the tokens (the AOPC variant), or taken at one k. Ties
    of attention are broken by position, those of the prediction by the number of the class.

    Args:
        predict: takes the positions that are kept (see `Predict`) and returns probabilities (N, classes).
        attention: (N, L), exactly zero on padding.
        queries: (N,), the position of every example's query, never removed and never among the top tokens;
            `None` when it is no token of the rows.
        real: booleans (N, L), false on padding; `None` when no token is padding.
        k: how many tokens are removed (all but the query where there are fewer); `None` takes `shares`.
        shares: k = max(1, ceil(share T)) for each, T the real tokens of the example, the query among them.

    Raises:
        ArgumentError: for rows that are no attention, k, shares or queries out of range, or predictions that
            are no probabilities.

    >>> def reads_first(kept):  # sure of class 0 as long as it sees position 0
    ...     return [[0.9, 0.1] if 0 in positions else [0.5, 0.5] for positions in kept]
    >>> round(comprehensiveness(reads_first, [[0.7, 0.2, 0.1]], k=1), 6)
    0.4
    >>> sufficiency(reads_first, [[0.7, 0.2, 0.1]], k=1)
    0.0
    """
    return _drop(predict, attention, queries, real, k, shares, only_top=False)


def sufficiency(
    predict: Predict,
    attention: Any,
    queries: Any = None,
    *,
    real: Any = None,
    k: int | None = None,
    shares: Sequence[float] = AOPC_SHARES,
) -> float:
    """The mean of c(x) - c(only the top tokens of x, and the query); lower is better.

    Arguments and errors are those of `comprehensiveness`.
    """
    return _drop(predict, attention, queries, real, k, shares, only_top=True)


def _drop(predict, attention, queries, real, k, shares, only_top: bool) -> float:
    rows, tokens = weights("attention", attention, "NL", real)
    query = _query_mask(queries, tokens)
    counts = _counts(k, shares, tokens.sum(axis=1))
    removable = tokens & ~query
    order = np.argsort(np.where(removable, -rows, np.inf), axis=1, kind="stable")
    rank = np.argsort(order, axis=1)
    full = _probabilities(predict, tokens)
    predicted = full.argmax(axis=1)
    drops = []
    for count in counts:
        top = removable & (rank < count[:, None])
        partial = _probabilities(predict, query | top if only_top else tokens & ~top)
        if partial.shape != full.shape:
            raise ArgumentError(
                "Argument `predict` must return the same classes whatever is kept, "
                f"but returned shapes {full.shape} and {partial.shape}."
            )
        drops.append(np.take_along_axis(full - partial, predicted[:, None], axis=1))
    return float(np.mean(drops))


def _query_mask(queries: Any, tokens: np.ndarray) -> np.ndarray:
    if queries is None:
        return np.zeros_like(tokens)
    places = numbers("queries", queries)
    if places.shape != tokens.shape[:1]:
        raise ArgumentError(f"Argument `queries` must have shape {tokens.shape[:1]}, but has {places.shape}.")
    what = f"whole numbers from 0 to {tokens.shape[1] - 1}"
    require("queries", places, lambda x: np.isin(x, np.arange(tokens.shape[1])), what)
    found = np.arange(tokens.shape[1]) == places[:, None]
    if (found & ~tokens).any():
        raise ArgumentError("Argument `queries` must name real tokens, but names padding.")
    return found


def _counts(k: int | None, shares: Sequence[float], lengths: np.ndarray) -> list[np.ndarray]:
    """How many tokens each example loses, for k or for each share."""
    if k is not None:
        one = scalar(
            "k", k, lambda x: (x >= 1) & np.isfinite(x) & (x == np.floor(x)), "a whole number of at least 1"
        )
        return [np.full(lengths.shape, one)]
    parts = numbers("shares", shares)
    if parts.ndim != 1 or not parts.size:
        raise ArgumentError(f"Argument `shares` must hold 1 share or more, but has shape {parts.shape}.")
    require("shares", parts, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1")
    # A share that is a whole number of tokens is not to be rounded up by its representation.
    return [np.maximum(1, np.ceil(np.round(part * lengths, 9))) for part in parts]


def _probabilities(predict: Predict, kept: np.ndarray) -> np.ndarray:
    found = numbers("predict(kept)", predict([np.flatnonzero(row) for row in kept]))
    if found.ndim != 2 or len(found) != len(kept):
        shape = f"({len(kept)}, classes)"
        raise ArgumentError(f"Argument `predict` must return shape {shape}, but returned {found.shape}.")
    if not ((found >= 0).all() and (np.abs(found.sum(axis=1) - 1) <= ROUNDING).all()):
        raise ArgumentError(
            "Argument `predict` must return probabilities that sum to 1 in every row, but does not."
        )
    return found
