"""Gradient descent on the matrices is one scalar map, not only near its flow."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.descent import descend
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="scalar_map",
    statement="From an aligned start a step h of gradient descent on the population takes every singular "
    "amplitude to sigma (1 + h^2 g^2) + h R(sigma) g and lambda to lambda (1 - h^2 g^2); a collapsed "
    "circuit to mu + h g.",
    source="derived",
    shown="qkflow.verify.descent",
    scope=Scope.IDENTITY,
    compared="trained matrices at every recorded step, and the map iterated with the derived field",
    reason="rounding of 1e-16 a step, stretched by the flow over ten thousand steps, relative to the "
    "distance moved",
    tolerance=1e-11,
)


def judge(evidence: Evidence) -> Claim:
    """Iterate the map with every step size of every training."""
    errors, at = {}, {}
    for name, training in evidence.record.trainings.items():
        seen = training.columns
        for step, size, *measured in zip(
            seen["step"], seen["step_size"], seen["mu_ov"], seen["mu_qk"], strict=True
        ):
            mapped = np.array(descend(training.problem, step, size, field=evidence.field))
            error = relative(mapped - measured, moved(np.array(measured)))
            part = f"{name}, h = {float(size):.4g}"
            errors[part], at[part] = error, {"step": step}
    return CLAIM.judged(errors, at=at, horizon=evidence.trained_horizon)


def moved(states: np.ndarray) -> np.ndarray:
    """How far each row has moved, (..., 1), or a hundredth of its size where that is more."""
    gain, size = np.ptp(states, axis=-1, keepdims=True), abs(states).max(axis=-1, keepdims=True)
    return np.maximum(gain, 0.01 * size)
