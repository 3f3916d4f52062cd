"""Faster query-key learning reaches the same loss with sharper attention.

Proof. Fix z above the start's, u = z/alpha(g), and let G(g) be the integral of (1 + rho e^g) d tau from g0,
which grows with g and does not know r. The first integral reads G(g) = r K (F_OV(z/alpha(g)) - F_OV(u0)) with
K > 0. Its left side increases in g; its right side decreases in g, because alpha and F_OV increase, and is
proportional to r. So its root g increases strictly with r where the right side is positive, that is u > u0;
alpha increases with it and u = z/alpha decreases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from qkflow.setting import Constants
from qkflow.trajectory import Trajectory
from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="sharper",
    statement="At equal loss and from the same start, alpha increases strictly and mu_OV decreases with the "
    "ratio r.",
    source="paper",
    shown="qkflow.verify.sharper",
    scope=Scope.ORDERING,
    compared="the slower's share of the faster's gain in mu_QK, and of its saving in mu_OV against unmoved "
    "attention, at equal losses: neighbours among five ratios (exact, integrated) and three (trained)",
    accepted="every share is below 1; a saving counts where the route resolves it",
    falsified="a share reaches 1, or is not a number",
    reason="1, less what two routes that agree to 1e-8 may err",
    tolerance=1.0 - 1e-7,
)

SOLVED, INTERPOLATED = 1e-6, 0.05
"""A saving is resolved above this part of mu_OV: solved, and read between the few records of one training."""


class Ratios(NamedTuple):
    """The same losses at increasing ratios.

    Args:
        log_loss: (L,).
        mu_ov: (ratios, L).
        gain: (ratios, L), mu_QK - mu_QK(0).
        unmoved: (L,), the mu_OV that has this loss with the start's attention.
    """

    log_loss: np.ndarray
    mu_ov: np.ndarray
    gain: np.ndarray
    unmoved: np.ndarray


def judge(evidence: Evidence) -> Claim:
    """The shares of neighbouring ratios; the signs that the proof rests on are checked as symbols."""
    routes = {
        "exact": (_solved(evidence, evidence.ratios), SOLVED),
        "integrated": (_solved(evidence, evidence.integrated_ratios), SOLVED),
    }
    if evidence.record.ratios:
        routes["trained"] = _trained(evidence), INTERPOLATED
    errors, at = {}, {}
    for name, (ratios, resolved) in routes.items():
        errors[f"{name}: mu_QK"], errors[f"{name}: mu_OV"] = _shares(ratios, resolved)
        at[f"{name}: mu_QK"] = at[f"{name}: mu_OV"] = {"log_loss": ratios.log_loss}
    lowest = float(evidence.losses[-1])
    judged = CLAIM.judged(
        errors, at=at, horizon=f"loss = {lowest:.3g}, ratios 1e-2 to 1e2 times the problem's"
    )
    return judged.proved("symbols; float64") if _signs_hold() else judged


def _shares(ratios: Ratios, resolved: float) -> tuple[np.ndarray, np.ndarray]:
    """Slow over fast gain in mu_QK and saving in mu_OV of neighbouring ratios, (pairs, losses)."""
    saving = ratios.unmoved - ratios.mu_ov
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = ratios.gain[:-1] / ratios.gain[1:]
        savings = saving[:-1] / saving[1:]
    learned = (ratios.gain[:-1] > 0) & (ratios.gain[1:] > 0)
    lost = saving[1:] < -resolved * ratios.unmoved
    seen = abs(saving[1:]) > resolved * ratios.unmoved
    return np.where(learned, gains, np.inf), np.where(lost, np.inf, np.where(seen, savings, 0.0))


def _solved(evidence: Evidence, curves: Sequence[Trajectory]) -> Ratios:
    c, field = evidence.problem.constants, evidence.field
    log_loss = np.asarray(curves[0].log_loss)
    mu_ov, mu_qk = (np.array([getattr(curve, q) for curve in curves]) for q in ("mu_ov", "mu_qk"))
    unmoved = _z(c, log_loss) / float(field.alpha(c, c.mu_qk_0))
    return Ratios(log_loss, mu_ov, mu_qk - c.mu_qk_0, unmoved)


def _z(c: Constants, log_loss: np.ndarray) -> np.ndarray:
    return np.log((c.n_classes - 1.0) / np.expm1(np.exp(log_loss)))


def _trained(evidence: Evidence) -> Ratios:
    """The trained ratios at losses that all of them passed, interpolated in log loss."""
    trainings = list(evidence.record.ratios.values())
    runs = [training.columns for training in trainings]
    first = max(run["log_loss"][0, 1] for run in runs)
    last = max(run["log_loss"][0, -1] for run in runs)
    log_loss = np.linspace(first, last, 12)[1:]

    def at_losses(name: str) -> np.ndarray:
        return np.array([np.interp(log_loss, run["log_loss"][0][::-1], run[name][0][::-1]) for run in runs])

    gain = at_losses("mu_qk") - runs[0]["mu_qk"][0, 0]
    unmoved = _z(trainings[0].problem.constants, log_loss) / runs[0]["alpha"][0, 0]
    return Ratios(log_loss, at_losses("mu_ov"), gain, unmoved)


def _signs_hold() -> bool:
    """Whether alpha and both sides of the derived first integral increase in their mu's, as symbols."""
    import sympy as sp

    from qkflow.symbolic import derive
    from qkflow.symbolic.symbols import M, mu_QK

    flow = derive()
    factor, of_ov, of_qk = flow.separated
    slope = sp.factor(sp.diff(flow.explicit(flow.attention), mu_QK))
    # Natural times hide R_OV and R_QK, roots of sums of squares; SymPy knows M > 1 only as 1 + something.
    several = {M: 1 + sp.Symbol("others", positive=True)}
    signs = [slope, *(flow.explicit(side) for side in (factor, of_ov, of_qk))]
    return all(bool(sign.subs(several).is_positive) for sign in signs)
