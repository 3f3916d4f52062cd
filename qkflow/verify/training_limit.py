"""Exact = trained: what gradient descent tends to as its step goes to zero is the exact flow."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, Verdict, relative
from qkflow.verify.evidence import Evidence
from qkflow.verify.scalar_map import moved

CLAIM = Claim(
    id="training_limit",
    statement="As h goes to zero at fixed t, the trained matrices tend to the exact flow.",
    source="derived",
    shown="qkflow.verify.descent",
    scope=Scope.IDENTITY,
    accepted="every distance is within the tolerance",
    falsified="a distance exceeds the tolerance by more than its limit is uncertain; else undecided",
    compared="mu_OV and mu_QK of the trained matrices, extrapolated over five halvings of h, and the exact "
    "flow",
    reason="relative to the distance moved: accuracy of the flow and of a limit from six step sizes",
    tolerance=1e-8,
)
VAGUE = 1e-3
"""A limit that the coarsest step changes by more, relative to the distance moved, decides nothing."""


def extrapolate(rows: np.ndarray) -> np.ndarray:
    """The limit of rows that belong to h, h/2, h/4, ... and have an expansion in powers of h (Neville).

    >>> h = 0.5 ** np.arange(4)[:, None]
    >>> extrapolate(3.0 + 2.0 * h - h**2 + h**3).round(12).tolist()
    [3.0]
    """
    order = 1
    while len(rows) > 1:
        rows = rows[1:] + (rows[1:] - rows[:-1]) / (2.0**order - 1.0)
        order += 1
    return rows[0]


def judge(evidence: Evidence) -> Claim:
    """Extrapolate at every recorded time; what the coarsest step still changes is the limit's uncertainty."""
    errors, beyond, uncertainty, at = {}, {}, {}, {}
    for name, training in evidence.record.trainings.items():
        for quantity in ("mu_ov", "mu_qk"):
            rows = training.columns[quantity]
            limit = extrapolate(rows)
            spread = abs(limit - extrapolate(rows[1:]))
            distance = abs(limit - np.asarray(getattr(evidence.flows[name], quantity)))
            part = f"{name}: {quantity}"
            errors[part], at[part] = (
                relative(distance, moved(limit)),
                {"t": evidence.record.trainings[name].t},
            )
            beyond[part] = relative(np.maximum(distance - spread, 0.0), moved(limit))
            uncertainty[part] = float(relative(spread, moved(limit)).max())
    vague = max(uncertainty, key=uncertainty.__getitem__)
    if uncertainty[vague] > VAGUE:
        return CLAIM.undecided(f"{vague} has no clear limit at these step sizes")
    judged = CLAIM.judged(errors, at=at, horizon=evidence.trained_horizon, uncertainty=uncertainty)
    if judged.verdict is Verdict.FALSIFIED and CLAIM.judged(beyond).verdict is Verdict.VERIFIED:
        why = (
            f"{judged.details['worst']} is off by {judged.error:.1e}, but no more than its limit is uncertain"
        )
        return CLAIM.undecided(why, **judged.details)
    return judged
