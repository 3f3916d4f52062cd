"""Judging a trajectory by the bounds of one quantity: what the claims on growth share."""

from __future__ import annotations

from typing import Any

import numpy as np

from qkflow.flow.asymptotics import Bound, growth_bounds
from qkflow.trajectory import Trajectory
from qkflow.verify.claim import Claim, Verdict
from qkflow.verify.evidence import HORIZON, Evidence

FOLLOWED = 0.1
"""A bound is followed where the state is within this part of it."""


def judge_bounds(claim: Claim, evidence: Evidence, quantity: str, **details: Any) -> Claim:
    """Hold the exact and the integrated trajectory against every bound of a quantity in scope."""
    excesses: dict[str, np.ndarray] = {}
    followed: dict[str, list[float]] = {}
    for trajectory in (evidence.by_time, evidence.integrated_by_time):
        for bound in bounds_of(trajectory, quantity, evidence):
            place = f"{bound.name}, {trajectory.method}"
            excesses[place] = bound.excess(getattr(trajectory, quantity))
            if trajectory.method == "exact":
                followed[bound.name] = _followed(bound, trajectory, quantity)
    if not any("above" in place for place in excesses):
        return claim.without_verdict(
            Verdict.OUT_OF_SCOPE, f"no upper bound of {quantity} is stated for this imbalance or vocabulary"
        )
    errors = {place: _worst(excess) for place, excess in excesses.items()}
    worst = max(errors, key=errors.__getitem__)
    beyond = np.flatnonzero(~(excesses[worst] <= (claim.tolerance or 0.0)))
    if beyond.size:
        log_t = np.asarray(evidence.by_time.log_t)[beyond[0]]
        details["first_violation"] = {
            "bound": worst,
            "log_t": float(log_t),
            "by": float(excesses[worst][beyond[0]]),
        }
    regimes = [f"{name} {_interval(span)}" for name, span in followed.items()]
    horizon = f"t = 0 to log t = {HORIZON:g}; growth within {FOLLOWED:.0%} of the bound: {'; '.join(regimes)}"
    return claim.judged(errors, horizon=horizon, followed_from_to_log_t=followed, **details)


def _interval(span: list[float]) -> str:
    return f"for log t from {span[0]:.4g} to {span[1]:.4g}" if span else "nowhere"


def bounds_of(trajectory: Trajectory, quantity: str, evidence: Evidence) -> list[Bound]:
    """The bounds of a quantity that are in scope, at the trajectory's times."""
    bounds = growth_bounds(evidence.problem, trajectory.log_t, trajectory.mu_ov, field=evidence.field)
    return [bound for bound in bounds.values() if bound.quantity == quantity and bound.value is not None]


def _worst(excess: np.ndarray) -> float:
    """The largest excess, negative where a bound is kept with room; infinite when one is not a number."""
    return float("inf") if np.isnan(excess).any() else float(excess.max()) + 0.0


def _followed(bound: Bound, trajectory: Trajectory, quantity: str) -> list[float]:
    """First and last log t > -inf at which the state's growth is within `FOLLOWED` of the bound's, or []."""
    value, state = np.asarray(bound.value)[1:], np.asarray(getattr(trajectory, quantity))[1:]
    start = float(np.asarray(getattr(trajectory, quantity))[0])
    with np.errstate(invalid="ignore"):
        near = abs(value - state) <= FOLLOWED * abs(state - start)
    log_t = np.asarray(trajectory.log_t)[1:][near]
    return [float(log_t[0]), float(log_t[-1])] if log_t.size else []
