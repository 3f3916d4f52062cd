"""Faster query-key learning reaches the same loss with sharper attention."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from qkflow.verify.claim import Claim
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="sharper",
    statement="At equal loss and from the same start, alpha increases strictly and mu_OV decreases with the "
    "ratio r.",
    source="paper; derivation, first integral",
    scope="ordering",
    compared="neighbours among five ratios (exact and integrated) and three ratios (trained matrices) at"
    " equal losses",
    reason="by how much log(mu_QK - mu_QK(0)) must grow and log mu_OV may not: routes agree to 1e-8",
    tolerance=-1e-7,
)

SOLVED, INTERPOLATED = 1e-8, 0.05
"""Relative error of mu_OV at a loss: solved, and read between the few records of one training."""


def judge(evidence: Evidence) -> Claim:
    """The least growth of mu_QK's gain from a ratio to the next, its sign turned; alpha grows with it."""
    start = float(evidence.problem.start.mu_qk)
    exact = [(np.asarray(c.mu_ov), np.asarray(c.mu_qk) - start) for c in evidence.ratios]
    integrated = [(np.asarray(c.mu_ov), np.asarray(c.mu_qk) - start) for c in evidence.integrated_ratios]
    routes = {"exact": exact, "integrated": integrated, "trained": _trained(evidence)}
    return CLAIM.judged(
        {
            name: _least_growth(route, INTERPOLATED if name == "trained" else SOLVED)
            for name, route in routes.items()
        }
    )


def _least_growth(ratios: Sequence[tuple[np.ndarray, np.ndarray]], unseen: float) -> float:
    """The worst of minus log growth of the gain in mu_QK, and of log growth of mu_OV if not `unseen`."""
    worst = []
    for (slow_ov, slow_qk), (fast_ov, fast_qk) in itertools.pairwise(ratios):
        with np.errstate(divide="ignore", invalid="ignore"):
            worst.append(np.log(slow_qk) - np.log(fast_qk))
            rise = np.log(fast_ov) - np.log(slow_ov)
        # Where attention has hardly moved, mu_OV falls by less than the route's error.
        worst.append(np.where(rise < unseen, -np.inf, rise))
    return float(np.max(worst))


def _trained(evidence: Evidence) -> list[tuple[np.ndarray, np.ndarray]]:
    """The trained ratios at losses that all of them passed, interpolated in log loss."""
    runs = [run.columns for run in evidence.record.ratios.values()]
    first = max(run["log_loss"][0, 1] for run in runs)
    last = max(run["log_loss"][0, -1] for run in runs)
    losses = np.linspace(first, last, 12)[1:]
    found = []
    for run in runs:
        passed = run["log_loss"][0][::-1]
        ov, qk = (np.interp(losses, passed, run[name][0][::-1]) for name in ("mu_ov", "mu_qk"))
        found.append((ov, qk - run["mu_qk"][0, 0]))
    return found
