"""The gradients of the full matrices are the derived field, entry by entry."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="reduction",
    statement="On the symmetric manifold the population gradient of both matrices lies along their fixed "
    "directions, and its coefficients are the drives of the scalar flow.",
    source="paper",
    shown="derivation#Two directions, two drives",
    scope=Scope.IDENTITY,
    compared="automatic differentiation of all matrix entries (no time stepping) and the derived field",
    reason="rounding of sums over the population",
    tolerance=1e-12,
)


def judge(evidence: Evidence) -> Claim:
    """Compare both gradients at random points of the manifold, and what leaves it."""
    errors, at = {}, {}
    for name, gradients in evidence.record.gradients.items():
        c, seen = gradients.problem.constants, gradients.columns
        ov = np.asarray(evidence.field.drive_ov(c, seen["mu_ov"], seen["mu_qk"]))
        qk = np.asarray(evidence.field.drive_qk(c, seen["mu_ov"], seen["mu_qk"]))
        errors[f"{name}: OV"] = relative(ov - seen["drive_ov"], abs(seen["drive_ov"]))
        for mode in ("shared", "class"):
            measured = seen[f"drive_qk_{mode}"]
            errors[f"{name}: QK {mode}"] = relative(qk - measured, abs(measured))
        errors[f"{name}: off the directions"] = relative([seen["off_ov"], seen["off_qk"]])
        points = {q: seen[q] for q in ("mu_ov", "mu_qk")}
        at |= {part: points for part in errors if part.startswith(f"{name}: ")}
    circuits = len(evidence.record.gradients)
    return CLAIM.judged(errors, at=at, horizon=f"{circuits} circuits at random points, mu_OV and mu_QK <= 6")
