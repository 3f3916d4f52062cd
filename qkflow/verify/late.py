"""Remainders of leading orders, judged in all four parameterizations: what the claims on rates share."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from qkflow.flow.exact import solve_exact
from qkflow.flow.rates import SATURATED, Remainder, beyond, remainders
from qkflow.setting import LearningRates, Parameterization, Problem, Start
from qkflow.trajectory import Trajectory
from qkflow.verify.claim import Claim, Verdict
from qkflow.verify.evidence import Evidence

LOG_TIMES = np.array([345.0, 500.0, 690.0, 1e3, 1.4e3, 2e3, 5e3, 1e4])
"""As many as a record's, so that the solver compiled for its times serves here too."""
DECREASING = [2, 5, 7]
"""690, 2e3 and 1e4: over these, remainders shall shrink."""
MULTIPLES = (0.01, 1.0, 100.0)
FAR = np.array([1e2, 1e3, 1e4, 1e6])
"""mu_QK at which the remainder is bounded far beyond any time that can be solved for."""

ACCEPTED = (
    "in each case (at least one) with rho e^mu_QK >= 10 at log t = 690, the remainder shrinks from log t = "
    "690 to 2e3 to 1e4, or is named undecided; "
    "everywhere it lies in the interval that the proof gives for it, which shrinks to 0"
)
FALSIFIED = (
    "a remainder leaves its interval, grows where its next orders at the same states shrink, or is not a "
    "number; one whose next orders grow, too, decides nothing yet"
)
REASON = "1 is a remainder as large as the one before, or one on the edge of its interval"


def cases(evidence: Evidence) -> dict[str, Trajectory]:
    """The problem in all four parameterizations at three ratios, exact, at `LOG_TIMES`."""
    return _cases(evidence.problem, evidence.field)


@functools.lru_cache(maxsize=4)
def _cases(problem: Problem, field: Any) -> dict[str, Trajectory]:
    found = {}
    for kind in Parameterization:
        for multiple in MULTIPLES:
            rates = LearningRates(problem.rates.lr_ov, problem.rates.ratio * multiple)
            own = kind is problem.parameterization
            case = Problem(problem.setting, kind, rates, problem.start if own else Start.default(kind))
            solved = solve_exact(case, at_log_time=LOG_TIMES, field=field)
            found[f"{kind.value}, r = {rates.ratio:g}"] = solved.checked()
    return found


@functools.lru_cache(maxsize=4)
def _remainders(problem: Problem, field: Any) -> dict[str, dict[str, Remainder]]:
    return {name: remainders(case, field) for name, case in _cases(problem, field).items()}


def judge_rate(claim: Claim, evidence: Evidence, quantity: str) -> Claim:
    """Whether remainders of "z", "mu_qk" or "one_minus_alpha" shrink and are where the proof puts them."""
    errors: dict[str, Any] = {}
    at: dict[str, dict[str, Any]] = {}
    verdicts: dict[str, str] = {}
    values: dict[str, list[float]] = {}
    found = _remainders(evidence.problem, evidence.field)
    for name, case in cases(evidence).items():
        remainder = found[name][quantity]
        errors[f"{name}: interval"] = remainder.outside()
        at[f"{name}: interval"] = {"log_t": LOG_TIMES}
        value, unsure = (x[DECREASING] for x in remainder.resolved())
        values[name] = [float(x) for x in value]
        growth = (abs(value[1:]) - unsure[1:]) / (abs(value[:-1]) + unsure[:-1])
        next_order, doubt = abs(remainder.next[DECREASING]), remainder.doubt[DECREASING]
        due = next_order[1:] + doubt[1:] < next_order[:-1] - doubt[:-1]
        # rho e^mu_QK = 1/(1 - alpha) - 1
        saturated = bool(np.asarray(case.log_one_minus_alpha)[DECREASING[0]] <= -math.log1p(SATURATED))
        if (growth <= 1.0).all() and (saturated or quantity == "z"):
            verdicts[name] = "verified"
        elif not saturated:
            verdicts[name] = "undecided: not yet saturated"
        elif (due & ~(growth <= 1.0)).any():
            verdicts[name] = "falsified"
        else:
            verdicts[name] = "undecided: next orders of opposite sign, not yet monotone"
        if "undecided" not in verdicts[name]:
            errors[f"{name}: growth"] = np.where(due | (growth <= 1.0), growth, 0.0)
            at[f"{name}: growth"] = {"log_t": LOG_TIMES[DECREASING][1:]}
        if quantity != "z":
            far, bound = beyond(case.problem, FAR, evidence.field)
            errors[f"{name}: beyond"] = abs(far) / (bound + 1e-11 + 1e-12 * FAR)
            at[f"{name}: beyond"] = {"mu_qk": FAR}
    horizon = f"log t = {LOG_TIMES[-1]:g}" + ("" if quantity == "z" else f", mu_QK = {FAR[-1]:g}")
    judged = claim.judged(
        errors, at=at, horizon=horizon, cases=verdicts, remainders_at_log_t_690_2e3_1e4=values
    )
    waiting = [f"{name} ({verdict})" for name, verdict in verdicts.items() if "undecided" in verdict]
    if judged.verdict is Verdict.VERIFIED and len(waiting) == len(verdicts):
        return claim.undecided("; ".join(waiting), **judged.details)
    return dataclasses.replace(judged, why="; ".join(waiting))
