"""The tight rate of mu_OV: constant 1 in log t, whatever the ratio, and what z tends to."""

from __future__ import annotations

import dataclasses

import numpy as np

from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence
from qkflow.verify.late import ACCEPTED, FALSIFIED, REASON, cases, judge_rate

CLAIM = Claim(
    id="ov_rate",
    statement="mu_OV / log t -> 1 in all four parameterizations; z - log(eta_OV t/b) -> 0 (collapsed OV) and "
    "z - log mu_OV - log(2 eta_OV t/sqrt(b)) -> 0 (factorized OV), z = alpha mu_OV.",
    source="derived",
    shown="qkflow.flow.rates",
    scope=Scope.RATE,
    compared="exact z of all four parameterizations at 1/100, 1 and 100 times the ratio, less its leading "
    "order, and the interval that the flow's own slope there allows",
    accepted=ACCEPTED,
    falsified=FALSIFIED,
    reason=REASON,
    tolerance=1.0,
)


def judge(evidence: Evidence) -> Claim:
    """As `judge_rate`, with mu_OV / log t at the last time."""
    judged = judge_rate(CLAIM, evidence, "z")
    last = {
        name: float(np.asarray(case.mu_ov)[-1] / case.log_t[-1]) for name, case in cases(evidence).items()
    }
    return dataclasses.replace(judged, details={**judged.details, "mu_ov_over_log_t": last})
