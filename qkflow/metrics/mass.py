"""Attention mass on relevant tokens, and how it goes with the probability of the right class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from qkflow.metrics._checked import numbers, relevant_tokens, share, weights
from qkflow.setting import ArgumentError, require


class Mass(NamedTuple):
    """Attention on relevant tokens.

    Args:
        values: float64 (N - excluded,), in the order of the examples that have relevant tokens.
        included: booleans (N,), which those are.
        excluded: how many examples have none.
    """

    values: np.ndarray
    included: np.ndarray
    excluded: int


def attention_mass(attention: Any, relevant: Any, real: Any = None) -> Mass:
    """A_i, the sum of an attention row over the relevant tokens; examples without any are excluded.

    Args:
        attention: (N, L), the row of the query whose output is read; exactly zero on padding.
        relevant: booleans (N, L), false on padding.
        real: booleans (N, L), false on padding; `None` when no token is padding.

    Raises:
        ArgumentError: for rows that are no attention, a relevant padding token, or no relevant token at all.

    >>> attention_mass([[0.2, 0.8], [0.5, 0.5]], [[False, True], [False, False]])
    Mass(values=array([0.8]), included=array([ True, False]), excluded=1)
    """
    rows, tokens = weights("attention", attention, "NL", real)
    chosen = relevant_tokens(relevant, tokens)
    included = np.asarray(chosen.any(axis=1))
    if not included.any():
        raise ArgumentError("Argument `relevant` must name a token in some example, but is false throughout.")
    # Rows of half precision sum to 1 only up to their rounding.
    values = ((rows * chosen).sum(axis=1) / rows.sum(axis=1))[included]
    return Mass(values, included, int((~included).sum()))


def _shares(name: str, values: Any) -> np.ndarray:
    found = numbers(name, values)
    if found.ndim != 1 or not found.size:
        raise ArgumentError(f"Argument `{name}` must have shape (N,), N at least 1, but has {found.shape}.")
    require(name, found, lambda x: (x >= 0) & (x <= 1), "between 0 and 1")
    return found


def _pair(mass: Any, probability: Any) -> tuple[np.ndarray, np.ndarray]:
    mass, probability = _shares("mass", mass), _shares("probability", probability)
    if mass.shape != probability.shape:
        raise ArgumentError(
            f"Argument `probability` must have shape {mass.shape} as `mass` has, but has {probability.shape}."
        )
    return mass, probability


def dtap(mass: Any, probability: Any, edges: Sequence[float] = (0.2, 0.4, 0.6, 0.8)) -> np.ndarray:
    """The distinct-token attention - prediction map: percent of examples by attention and by probability.

    Args:
        mass: A_i, (N,).
        probability: p_i of the correct class, (N,), of the same examples: `probability[mass.included]`.
        edges: inner edges of the bins on both axes; bins are (lo, hi], the first includes 0, and a value
            belongs where its float64 lies.

    Returns:
        (bins, bins) percent that sum to 100: rows are bins of the probability from low to high, columns
        bins of the attention from low to high. `map[-1]` is the published "row p > .8".

    Raises:
        ArgumentError: for shapes that differ, values outside 0 to 1, or edges that do not increase inside.

    >>> dtap([0.1, 0.9, 0.8, 1.0], [0.9, 0.9, 0.9, 0.1], edges=[0.8]).tolist()
    [[0.0, 25.0], [50.0, 25.0]]
    """
    mass, probability = _pair(mass, probability)
    inner = numbers("edges", edges)
    if inner.ndim != 1 or not ((inner > 0) & (inner < 1)).all() or (np.diff(inner) <= 0).any():
        raise ArgumentError(
            f"Argument `edges` must increase strictly inside 0 to 1, but is {inner.tolist()!r}."
        )
    bins = len(inner) + 1
    places = np.searchsorted(inner, probability) * bins + np.searchsorted(inner, mass)
    return np.bincount(places, minlength=bins**2).reshape(bins, bins) * (100 / mass.size)


def attention_confidence(mass: Any, theta: float) -> float:
    """AC(theta): the fraction of examples with A_i > theta.

    Args:
        mass: A_i, (N,).
        theta: between 0 and 1.

    Raises:
        ArgumentError: for values outside 0 to 1.

    >>> attention_confidence([0.2, 0.5, 0.9], 0.5)
    0.3333333333333333
    """
    return float((_shares("mass", mass) > share("theta", theta)).mean())


def acmc(mass: Any, probability: Any, theta: float, pi: float) -> float:
    """ACMC(theta, pi), attention and model confidence: the fraction with A_i > theta and p_i > pi.

    Where theta and pi are edges it is the upper right block of the DTAP map.

    Args:
        mass: A_i, (N,).
        probability: p_i of the correct class, (N,), of the same examples.
        theta: between 0 and 1.
        pi: between 0 and 1.

    Raises:
        ArgumentError: for shapes that differ, or values outside 0 to 1.

    >>> acmc([0.2, 0.6, 0.9], [0.9, 0.1, 0.8], theta=0.5, pi=0.5)
    0.3333333333333333
    """
    mass, probability = _pair(mass, probability)
    return float(((mass > share("theta", theta)) & (probability > share("pi", pi))).mean())
