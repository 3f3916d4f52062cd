"""Comprehensiveness and sufficiency: what happens to the prediction without, and with only, the top tokens.

DeYoung et al. 2020 (ERASER). Removed tokens are deleted, kept ones stay in order, the query always stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qkflow.metrics.rows import checked_rows
from qkflow.setting import ArgumentError, require

AOPC_SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
"""Shares of the tokens over which ERASER averages."""

Predict = Callable[[Sequence[np.ndarray]], Any]


def order(attention: Any, query: int | None = None) -> np.ndarray:
    """Positions from the most to the least attended, ties by position, the query left out.

    Args:
        attention: the weights of the real tokens, (T,).
        query: its position, which is never removed; `None` when it is none of the tokens.

    >>> order([0.1, 0.4, 0.1, 0.4], query=3).tolist()
    [1, 0, 2]
    """
    ranked = np.argsort(-np.asarray(attention, dtype=float), kind="stable")
    return ranked if query is None else ranked[ranked != query]


def comprehensiveness(
    predict: Predict,
    attention: Sequence[Any],
    queries: Sequence[int] | None = None,
    *,
    k: int | None = None,
    shares: Sequence[float] = AOPC_SHARES,
) -> float:
    """The mean of c(x) - c(x without its top tokens), c the probability of the class predicted on x.

    Higher is better. It is averaged over `shares` of the tokens (the AOPC variant), or taken at one k.

    Args:
        predict: takes a list of positions to keep (increasing integers, one array an example) and returns
            probabilities (N, classes).
        attention: one row an example over its real tokens, (T_i,), each summing to 1.
        queries: the position of every example's query, never removed; `None` when it is no token of the rows.
        k: how many tokens are removed; `None` takes `shares`.
        shares: k = max(1, ceil(share T_i)) for each.

    Raises:
        ArgumentError: for rows that are no attention, k or shares out of range, or predictions that are none.

    >>> def reads_first(kept):  # sure of class 0 as long as it sees position 0
    ...     return [[0.9, 0.1] if 0 in positions else [0.5, 0.5] for positions in kept]
    >>> round(comprehensiveness(reads_first, [[0.7, 0.2, 0.1]], k=1), 6)
    0.4
    >>> sufficiency(reads_first, [[0.7, 0.2, 0.1]], k=1)
    0.0
    """
    return _drop(predict, attention, queries, k, shares, keep_top=False)


def sufficiency(
    predict: Predict,
    attention: Sequence[Any],
    queries: Sequence[int] | None = None,
    *,
    k: int | None = None,
    shares: Sequence[float] = AOPC_SHARES,
) -> float:
    """The mean of c(x) - c(only the top tokens of x); lower is better. See `comprehensiveness`."""
    return _drop(predict, attention, queries, k, shares, keep_top=True)


def _drop(predict, attention, queries, k, shares, keep_top: bool) -> float:
    rows = [checked_rows(row)[0] for row in attention]
    if not rows:
        raise ArgumentError("Argument `attention` must hold at least 1 example, but is empty.")
    if queries is not None and len(queries) != len(rows):
        raise ArgumentError(f"Argument `queries` must hold {len(rows)} positions, but holds {len(queries)}.")
    places = [None] * len(rows) if queries is None else list(queries)
    for place, row in zip(places, rows, strict=True):
        if place is not None and not 0 <= place < row.size:
            raise ArgumentError(f"Argument `queries` must lie from 0 to {row.size - 1}, but one is {place}.")
    if k is not None:
        require("k", k, lambda x: (x >= 1) & (x == np.floor(x)), "a whole number of at least 1")
    else:
        require("shares", list(shares), lambda x: (x > 0) & (x <= 1), "above 0 and at most 1")
        if not len(shares):
            raise ArgumentError("Argument `shares` must hold at least 1 share, but is empty.")
    ranked = [order(row, place) for row, place in zip(rows, places, strict=True)]
    full = _probabilities(predict, [np.arange(row.size) for row in rows])
    predicted = full.argmax(axis=1)
    every = np.arange(len(rows))
    drops = []
    for share in (None,) if k is not None else shares:
        kept = []
        for row, place, best in zip(rows, places, ranked, strict=True):
            # A share of a whole number of tokens is not to be rounded up by its representation.
            count = k if share is None else max(1, math.ceil(round(share * row.size, 9)))
            top = best[:count]
            chosen = top if keep_top else np.setdiff1d(np.arange(row.size), top)
            if keep_top and place is not None:
                chosen = np.append(chosen, place)
            kept.append(np.sort(chosen))
        partial = _probabilities(predict, kept)
        drops.append(full[every, predicted] - partial[every, predicted])
    return float(np.mean(drops))


def _probabilities(predict: Predict, kept: Sequence[np.ndarray]) -> np.ndarray:
    found = np.asarray(predict(kept), dtype=float)
    if found.ndim != 2 or len(found) != len(kept):
        shape = f"({len(kept)}, classes)"
        raise ArgumentError(f"Argument `predict` must return shape {shape}, but returned {found.shape}.")
    if not ((found >= 0) & (found <= 1 + 1e-6)).all():
        raise ArgumentError("Argument `predict` must return probabilities, but returned other numbers.")
    return found
