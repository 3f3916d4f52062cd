"""The gradients of the full matrices are the derived field, entry by entry."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, largest
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="reduction",
    statement="On the symmetric manifold the population gradient of both matrices lies along their fixed "
    "directions, and its coefficients are the drives of the scalar flow.",
    source="paper; derivation, two directions",
    scope="identity",
    compared="automatic differentiation of all matrix entries (no time stepping) and the derived field",
    reason="rounding of sums over the population",
    tolerance=1e-12,
)


def judge(evidence: Evidence) -> Claim:
    """Compare both gradients at random points of the manifold, and what leaves it."""
    errors = {}
    for name, gradients in evidence.record.gradients.items():
        c, seen = gradients.problem.constants, gradients.columns
        ov = np.asarray(evidence.field.drive_ov(c, seen["mu_ov"], seen["mu_qk"]))
        qk = np.asarray(evidence.field.drive_qk(c, seen["mu_ov"], seen["mu_qk"]))
        errors[f"{name}: OV"] = largest(ov - seen["drive_ov"], abs(seen["drive_ov"]))
        for mode in ("shared", "class"):
            measured = seen[f"drive_qk_{mode}"]
            errors[f"{name}: QK {mode}"] = largest(qk - measured, abs(measured))
        errors[f"{name}: off the directions"] = largest([seen["off_ov"], seen["off_qk"]])
    return CLAIM.judged(
        errors, horizon=f"{len(errors) // 4} circuits at random points with mu_OV <= 6, mu_QK <= 6"
    )
