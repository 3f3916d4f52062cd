"""What every metric demands of its arrays, said in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qkflow.setting import ArgumentError, require

ROUNDING = 1e-3
"""How far a sum of attention may be from 1: float16 and bfloat16 rows of a thousand tokens reach it."""


def numbers(name: str, values: Any) -> np.ndarray:
    """The values as one float64 array; ragged lists and what is no real number are refused."""
    try:
        found = np.asarray(values)
        if np.iscomplexobj(found):
            raise TypeError
        # One layout, so that one order of summation: a part of a row never sums to more than the row.
        return np.asarray(found, dtype=float, order="C")
    except (TypeError, ValueError):
        raise ArgumentError(
            f"Argument `{name}` must be one array of numbers, its rows of one length, "
            f"but is a {type(values).__name__} that is none."
        ) from None


def scalar(name: str, value: Any, holds: Callable[[np.ndarray], Any], what: str) -> float:
    """One number that `holds`; see `qkflow.setting.require`."""
    require(name, value, holds, what)
    if np.ndim(value):
        raise ArgumentError(f"Argument `{name}` must be one number, but has shape {np.shape(value)}.")
    return float(value)


def share(name: str, value: Any) -> float:
    """One number between 0 and 1."""
    return scalar(name, value, lambda x: (x >= 0) & (x <= 1), "between 0 and 1")


def mask(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Booleans of that shape, from booleans or from 0 and 1; NaN is neither."""
    found = numbers(name, values)
    if found.shape != shape:
        raise ArgumentError(f"Argument `{name}` must have shape {shape}, but has {found.shape}.")
    require(name, found, lambda x: (x == 0) | (x == 1), "true or false (1 or 0)")
    return found.astype(bool)


def weights(name: str, values: Any, axes: str, real: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Attention as float64, and the real tokens (N, L), once every row is attention over those alone.

    Args:
        name: the argument's name.
        values: weights of the axes.
        axes: "NL", "NHL", "NLL" or "NHLL": examples N, heads H, queries and keys L.
        real: booleans (N, L), false on padding; `None` when no token is padding. What a padding query
            attends to is not read: its row is replaced by weight on itself.

    Raises:
        ArgumentError: for another shape, and for weights that are negative, no numbers, not zero on
            padding, or do not sum to 1.
    """
    found = numbers(name, values)
    maps = axes.endswith("LL")
    if found.ndim != len(axes) or not found.size or (maps and found.shape[-1] != found.shape[-2]):
        raise ArgumentError(
            f"Argument `{name}` must have shape ({', '.join(axes)}), none of them 0, but has {found.shape}."
        )
    size, length = found.shape[0], found.shape[-1]
    tokens = np.ones((size, length), dtype=bool) if real is None else mask("real", real, (size, length))
    between = (1,) * (found.ndim - 2)
    allowed = tokens.reshape(size, *between, length)
    if maps:
        itself = np.eye(length, dtype=bool)
        found = np.where(tokens.reshape(size, *between[1:], length, 1), found, itself)
        allowed = allowed | itself
    require(name, found, lambda x: (x >= 0) & np.isfinite(x), "finite and not negative")
    if (found * ~allowed).any():
        raise ArgumentError(f"Argument `{name}` must be exactly 0 on padding, but is not.")
    sums = found.sum(axis=-1)
    wrong = np.abs(sums - 1) > ROUNDING
    if wrong.any():
        raise ArgumentError(
            f"Argument `{name}` must sum to 1 in every row, but a sum is {sums[wrong][0]:.6g}."
        )
    return found, tokens


def relevant_tokens(relevant: Any, tokens: np.ndarray) -> np.ndarray:
    """Which tokens are relevant, (N, L): none of the padding."""
    chosen = mask("relevant", relevant, tokens.shape)
    if (chosen & ~tokens).any():
        raise ArgumentError("Argument `relevant` must be false on padding, but is not.")
    return chosen
