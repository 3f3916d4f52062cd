"""The loss is a function of alpha mu_OV alone, and the attention one of mu_QK alone."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="loss_identity",
    statement="On the manifold alpha = m e^mu_QK / (m e^mu_QK + n) and loss = log(1 + (M-1) e^(-alpha "
    "mu_OV)).",
    source="paper",
    shown="derivation#Loss",
    scope=Scope.IDENTITY,
    compared="mean softmax attention and mean cross-entropy of the trained matrices, and the derived "
    "observables",
    reason="rounding of means over the population, and of the mu's off the matrices",
    tolerance=1e-11,
)


def judge(evidence: Evidence) -> Claim:
    """Compare attention and log loss along every training, and log loss at every gradient."""
    field, errors, at = evidence.field, {}, {}
    for name, training in evidence.record.trainings.items():
        c, seen = training.problem.constants, training.columns
        alpha = np.asarray(field.alpha(c, seen["mu_qk"]))
        errors[f"{name}: attention"] = relative(alpha - seen["alpha"])
        errors[f"{name}: loss"] = relative(field.log_loss(c, alpha * seen["mu_ov"]) - seen["log_loss"])
        at[f"{name}: attention"] = at[f"{name}: loss"] = training.places
    for name, gradients in evidence.record.gradients.items():
        c, seen = gradients.problem.constants, gradients.columns
        z = np.asarray(field.alpha(c, seen["mu_qk"])) * seen["mu_ov"]
        errors[f"{name}: loss off the start"] = relative(field.log_loss(c, z) - seen["log_loss"])
        at[f"{name}: loss off the start"] = {q: seen[q] for q in ("mu_ov", "mu_qk")}
    return CLAIM.judged(errors, at=at, horizon=evidence.trained_horizon)
