"""Two settings compared over seeds, paired, and whether they are equivalent."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from qkflow.metrics._checked import numbers, scalar
from qkflow.setting import ArgumentError, require

LEVEL = 0.95
"""Of the interval; equivalence is tested at 1 - LEVEL."""


class Comparison(NamedTuple):
    """Differences of pairs.

    Args:
        difference: the mean of one - other.
        low: lower end of the two-sided 95 % interval (Student's t).
        high: its upper end.
        p: of the two-sided paired t-test that the mean difference is zero.
        p_equivalent: of TOST (Schuirmann 1987), the larger of the two one-sided tests that the mean
            difference is beyond -margin or margin; `None` without a margin.
        equivalent: whether p_equivalent < .05: comparable within the margin; `None` without a margin.
    """

    difference: float
    low: float
    high: float
    p: float
    p_equivalent: float | None
    equivalent: bool | None


def paired(one: Any, other: Any, margin: float | None = None) -> Comparison:
    """The mean difference of pairs (the same seed in both), its interval, and TOST where a margin is given.

    Without any scatter the difference is exact: intervals have no width and p is 0 or 1. Failing to find a
    difference is no equivalence: that needs the margin (whose 90 % interval must lie within).

    Args:
        one: (K,), K >= 2 seeds.
        other: (K,), the same seeds.
        margin: differences smaller than this do not matter, positive.

    Raises:
        ArgumentError: for fewer than 2 pairs, lengths that differ, numbers that are not finite, or a margin
            that is not positive.

    >>> found = paired([1.0, 2.0, 3.0], [0.9, 1.9, 3.0], margin=0.2)
    >>> round(found.difference, 4), round(found.low, 4), round(found.high, 4), found.equivalent
    (0.0667, -0.0768, 0.2101, True)
    """
    a, b = numbers("one", one), numbers("other", other)
    for name, value in (("one", a), ("other", b)):
        require(name, value, np.isfinite, "finite")
    if a.shape != b.shape or a.ndim != 1 or a.size < 2:
        raise ArgumentError(
            "Arguments `one` and `other` must hold the same 2 or more seeds, "
            f"but have shapes {a.shape} and {b.shape}."
        )
    if margin is not None:
        margin = scalar("margin", margin, lambda x: (x > 0) & np.isfinite(x), "positive and finite")
    gaps = a - b
    freedom = gaps.size - 1
    mean = float(gaps.mean())
    # Deviations of equal gaps from their rounded mean are no scatter; squares of tiny ones would underflow.
    spread = float(np.ptp(gaps))
    error = spread * float((gaps / spread).std(ddof=1)) / math.sqrt(gaps.size) if spread else 0.0
    reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error

    def above(distance: float) -> float:
        """The one-sided p that the true mean is not above the observed one minus `distance`."""
        return float(stdtr(freedom, -distance / error)) if error > 0 else float(distance <= 0)

    p = 2 * above(abs(mean)) if error > 0 else float(mean == 0)
    if margin is None:
        return Comparison(mean, mean - reach, mean + reach, p, None, None)
    tost = max(above(mean + margin), above(margin - mean))
    return Comparison(mean, mean - reach, mean + reach, p, tost, tost < 1 - LEVEL)
