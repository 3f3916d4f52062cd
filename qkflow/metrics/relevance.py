"""Does attention rank the relevant tokens first?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from qkflow.metrics.rows import checked_rows
from qkflow.setting import ArgumentError


class Relevance(NamedTuple):
    """A ranking metric over examples.

    Args:
        mean: over the examples that count.
        values: of each of them, in order.
        excluded: how many examples have no relevant token, or nothing else.
    """

    mean: float
    values: np.ndarray
    excluded: int


def relevance_auroc(attention: Sequence[Any], relevant: Sequence[Any]) -> Relevance:
    """The probability that a relevant token has more attention than another; ties count half (Mann, Whitney).

    Args:
        attention: one row an example over its real tokens, (T_i,), each summing to 1.
        relevant: booleans, (T_i,).

    Raises:
        ArgumentError: for rows that are no attention, shapes that differ, or no example that counts.

    >>> relevance_auroc([[0.5, 0.3, 0.2]], [[False, True, False]]).mean
    0.5
    """

    def auroc(row: np.ndarray, chosen: np.ndarray) -> float:
        inside = chosen.sum()
        above = rankdata(row)[chosen].sum() - inside * (inside + 1) / 2
        return above / (inside * (row.size - inside))

    return _over_examples(auroc, attention, relevant)


def relevance_precision(attention: Sequence[Any], relevant: Sequence[Any]) -> Relevance:
    """Average precision: the mean over relevant tokens of the share of relevant ones among those up to it.

    Tokens with equal attention are taken together: each has the precision of all of them.

    Args:
        attention: one row an example over its real tokens, (T_i,), each summing to 1.
        relevant: booleans, (T_i,).

    Raises:
        ArgumentError: for rows that are no attention, shapes that differ, or no example that counts.

    >>> relevance_precision([[0.5, 0.3, 0.2]], [[False, True, False]]).mean
    0.5
    """

    def precision(row: np.ndarray, chosen: np.ndarray) -> float:
        upto = rankdata(-row, method="max")
        hits = rankdata(-row[chosen], method="max")
        return float((hits / upto[chosen]).mean())

    return _over_examples(precision, attention, relevant)


def _over_examples(metric, attention: Sequence[Any], relevant: Sequence[Any]) -> Relevance:
    if len(attention) != len(relevant):
        raise ArgumentError(
            f"Argument `relevant` must hold {len(attention)} examples, but holds {len(relevant)}."
        )
    values, excluded = [], 0
    for one, other in zip(attention, relevant, strict=True):
        (row, _), chosen = checked_rows(one), np.asarray(other, dtype=bool)
        if row.shape != chosen.shape or row.ndim != 1:
            raise ArgumentError(f"Argument `relevant` must have shape {row.shape}, but has {chosen.shape}.")
        if chosen.any() and not chosen.all():
            values.append(metric(row, chosen))
        else:
            excluded += 1
    if not values:
        raise ArgumentError("Argument `relevant` must leave some, not all, tokens of an example relevant.")
    return Relevance(float(np.mean(values)), np.array(values), excluded)
