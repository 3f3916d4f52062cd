"""The attention model's loss on one sequence: the only thing that the derivation starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import sympy as sp

from qkflow.symbolic.symbols import Expr, beta

Score = Callable[[Expr], Expr]
"""The score of a token as a function of its entry of W_QK against the query."""

Loss = Callable[[Sequence[Expr], Sequence[Expr]], Expr]
"""The loss as a function of the logits and of how many classes share each; the first is the right class."""


class Tokens(NamedTuple):
    """`count` positions of a sequence whose tokens have the same matrix entries."""

    count: Expr
    score_entry: Expr
    values: tuple[Expr, ...]  # the entry of W_OV for each group of classes


def scaled_score(entry: Expr) -> Expr:
    """The score beta * x_j^T W_QK x_q for an entry of W_QK."""
    return beta * entry


def cross_entropy(logits: Sequence[Expr], counts: Sequence[Expr]) -> Expr:
    """Minus the log of the right (first) class's softmax probability."""
    total = sum(count * sp.exp(logit) for count, logit in zip(counts, logits, strict=True))
    return -sp.log(sp.exp(logits[0]) / total)


def attention(tokens: Sequence[Tokens], score: Score = scaled_score) -> list[Expr]:
    """The softmax attention mass on each group of tokens."""
    weights = [group.count * sp.exp(score(group.score_entry)) for group in tokens]
    return [weight / sum(weights) for weight in weights]


def sequence_loss(
    tokens: Sequence[Tokens],
    counts: Sequence[Expr],
    score: Score = scaled_score,
    loss: Loss = cross_entropy,
) -> Expr:
    """The loss on one sequence.

    Args:
        tokens: the attended positions, in groups of equal entries.
        counts: how many classes each entry of `Tokens.values` stands for; the right class comes first.
        score: the score of a matrix entry.
        loss: the loss of the logits.

    >>> s, v, w = sp.symbols("s v w")
    >>> sequence_loss([Tokens(1, s, (v, w))], (1, 1))
    -log(exp(v)/(exp(v) + exp(w)))
    """
    masses = attention(tokens, score)
    logits = [sum(mass * group.values[i] for mass, group in zip(masses, tokens)) for i in range(len(counts))]
    return loss(logits, counts)
