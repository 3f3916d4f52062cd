"""Factors stay as balanced as they began."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence
from qkflow.verify.training_limit import extrapolate

CLAIM = Claim(
    id="conserved",
    statement="The flow conserves W_O^T W_O - W_V W_V^T and W_K W_K^T - W_Q W_Q^T: under gradient "
    "descent with step h they drift at order h, to zero with h.",
    source="derived",
    shown="derivation#Factorized circuits",
    scope=Scope.IDENTITY,
    compared="drift of the trained factors over their size, extrapolated over five halvings of h, and zero",
    reason="extrapolation leaves the sixth order in h, divided by 2^15: h is small enough for 1e-7",
    tolerance=1e-7,
)


def judge(evidence: Evidence) -> Claim:
    """Extrapolate the drift of every factorized circuit at every recorded time."""
    errors, at, drift = {}, {}, {}
    for name, training in evidence.record.trainings.items():
        for circuit in ("ov", "qk"):
            column = training.columns.get(f"conserved_{circuit}")
            if column is not None:
                part = f"{name}: {circuit.upper()}"
                errors[part], at[part] = relative(extrapolate(column)), {"t": training.t}
                drift[part] = float(np.max(column[0]))
    if not errors:
        return CLAIM.out_of_scope("no trained circuit is factorized")
    return CLAIM.judged(errors, at=at, horizon=evidence.trained_horizon, drift_at_the_largest_step=drift)
