"""Sequences of the orthogonal setting as integers.

Keys are numbered class by class, common tokens last: distinct token k of class c is `c * b + k`, common
token k is `M * b + k`. Queries have numbers of their own: query token k of class c is `c * Q + k`.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Sequences(NamedTuple):
    """N sequences, each with its class (the label), its query and its tokens.

    Args:
        classes: integers of shape (N,).
        queries: integers of shape (N,).
        tokens: integers of shape (N, m + n), the m distinct tokens first; (N, m) when the common
            vocabulary is infinite, where the n common tokens have no columns in any matrix.
    """

    classes: Any
    queries: Any
    tokens: Any
