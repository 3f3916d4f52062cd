"""Does attention rank the relevant tokens first?

That says nothing of whether the model uses them: for that see `faithfulness.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from qkflow.metrics._checked import relevant_tokens, weights
from qkflow.setting import ArgumentError


class Relevance(NamedTuple):
    """A ranking metric over examples.

    Args:
        mean: over the examples that count.
        values: of each of them, float64, in order.
        included: booleans (N,), which those are.
        excluded: how many examples have no relevant token, or nothing else.
    """

    mean: float
    values: np.ndarray
    included: np.ndarray
    excluded: int


def relevance_auroc(attention: Any, relevant: Any, real: Any = None) -> Relevance:
    """The probability that a relevant token has more attention than another; ties count half.

    It is U/(n n') of Mann and Whitney, of the n relevant and the n' other tokens of each example.

    Args:
        attention: (N, L), exactly zero on padding.
        relevant: booleans (N, L), false on padding.
        real: booleans (N, L), false on padding; `None` when no token is padding.

    Raises:
        ArgumentError: for rows that are no attention, a relevant padding token, or no example that counts.

    >>> relevance_auroc([[0.5, 0.3, 0.2]], [[False, True, False]]).mean
    0.5
    """

    def auroc(row: np.ndarray, chosen: np.ndarray) -> float:
        inside = chosen.sum()
        above = rankdata(row)[chosen].sum() - inside * (inside + 1) / 2
        return above / (inside * (row.size - inside))

    return _over_examples(auroc, attention, relevant, real)


def average_precision(attention: Any, relevant: Any, real: Any = None) -> Relevance:
    """The mean over relevant tokens of the share of relevant ones among all that are attended as much.

    That is the sum of precision times the rise of recall down the ranking. Tokens with equal attention are
    one step of it: each has the precision of all of them.

    Args:
        attention: (N, L), exactly zero on padding.
        relevant: booleans (N, L), false on padding.
        real: booleans (N, L), false on padding; `None` when no token is padding.

    Raises:
        ArgumentError: for rows that are no attention, a relevant padding token, or no example that counts.

    >>> average_precision([[0.5, 0.3, 0.2]], [[False, True, False]]).mean
    0.5
    """

    def precision(row: np.ndarray, chosen: np.ndarray) -> float:
        upto = rankdata(-row, method="max")
        hits = rankdata(-row[chosen], method="max")
        return float((hits / upto[chosen]).mean())

    return _over_examples(precision, attention, relevant, real)


def _over_examples(metric, attention: Any, relevant: Any, real: Any) -> Relevance:
    rows, tokens = weights("attention", attention, "NL", real)
    chosen = relevant_tokens(relevant, tokens)
    included = np.asarray(chosen.any(axis=1) & (tokens & ~chosen).any(axis=1))
    if not included.any():
        raise ArgumentError("Argument `relevant` must leave some, not all, tokens of an example relevant.")
    examples = zip(rows[included], chosen[included], tokens[included], strict=True)
    values = np.array([metric(row[own], among[own]) for row, among, own in examples])
    return Relevance(float(values.mean()), values, included, int((~included).sum()))
