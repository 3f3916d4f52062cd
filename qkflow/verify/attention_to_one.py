"""Attention tends to 1: an explicit bound on the rest, for every circuit.

mu_QK rises, because d mu_QK/dt = S(g) k' (1 - alpha) u du/dt / R_OV > 0 for u > 0. That (1 - alpha) u <= d
for all t is proved at `qkflow.flow.rates.attention_gap`, that u >= ov_below(t), which has no upper limit, in
`qkflow.flow.asymptotics`. Together 1 - alpha <= d / ov_below(t) -> 0.
"""

from __future__ import annotations

import numpy as np

from qkflow.flow.asymptotics import growth_bounds
from qkflow.flow.rates import attention_gap
from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import HORIZON, Evidence

CLAIM = Claim(
    id="attention_to_one",
    statement="alpha never falls and tends to 1: (1 - alpha) mu_OV <= d for all t, d = (1 - a0) u0 + "
    "2 sqrt(b)/B + sqrt(|lambda_OV|/(2 B y0)), B = k' a0 min S (collapsed OV: lambda_OV = 1 and no b), hence "
    "1 - alpha <= d / log(e^u0 + R_OV(u0) a0 eta_OV t/(b M)).",
    source="derived",
    shown="qkflow.verify.attention_to_one",
    scope=Scope.BOUND,
    compared="exact and integrated attention, and the bounds of the parameterization",
    accepted="(1 - alpha) mu_OV over d, 1 - alpha over its bound in t, and 1 plus the fall of mu_QK from one "
    "time to the next (relative to mu_QK's gain or size) are at most 1 + 1e-8",
    reason="the routes agree to 1e-8",
    tolerance=1.0 + 1e-8,
)
RISING = 1e-6
"""A gain below this part of mu_QK is not resolved to the eight digits in which a rise is looked for."""


def judge(evidence: Evidence) -> Claim:
    """How much of the bounds is used, and whether mu_QK ever falls."""
    d = attention_gap(evidence.problem, evidence.field)
    errors, at = {}, {}
    for trajectory in (evidence.by_time, evidence.integrated_by_time):
        log_t, u, g = (np.asarray(x, float) for x in (trajectory.log_t, trajectory.mu_ov, trajectory.mu_qk))
        rest = np.exp(np.asarray(trajectory.log_one_minus_alpha, float))
        below = growth_bounds(evidence.problem, log_t, u, field=evidence.field)["ov_below"].value
        gain = g - g[0]
        scale = np.where(gain > RISING * abs(g), gain, np.maximum(abs(g), 1e-6))
        parts = {
            "(1 - alpha) mu_OV": (rest * u / d, log_t),
            "1 - alpha": (rest * np.asarray(below) / d, log_t),
            "mu_QK falls": (1.0 - np.diff(g) / scale[1:], log_t[1:]),
        }
        for name, (error, times) in parts.items():
            errors[f"{name}, {trajectory.method}"] = error
            at[f"{name}, {trajectory.method}"] = {"log_t": times}
    last = float(np.exp(np.asarray(evidence.by_time.log_one_minus_alpha)[-1]))
    return CLAIM.judged(
        errors, at=at, horizon=f"log t = {HORIZON:g}", d=d, one_minus_alpha_at_the_horizon=last
    )
