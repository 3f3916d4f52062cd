"""Along every trajectory one function of the two mu's keeps its value."""

from __future__ import annotations

import math

import numpy as np

from qkflow.setting import Problem
from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence
from qkflow.verify.training_limit import extrapolate

CLAIM = Claim(
    id="first_integral",
    statement="F_QK(mu_QK) - r b kappa beta^2 (M-1) F_OV(mu_OV) is constant, dF_QK = (1 + (m/n) e^g) "
    "dg/R_QK(g/beta), dF_OV = u du/R_OV(u) (two modes: along sigma_1).",
    source="derived",
    shown="derivation#first integral",
    scope=Scope.IDENTITY,
    compared="both sides along the integrated path (full size) and along the extrapolated trainings",
    reason="integration at rtol 1e-10 and extrapolated trainings, relative to what the integral has gained",
    tolerance=1e-8,
)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


def judge(evidence: Evidence) -> Claim:
    """Evaluate both sides, written here from the statement alone, on states that know nothing of it."""
    integrated = evidence.integrated_by_loss
    paths = {"integrated": (evidence.problem, integrated.mu_ov, integrated.mu_qk)}
    for name, training in evidence.record.trainings.items():
        mu_ov, mu_qk = (extrapolate(training.columns[q])[2:] for q in ("mu_ov", "mu_qk"))
        paths[f"trained {name}"] = (training.problem, mu_ov, mu_qk)
    errors, at = {}, {}
    for name, (problem, mu_ov, mu_qk) in paths.items():
        qk, ov = sides(problem, np.asarray(mu_ov), np.asarray(mu_qk))
        errors[name] = relative(qk - ov, abs(ov))
        at[name] = {"mu_ov": np.asarray(mu_ov), "mu_qk": np.asarray(mu_qk)}
    return CLAIM.judged(errors, at=at, horizon=f"loss = {float(integrated.loss[-1]):.3g}")


def sides(problem: Problem, mu_ov: np.ndarray, mu_qk: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The integrals of (1 + (m/n) e^mu_QK) d tau and of r b beta (M-1)/(M Q) mu_OV d omega since the start.

    tau and omega are the natural times of the circuits, d tau = d sigma_i/(nu_i R_i) and d omega = d
    mu_OV/R_OV, in which a factorized circuit's amplitudes are sums of exponentials, also when there are
    two.
    """
    c, kind = problem.constants, problem.parameterization
    b, classes, queries, beta = c.n_distinct_vocab, c.n_classes, c.n_query_vocab, c.score_scale
    k = c.ratio * b * beta * (classes - 1) / (classes * queries)
    if kind.ov_factorized:
        now, start = (np.sqrt(c.imbalance_ov**2 + 4 * b * u**2) for u in (mu_ov, c.mu_ov_0))
        ov = k * (mu_ov - c.mu_ov_0) * (mu_ov + c.mu_ov_0) / (now + start)
    else:
        ov = k * (mu_ov - c.mu_ov_0) * (mu_ov + c.mu_ov_0) / 2
    line_gap = beta * (1 / b + 1 / c.n_common_vocab)
    nu = [math.sqrt(queries / b + queries * classes / c.n_common_vocab), math.sqrt(queries / b)]
    gaps = [beta * (1 / (b * classes) + 1 / c.n_common_vocab), beta * (1 - 1 / classes) / b]

    def gap(tau):
        if not kind.qk_factorized:
            return c.mu_qk_0 + line_gap * tau
        starts = [c.mu_qk_0 * n / line_gap for n in nu]
        with np.errstate(over="ignore"):
            return sum(
                g
                / n
                * (s * np.cosh(2 * n * tau) + math.hypot(c.imbalance_qk, 2 * s) * np.sinh(2 * n * tau) / 2)
                for g, n, s in zip(gaps, nu, starts, strict=True)
            )

    low, high = np.zeros_like(mu_qk), np.ones_like(mu_qk)
    while np.any(gap(high) < mu_qk):
        high = np.where(gap(high) < mu_qk, 2 * high, high)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = np.where(gap(middle) < mu_qk, middle, low), np.where(gap(middle) < mu_qk, high, middle)
    nodes = high[..., None] * (_NODES + 1) / 2
    qk = high / 2 * ((1 + c.n_distinct / c.n_common * np.exp(gap(nodes))) @ _WEIGHTS)
    return qk, ov
