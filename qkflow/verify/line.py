"""Training moves along fixed directions."""

from __future__ import annotations

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="line",
    statement="Trained on the population from an aligned start, W_OV stays a multiple of its direction, "
    "and so does W_QK (in a factorized circuit with a finite common vocabulary: a sum of its "
    "two modes).",
    source="paper",
    shown="derivation#Two directions, two drives",
    scope=Scope.IDENTITY,
    compared="the trained matrices, and their projections on the directions",
    reason="rounding of 1e-16 a step in single entries, which a factorized QK circuit started sharp (mu_QK "
    "of 1 and more) stretches up to a million-fold",
    tolerance=1e-9,
)


def judge(evidence: Evidence) -> Claim:
    """Look for the largest part of a matrix that is off its direction or its plane of modes."""
    errors, at = {}, {}
    for name, training in evidence.record.trainings.items():
        seen = training.columns
        errors[f"{name}: OV"] = relative(seen["residual_ov"])
        errors[f"{name}: QK"] = relative(seen.get("residual_qk_modes", seen["residual_qk"]))
        at[f"{name}: OV"] = at[f"{name}: QK"] = training.places
    return CLAIM.judged(errors, at=at, horizon=evidence.trained_horizon)
