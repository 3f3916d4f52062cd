"""Factors stay as balanced as they began."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Verdict, largest
from qkflow.verify.evidence import Evidence
from qkflow.verify.training_limit import extrapolate

CLAIM = Claim(
    id="conserved",
    statement="The flow conserves W_O^T W_O - W_V W_V^T and W_K W_K^T - W_Q W_Q^T: under gradient "
    "descent with step h they drift at order h, to zero with h.",
    source="derivation, factorized circuits",
    scope="identity",
    compared="drift of the trained factors over their size, extrapolated over five halvings of h, and zero",
    reason="extrapolation leaves the sixth order in h, divided by 2^15: h is small enough for 1e-7",
    tolerance=1e-7,
)


def judge(evidence: Evidence) -> Claim:
    """Extrapolate the drift of every factorized circuit at every recorded time."""
    errors, drift = {}, {}
    for name, training in evidence.record.trainings.items():
        for circuit in ("ov", "qk"):
            column = training.columns.get(f"conserved_{circuit}")
            if column is not None:
                errors[f"{name}: {circuit.upper()}"] = largest(extrapolate(column))
                drift[f"{name}: {circuit.upper()}"] = float(np.max(column[0]))
    if not errors:
        return CLAIM.without_verdict(Verdict.OUT_OF_SCOPE, "no trained circuit is factorized")
    return CLAIM.judged(errors, drift_at_the_largest_step=drift)
