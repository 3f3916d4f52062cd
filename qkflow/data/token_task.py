"""The 50-token task: a class is told by tokens distinct to it, among tokens common to all."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from qkflow.setting import ArgumentError, require

MAX_CONTEXT = 255
"""Longest context: the tables of the sampler grow with the square of its length."""


@dataclasses.dataclass(frozen=True)
class TokenTask:
    """Sequences of independent tokens, labelled by their class; by default the paper's task of 50 tokens.

    Tokens are numbered through: first the common ones, then the distinct ones of class 0, of class 1, and so
    on. Classes are equally likely. A token of the context of class c is a common or one of the class's own
    distinct tokens, with probability proportional to its weight. The label of class c is token c + 1 and its
    query token c + M + 1, both common. The outputs are all V tokens. Published with M = 4, T = 64 and 128
    (Vashisht and Ramaswamy 2026, Figures 2 and 3).

    Args:
        n_classes: M.
        common_weights: one for each common token, positive.
        distinct_weights: one for each distinct token of a class, positive, the same in every class.
        length: T, tokens of a whole sequence: T - 2 of context, then the query, then the label, which is
            what is asked for and never an input.
        query_attended: whether the query is also one of the positions attended.

    Raises:
        ArgumentError: for numbers out of range.

    >>> task = TokenTask()
    >>> task.n_tokens, task.n_context, round(task.distinct_share, 4)
    (50, 62, 0.3548)
    """

    n_classes: int = 4
    common_weights: tuple[float, ...] = (1.0,) * 10
    distinct_weights: tuple[float, ...] = tuple(k / 10 for k in range(1, 11))
    length: int = 64
    query_attended: bool = True

    def __post_init__(self):
        """Check every number."""
        require("n_classes", self.n_classes, lambda x: (x >= 2) & (x == np.floor(x)), "a whole number >= 2")
        most = MAX_CONTEXT + 2
        whole = f"a whole number from 3 to {most}"
        require("length", self.length, lambda x: (x >= 3) & (x <= most) & (x == np.floor(x)), whole)
        for name in ("common_weights", "distinct_weights"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
            require(name, getattr(self, name), lambda x: (x > 0) & np.isfinite(x), "positive and finite")
        if not self.distinct_weights:
            raise ArgumentError("Argument `distinct_weights` must hold at least 1 weight, but is empty.")
        needed = 2 * self.n_classes + 1
        if self.n_common < needed:
            raise ArgumentError(
                f"Argument `common_weights` must hold at least {needed} weights, for the labels and queries "
                f"of {self.n_classes} classes, but holds {self.n_common}."
            )

    @property
    def n_common(self) -> int:
        """The number of common tokens."""
        return len(self.common_weights)

    @property
    def n_tokens(self) -> int:
        """V, the size of the vocabulary and the number of outputs."""
        return self.n_common + self.n_classes * len(self.distinct_weights)

    @property
    def n_context(self) -> int:
        """T - 2, the tokens of the context."""
        return self.length - 2

    @property
    def labels(self) -> np.ndarray:
        """The label's token of every class, integers (M,)."""
        return 1 + np.arange(self.n_classes)

    @property
    def queries(self) -> np.ndarray:
        """The query's token of every class, integers (M,)."""
        return 1 + self.n_classes + np.arange(self.n_classes)

    @property
    def score_scale(self) -> float:
        """beta = 1 / sqrt(V), which multiplies every score."""
        return 1 / math.sqrt(self.n_tokens)

    @property
    def probabilities(self) -> np.ndarray:
        """Of a class's cells, float64 (cells,): the common tokens, then its own distinct ones."""
        weights = np.array(self.common_weights + self.distinct_weights)
        return weights / weights.sum()

    @property
    def distinct_share(self) -> float:
        """The probability that a token of the context is distinct."""
        return float(self.probabilities[self.n_common :].sum())

    @property
    def distinct(self) -> np.ndarray:
        """Which tokens are distinct, booleans (V,); a sequence holds those of its own class alone."""
        return np.arange(self.n_tokens) >= self.n_common
