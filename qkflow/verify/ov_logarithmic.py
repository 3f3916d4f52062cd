"""mu_OV grows like log t, whatever the ratio."""

from __future__ import annotations

import numpy as np

from qkflow.verify.bounds import judge_bounds
from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="ov_logarithmic",
    statement="mu_OV = O(log t): it lies between explicit bounds for all t, below with leading constant 1 in "
    "log t, above with 1 where a saturated bound is stated and 1/alpha(0) elsewhere.",
    source="paper",
    shown="qkflow.flow.asymptotics",
    scope=Scope.BOUND,
    compared="exact and integrated mu_OV, and the bounds of the parameterization",
    reason="the bounds are touched at t = 0, and the routes agree to 1e-8",
    tolerance=1e-8,
)


def judge(evidence: Evidence) -> Claim:
    """Look for the largest excess, and report mu_OV / log t at the horizon, which tends to 1."""
    last = evidence.by_time
    return judge_bounds(
        CLAIM,
        evidence,
        "mu_ov",
        mu_ov_over_log_t=float(np.asarray(last.mu_ov)[-1] / np.asarray(last.log_t)[-1]),
    )
