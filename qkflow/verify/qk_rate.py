"""The tight rate of mu_QK: log log t, with its constants."""

from __future__ import annotations

from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence
from qkflow.verify.late import ACCEPTED, FALSIFIED, REASON, judge_rate

CLAIM = Claim(
    id="qk_rate",
    statement="mu_QK = p log mu_QK + q log log t + log(Gamma/rho) + o(1), rho = m/n, p = 0 (collapsed QK) or "
    "1 (factorized), q = 2 (collapsed OV) or 1 (factorized), Gamma = k' s f with k' = r b beta (M-1)/(M Q), "
    "s = beta (1/b + 1/B) or 2 nu_1, f = 1/2 or 1/(2 sqrt(b)).",
    source="derived",
    shown="qkflow.flow.rates",
    scope=Scope.RATE,
    compared="exact mu_QK of all four parameterizations at 1/100, 1 and 100 times the ratio, less its "
    "leading order, and the interval from bounds of mu_OV in t and from the first integral, solved anew",
    accepted=ACCEPTED,
    falsified=FALSIFIED,
    reason=REASON,
    tolerance=1.0,
)


def judge(evidence: Evidence) -> Claim:
    """As `judge_rate`."""
    return judge_rate(CLAIM, evidence, "mu_qk")
