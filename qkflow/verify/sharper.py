"""Faster query-key learning reaches the same loss with sharper attention.

Proof. Fix z above the start's, u = z/alpha(g), and let G(g) be the integral of (1 + rho e^g) d tau from g0,
which grows with g and does not know r. The first integral reads G(g) = r K (F_OV(z/alpha(g)) - F_OV(u0)) with
K > 0. Its left side increases in g; its right side decreases in g, because alpha and F_OV increase, and is
proportional to r. So its root g increases strictly with r where the right side is positive, that is u > u0;
alpha increases with it and u = z/alpha decreases.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="sharper",
    statement="At equal loss and from the same start, alpha increases strictly and mu_OV decreases with the "
    "ratio r.",
    source="paper",
    shown="qkflow.verify.sharper",
    scope=Scope.ORDERING,
    compared="neighbours among five ratios (exact and integrated) and three ratios (trained matrices) at"
    " equal losses: the slower's gain in mu_QK over the faster's, and the faster's mu_OV over the slower's",
    accepted="both quotients are below 1 by more than the routes err; mu_OV is left out where attention has "
    "hardly moved",
    falsified="a quotient reaches 1, or is not a number",
    reason="routes agree to 1e-8",
    tolerance=1.0 - 1e-7,
)

SOLVED, INTERPOLATED = 1e-8, 0.05
"""Relative error of mu_OV at a loss: solved, and read between the few records of one training."""
Ratios = Sequence[tuple[np.ndarray, np.ndarray]]


def judge(evidence: Evidence) -> Claim:
    """The quotients of neighbouring ratios; the two signs that the proof rests on are checked as symbols."""
    start = float(evidence.problem.start.mu_qk)
    exact = [(np.asarray(c.mu_ov), np.asarray(c.mu_qk) - start) for c in evidence.ratios]
    integrated = [(np.asarray(c.mu_ov), np.asarray(c.mu_qk) - start) for c in evidence.integrated_ratios]
    routes: dict[str, tuple[Ratios, np.ndarray, float]] = {
        "exact": (exact, evidence.ratios[0].log_loss, SOLVED),
        "integrated": (integrated, evidence.integrated_ratios[0].log_loss, SOLVED),
    }
    if evidence.record.ratios:
        trained_losses, trained = _trained(evidence)
        routes["trained"] = trained, trained_losses, INTERPOLATED
    errors, at = {}, {}
    for name, (ratios, log_loss, unseen) in routes.items():
        errors[f"{name}: mu_QK"], errors[f"{name}: mu_OV"] = _quotients(ratios, unseen)
        at[f"{name}: mu_QK"] = at[f"{name}: mu_OV"] = {"log_loss": log_loss}
    lowest = float(evidence.losses[-1])
    judged = CLAIM.judged(
        errors, at=at, horizon=f"loss = {lowest:.3g}, ratios 1e-2 to 1e2 times the problem's"
    )
    return judged.proved("symbols; float64") if _signs_hold() else judged


def _quotients(ratios: Ratios, unseen: float) -> tuple[np.ndarray, np.ndarray]:
    """Of neighbouring ratios (pairs, losses): slow over fast gain in mu_QK, and fast over slow mu_OV."""
    gains, falls = [], []
    for (slow_ov, slow_qk), (fast_ov, fast_qk) in itertools.pairwise(ratios):
        with np.errstate(divide="ignore", invalid="ignore"):
            gains.append(np.where((slow_qk > 0) & (fast_qk > 0), slow_qk / fast_qk, np.inf))
            fall = fast_ov / slow_ov
        # Where attention has hardly moved, mu_OV falls by less than the route's error.
        falls.append(np.where(abs(fall - 1.0) < unseen, 0.0, fall))
    return np.array(gains), np.array(falls)


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


def _trained(evidence: Evidence) -> tuple[np.ndarray, Ratios]:
    """The trained ratios at losses that all of them passed, interpolated in log loss."""
    runs = [run.columns for run in evidence.record.ratios.values()]
    first = max(run["log_loss"][0, 1] for run in runs)
    last = max(run["log_loss"][0, -1] for run in runs)
    log_losses = np.linspace(first, last, 12)[1:]
    found = []
    for run in runs:
        passed = run["log_loss"][0][::-1]
        ov, qk = (np.interp(log_losses, passed, run[name][0][::-1]) for name in ("mu_ov", "mu_qk"))
        found.append((ov, qk - run["mu_qk"][0, 0]))
    return log_losses, found
