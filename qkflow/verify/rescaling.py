"""A factorized circuit learns as if its learning rate were rescaled by its own state."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="rescaling",
    statement="A factorized circuit moves R times as fast as collapsed, R = sqrt(lambda^2 + 4 sigma^2) for "
    "every singular amplitude sigma with imbalance lambda (2 sqrt(b) mu_OV and 2 sqrt(bQ) mu_QK "
    "balanced); R = 1 collapsed.",
    source="paper",
    shown="derivation#Factorized circuits",
    scope=Scope.IDENTITY,
    compared="velocities of the factors' product over those of one matrix, and the derived R_OV, R_QK",
    reason="rounding of sums over the population",
    tolerance=1e-12,
)


def judge(evidence: Evidence) -> Claim:
    """Compare the measured rates at random points and imbalances, a mode at a time."""
    field, errors, at = evidence.field, {}, {}
    for name, gradients in evidence.record.gradients.items():
        kind, seen = gradients.problem.parameterization, gradients.columns
        c = gradients.problem.constants._replace(
            imbalance_ov=seen["imbalance_ov"], imbalance_qk=seen["imbalance_qk"]
        )
        rate = np.asarray(field.rescaling_ov(c, seen["mu_ov"])) if kind.ov_factorized else 1.0
        errors[f"{name}: OV"] = relative(rate - seen["rate_ov"], seen["rate_ov"])
        for mode, nu in zip(("shared", "class"), field.singular_values_qk(c), strict=True):
            sigma = seen["line_mu_qk"] * nu / field.line_gap(c)
            rate = np.asarray(field.rescaling_qk(c, sigma)) if kind.qk_factorized else 1.0
            measured = seen[f"rate_qk_{mode}"]
            errors[f"{name}: QK {mode}"] = relative(rate - measured, measured)
        points = {q: seen[q] for q in ("mu_ov", "line_mu_qk", "imbalance_ov", "imbalance_qk")}
        at |= {part: points for part in errors if part.startswith(f"{name}: ")}
    circuits = len(evidence.record.gradients)
    return CLAIM.judged(errors, at=at, horizon=f"{circuits} circuits at random points, mu_OV and mu_QK <= 6")
