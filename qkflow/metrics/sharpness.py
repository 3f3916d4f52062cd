"""How concentrated attention is, wherever it lies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr

from qkflow.metrics.rows import checked_rows


class Sharpness(NamedTuple):
    """Of every row; arrays of the shape of the rows without their last axis.

    Args:
        entropy: in units of log T, the largest possible: 1 for uniform attention, 0 for one token.
        effective_tokens: exp(entropy in nats), from 1 to T.
    """

    entropy: np.ndarray
    effective_tokens: np.ndarray


def sharpness(attention: Any, real: Any = None) -> Sharpness:
    """Normalised entropy and effective number of tokens.

    Args:
        attention: (..., L), exactly zero on padding.
        real: booleans of that shape, false on padding; `None` when no token is padding.

    Raises:
        ArgumentError: for rows that are no attention.

    >>> found = sharpness([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    >>> found.entropy.round(12).tolist(), found.effective_tokens.round(12).tolist()
    ([1.0, 0.0], [4.0, 1.0])
    """
    rows, mask = checked_rows(attention, real)
    rows = rows / rows.sum(axis=-1, keepdims=True)
    entropy = entr(rows).sum(axis=-1)
    largest = np.log(mask.sum(axis=-1))
    share = np.divide(entropy, largest, out=np.zeros_like(entropy), where=largest > 0)
    return Sharpness(share, np.exp(entropy))
