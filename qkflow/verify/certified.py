"""Exact = certified: the float64 solution lies where ball arithmetic proves the state to be."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.flow.exact import solve_exact
from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="certified",
    statement="The exact route errs by rounding only: its states are those that balls of relative radius "
    "1e-20 enclose.",
    source="derived",
    shown="qkflow.flow.certify",
    scope=Scope.IDENTITY,
    compared="mu_OV, mu_QK, log(1 - alpha), log loss and log t: exact route in float64, and certified balls",
    reason="the exact route errs by up to 1e-12 in units of max(1, condition number), which is below 10 here",
    tolerance=1e-11,
    precision="float64 against balls of 128 bits or more",
)
LOG_TIMES = (7.0, 14.0, 28.0, 690.0, 2e3, 1e4)
POINTS = 4
"""Losses, evenly among those of the evidence."""


def judge(evidence: Evidence) -> Claim:
    """Compare at log times from before learning to far beyond it, and at a few losses."""
    # Ball arithmetic is imported where it is used.
    from qkflow.flow.certify import certify

    losses = evidence.losses[:: len(evidence.losses) // POINTS]
    asked: dict[str, dict[str, Any]] = {
        "log times": {"at_log_time": LOG_TIMES},
        "losses": {"at_loss": losses},
    }
    errors, at = {}, {}
    for place, question in asked.items():
        exact = solve_exact(evidence.problem, **question, field=evidence.field)
        balls = certify(evidence.exact, **{name: list(map(float, v)) for name, v in question.items()})
        for name in ("mu_ov", "mu_qk", "log_one_minus_alpha", "log_loss", "log_t"):
            proved = np.array([float(ball.mid()) for ball in getattr(balls, name)])
            smallest = 1.0 if name.startswith("log") else 0.0
            part = f"{name} at {place}"
            errors[part] = relative(
                np.asarray(getattr(exact, name)) - proved, np.maximum(abs(proved), smallest)
            )
            at[part] = {"log_t": exact.log_t, "log_loss": exact.log_loss}
    return CLAIM.judged(errors, at=at, horizon=f"log t = {LOG_TIMES[-1]:g}")
