"""Confidence intervals that hold for many comparisons at once, and the three verdicts they allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.scipy.special import betainc

from qkflow.verify.claim import Claim

LEVEL = 0.95
"""All intervals of a claim hold together with this probability (Bonferroni)."""


def quantile(comparisons: int, seeds: int) -> float:
    """Student's t for `seeds` - 1 degrees of freedom that two-sided intervals at `LEVEL` need.

    >>> round(quantile(1, 11), 4), round(quantile(10, 64), 4)
    (2.2281, 2.9093)
    """
    degrees, beyond = seeds - 1.0, (1.0 - LEVEL) / comparisons
    low, high = 0.0, 1e3
    for _ in range(60):
        t = (low + high) / 2.0
        # P(|T| > t) is the regularised incomplete beta function at degrees / (degrees + t^2).
        more = float(betainc(degrees / 2.0, 0.5, degrees / (degrees + t * t))) > beyond
        low, high = (t, high) if more else (low, t)
    return high


def log_scatter(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The log of the standard deviation over seeds, and what each seed adds to it.

    Args:
        values: (..., K), one number a seed.

    Returns:
        log s, (...,), and its influence function ((x - mean)^2 / s^2 - 1) / 2, (..., K), whose scatter over
        sqrt(K) is the standard error. Kept a seed, it gives that of sums over several trainings whose
        seeds are paired.

    >>> log_s, influence = log_scatter(np.array([-1.0, 1.0, -1.0, 1.0]))
    >>> round(float(log_s), 4), influence.round(3).tolist()
    (0.1438, [-0.125, -0.125, -0.125, -0.125])
    """
    off = values - values.mean(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (off**2).sum(-1) / (values.shape[-1] - 1)
        return np.log(variance) / 2.0, (off**2 / variance[..., None] - 1.0) / 2.0


def standard_error(influence: np.ndarray) -> float:
    """That of a mean over seeds, from what each of them adds."""
    return float(influence.std(ddof=1)) / math.sqrt(len(influence))


def decide(
    claim: Claim, estimates: Mapping[str, tuple[float, float]], horizon: str, why: str, **details: Any
) -> Claim:
    """The claim by intervals of numbers that must not exceed its tolerance.

    Verified when every interval lies within the tolerance, falsified when one lies wholly beyond it,
    undecided otherwise.

    Args:
        claim: the claim.
        estimates: by part, an estimate and the half width of its interval.
        horizon: how far was looked.
        why: said when undecided.
        details: further plain JSON values to keep.
    """
    # An estimate that is not a number is wrong, whatever its width.
    inner = {part: math.inf if math.isnan(x) else x - width for part, (x, width) in estimates.items()}
    outer = {part: x + width for part, (x, width) in estimates.items()}
    if max(inner.values()) > claim.tolerance:
        return claim.judged(inner, horizon=horizon, **details)
    if not max(outer.values()) <= claim.tolerance:
        part = max(outer, key=outer.__getitem__)
        return claim.undecided(
            f"{why}: {part} is {estimates[part][0]:.3g} +- {estimates[part][1]:.2g}", **details
        )
    return claim.judged(outer, horizon=horizon, **details)
