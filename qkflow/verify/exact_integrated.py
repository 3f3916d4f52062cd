"""Exact = integrated: the closed form and the ODE solver agree."""

from __future__ import annotations

import numpy as np

from qkflow.trajectory import Trajectory
from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import COARSE, Evidence

CLAIM = Claim(
    id="exact_integrated",
    statement="The closed form (first integral, and time by quadrature) solves the scalar flow.",
    source="derived",
    shown="derivation#time",
    scope=Scope.IDENTITY,
    compared="mu_OV, mu_QK, log(1 - alpha), log loss and log t: exact solution, and Dopri8 with rtol 1e-10",
    reason="a hundred steps with a local error of 1e-10 each",
    tolerance=1e-8,
)
SMALLEST = 1e-6
"""Below this the mu's are compared absolutely: the solver's absolute tolerance is 1e-16."""


def judge(evidence: Evidence) -> Claim:
    """Compare at given losses, then at given log times."""
    losses, times = evidence.integrated_by_loss, evidence.integrated_by_time
    pairs = {
        "at losses": (_part(evidence.by_loss, COARSE), losses),
        "at log times": (_part(evidence.by_time, slice(None, times.log_t.shape[-1])), times),
    }
    errors, at = {}, {}
    for place, (exact, integrated) in pairs.items():
        for quantity, column in exact.items():
            with np.errstate(invalid="ignore"):
                difference = column - np.asarray(getattr(integrated, quantity))
            # At t = 0 both log times are -inf.
            difference = np.where(column == -np.inf, np.asarray(integrated.t), difference)
            scale = np.where(np.isinf(column), 1.0, abs(column))
            smallest = SMALLEST if quantity.startswith("mu") else 1.0
            part = f"{quantity} {place}"
            errors[part] = relative(difference, np.maximum(scale, smallest))
            at[part] = {"log_t": exact["log_t"], "log_loss": exact["log_loss"]}
    return CLAIM.judged(errors, at=at, horizon=f"log t = {float(times.log_t[-1]):.4g}")


def _part(trajectory: Trajectory, points: slice) -> dict[str, np.ndarray]:
    names = ("mu_ov", "mu_qk", "log_one_minus_alpha", "log_loss", "log_t")
    return {name: np.asarray(getattr(trajectory, name))[points] for name in names}
