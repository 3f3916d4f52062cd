"""mu_QK is bounded by a law in mu_OV^2 or mu_OV: O(log^2 t) is an upper bound, and not the rate."""

from __future__ import annotations

import numpy as np

from qkflow.verify.bounds import judge_bounds
from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="qk_bounded",
    statement="mu_QK = O(log^2 t) as a bound: mu_QK keeps below the parameterization's explicit bounds "
    "in mu_OV for all t.",
    source="paper",
    shown="qkflow.flow.asymptotics",
    scope=Scope.BOUND,
    compared="exact and integrated mu_QK, and the bounds of the parameterization at the same mu_OV",
    reason="the bounds are touched at t = 0, and the routes agree to 1e-8",
    tolerance=1e-8,
)


def judge(evidence: Evidence) -> Claim:
    """Look for the largest excess, and report mu_QK / log^2 t at the horizon, which tends to 0."""
    last = evidence.by_time
    ratio = float(np.asarray(last.mu_qk)[-1] / np.asarray(last.log_t)[-1] ** 2)
    return judge_bounds(CLAIM, evidence, "mu_qk", mu_qk_over_log_t_squared=ratio)
