"""Training moves along fixed directions."""

from __future__ import annotations

from qkflow.verify.claim import Claim, largest
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="line",
    statement="Trained on the population from an aligned start, W_OV stays a multiple of its direction, "
    "and so does W_QK (in a factorized circuit with a finite common vocabulary: a sum of its "
    "two modes).",
    source="paper; derivation, two directions",
    scope="identity",
    compared="the trained matrices, and their projections on the directions",
    reason="rounding of 1e-16 a step in single entries over ten thousand steps",
    tolerance=1e-12,
)


def judge(evidence: Evidence) -> Claim:
    """Look for the largest part of a matrix that is off its direction or its plane of modes."""
    errors = {}
    for name, training in evidence.record.trainings.items():
        seen = training.columns
        errors[f"{name}: OV"] = largest(seen["residual_ov"])
        errors[f"{name}: QK"] = largest(seen.get("residual_qk_modes", seen["residual_qk"]))
    return CLAIM.judged(errors)
