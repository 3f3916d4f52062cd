"""How fast attention becomes all: 1/log^2 t with a collapsed OV circuit, 1/log t with a factorized one."""

from __future__ import annotations

from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence
from qkflow.verify.late import ACCEPTED, FALSIFIED, REASON, judge_rate

CLAIM = Claim(
    id="attention_rate",
    statement="1 - alpha = (1 + o(1)) / (Gamma mu_QK^p log(t)^q) with Gamma, p and q of qk_rate: 1/(gamma "
    "log^2 t) in CACO, 1/(a mu_QK gamma log^2 t) in FACO, 1/(gamma' log t) in CAFO, 1/(a mu_QK gamma' log t) "
    "in FAFO (a = 2 sqrt(bQ)/beta; B infinite).",
    source="derived",
    shown="qkflow.flow.rates",
    scope=Scope.RATE,
    compared="exact log(1 - alpha) of all four parameterizations at 1/100, 1 and 100 times the ratio, less "
    "its leading order, and the interval from bounds of mu_OV in t and from the first integral, solved anew",
    accepted=ACCEPTED,
    falsified=FALSIFIED,
    reason=REASON,
    tolerance=1.0,
)


def judge(evidence: Evidence) -> Claim:
    """As `judge_rate`."""
    return judge_rate(CLAIM, evidence, "one_minus_alpha")
