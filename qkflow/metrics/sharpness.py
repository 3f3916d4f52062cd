"""How concentrated attention is, wherever it lies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import entr

from qkflow.metrics._checked import weights


class Sharpness(NamedTuple):
    """Of every example, float64 (N,).

    Args:
        entropy: in units of log T, the largest possible: 1 for uniform attention, 0 for one token (also
            where T = 1).
        effective_tokens: exp(entropy in nats), from 1 to T.
    """

    entropy: np.ndarray
    effective_tokens: np.ndarray


def sharpness(attention: Any, real: Any = None) -> Sharpness:
    """Normalised entropy -sum a log a / log T, and effective number of tokens, T the real ones.

    Args:
        attention: (N, L), exactly zero on padding.
        real: booleans (N, L), false on padding; `None` when no token is padding.

    Raises:
        ArgumentError: for rows that are no attention.

    >>> found = sharpness([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]])
    >>> found.entropy.round(12).tolist(), found.effective_tokens.round(12).tolist()
    ([1.0, 0.0], [4.0, 1.0])
    """
    rows, tokens = weights("attention", attention, "NL", real)
    entropy = entr(rows / rows.sum(axis=1, keepdims=True)).sum(axis=1)
    largest = np.log(tokens.sum(axis=1))
    relative = np.divide(entropy, largest, out=np.zeros_like(entropy), where=largest > 0)
    return Sharpness(relative, np.exp(entropy))
