"""Exact = trained: what gradient descent tends to as its step goes to zero is the exact flow."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, largest
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="training_limit",
    statement="As h goes to zero at fixed t, the trained matrices tend to the exact flow.",
    source="derived, qkflow.verify.descent",
    scope="identity",
    compared="mu_OV and mu_QK of the trained matrices, extrapolated over five halvings of h, and the exact "
    "flow",
    reason="extrapolation leaves the sixth order in h, divided by 2^15: h is small enough for 1e-6",
    tolerance=1e-6,
)


def extrapolate(rows: np.ndarray) -> np.ndarray:
    """The limit of rows that belong to h, h/2, h/4, ... and have an expansion in powers of h (Neville).

    >>> h = 0.5 ** np.arange(4)[:, None]
    >>> extrapolate(3.0 + 2.0 * h - h**2 + h**3).round(12).tolist()
    [3.0]
    """
    order = 1
    while len(rows) > 1:
        rows = rows[1:] + (rows[1:] - rows[:-1]) / (2.0**order - 1.0)
        order += 1
    return rows[0]


def judge(evidence: Evidence) -> Claim:
    """Extrapolate at every recorded time."""
    errors = {}
    for name, training in evidence.record.trainings.items():
        for quantity in ("mu_ov", "mu_qk"):
            limit = extrapolate(training.columns[quantity])
            exact = np.asarray(getattr(evidence.flows[name], quantity))
            errors[f"{name}: {quantity}"] = largest(limit - exact, np.maximum(1.0, abs(exact)))
    return CLAIM.judged(errors)
