"""Judging a trajectory by the bounds of one quantity: what the claims on growth share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
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
    at = {}
    followed: dict[str, list[float]] = {}
    for trajectory in (evidence.by_time, evidence.integrated_by_time):
        for bound in bounds_of(trajectory, quantity, evidence):
            place = f"{bound.name}, {trajectory.method}"
            excesses[place] = bound.excess(getattr(trajectory, quantity))
            at[place] = {
                "log_t": trajectory.log_t,
                quantity: getattr(trajectory, quantity),
                "bound": bound.value,
            }
            if trajectory.method == "exact":
                followed[bound.name] = _followed(bound, trajectory, quantity)
    if not any("above" in place for place in excesses):
        return claim.out_of_scope(f"no upper bound of {quantity} is stated for this imbalance or vocabulary")
    regimes = [f"{name} {_interval(span)}" for name, span in followed.items()]
    judged = claim.judged(
        excesses,
        at=at,
        horizon=f"log t = {HORIZON:g}",
        followed_from_to_log_t=followed,
        **details,
    )
    why = f"growth within {FOLLOWED:.0%} of the bound: {'; '.join(regimes)}"
    judged = dataclasses.replace(judged, why=why)
    proofs = {name: p for name, p in evidence.proofs.items() if name in followed}
    return _with_proofs(judged, proofs) if proofs else judged


def _with_proofs(judged: Claim, proofs: Mapping[str, Any]) -> Claim:
    """Raise a verified claim to a proof when every bound in scope was proved by ball arithmetic."""
    documents = {name: proof.document() for name, proof in proofs.items()}
    for name, proof in proofs.items():
        if proof.verdict == "refuted":
            place = proof.violation.at
            where = {"part": f"{name}, balls", "mu_qk": float(place.mu_qk), "mu_ov": float(place.mu_ov)}
            details = {**judged.details, "proofs": documents}
            return dataclasses.replace(
                judged, verdict=Verdict.FALSIFIED, first_violation=where, details=details
            )
    missed = [name for name, proof in proofs.items() if proof.verdict != "proved"]
    if missed:
        why = f"{judged.why}; not proved within the budget: {', '.join(missed)}"
        return dataclasses.replace(judged, why=why, details={**judged.details, "proofs": documents})
    judged = dataclasses.replace(judged, horizon="all t >= 0")
    bits = max(proof.bits for proof in proofs.values())
    return judged.proved(f"balls of {bits} bits", proofs=documents)


def _interval(span: list[float]) -> str:
    return f"for log t from {span[0]:.4g} to {span[1]:.4g}" if span else "nowhere"


def bounds_of(trajectory: Trajectory, quantity: str, evidence: Evidence) -> list[Bound]:
    """The bounds of a quantity that are in scope, at the trajectory's times."""
    bounds = growth_bounds(evidence.problem, trajectory.log_t, trajectory.mu_ov, field=evidence.field)
    return [bound for bound in bounds.values() if bound.quantity == quantity and bound.value is not None]


def _followed(bound: Bound, trajectory: Trajectory, quantity: str) -> list[float]:
    """First and last log t > -inf at which the state's growth is within `FOLLOWED` of the bound's, or []."""
    value, state = np.asarray(bound.value)[1:], np.asarray(getattr(trajectory, quantity))[1:]
    start = float(np.asarray(getattr(trajectory, quantity))[0])
    with np.errstate(invalid="ignore"):
        near = abs(value - state) <= FOLLOWED * abs(state - start)
    log_t = np.asarray(trajectory.log_t)[1:][near]
    return [float(log_t[0]), float(log_t[-1])] if log_t.size else []
