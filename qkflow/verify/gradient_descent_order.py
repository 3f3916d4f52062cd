"""Gradient descent follows the flow with an error of first order in its step."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="gradient_descent_order",
    statement="After steps of size h, gradient descent on the matrices is at distance O(h) from the flow"
    " at t = steps h: halving h halves the distance.",
    source="derived",
    shown="qkflow.verify.descent",
    scope=Scope.RATE,
    accepted="every observed order is 1 within the tolerance",
    falsified="an order differs from 1 by more, or is not a number; undecided if a training hardly learns",
    compared="mu_OV and mu_QK of the trained matrices at five halvings of h, and the exact flow at the same "
    "time",
    reason="the next order shifts the observed one by some 3 % at the largest step, which was chosen so",
    tolerance=0.05,
)
LEARNED = 0.5
"""A training counts when the loss has fallen at least to this part of the start's."""
UNSEEN = 1e-10
"""A relative distance at the largest step that rounding hides at the smallest: there is no order to see."""


def judge(evidence: Evidence) -> Claim:
    """The observed order, log2 of the ratio of two successive distances, against 1."""
    errors, at, orders = {}, {}, {}
    for name, training in evidence.record.trainings.items():
        seen, flow = training.columns, evidence.flows[name]
        fallen = seen["log_loss"][:, -1] - seen["log_loss"][:, 0]
        if np.max(fallen) > np.log(LEARNED):
            return CLAIM.undecided(f"{name} hardly learned in the record")
        for quantity in ("mu_ov", "mu_qk"):
            end = float(np.asarray(getattr(flow, quantity))[-1])
            distance = abs(seen[quantity][:, -1] - end)
            if np.max(distance) <= UNSEEN * abs(end):
                errors[f"{name}: {quantity}"] = np.zeros(1)
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                order = np.log2(distance[:-1] / distance[1:])
            part = f"{name}: {quantity}"
            orders[part] = order.round(4).tolist()
            errors[part], at[part] = relative(order - 1.0), {"step_size": seen["step_size"][:-1]}
    return CLAIM.judged(errors, at=at, horizon=evidence.trained_horizon, orders=orders)
