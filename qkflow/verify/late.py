"""The remainders of the leading orders, judged in all four parameterizations: what the claims on rates share."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from qkflow.flow.exact import solve_exact
from qkflow.flow.rates import SATURATED, Remainder, beyond, remainders
from qkflow.setting import LearningRates, Parameterization, Problem
from qkflow.trajectory import Trajectory
from qkflow.verify.claim import Claim
from qkflow.verify.evidence import Evidence

LOG_TIMES = np.array([345.0, 690.0, 1e3, 2e3, 5e3, 1e4, 1e6, 1e8])
"""As many as a record's, so that the solver compiled for its times serves here too."""
WITH_HALF, DECREASING = slice(1, 6), [1, 3, 5]
"""Those whose half is among them or nearly so; 690, 2e3 and 1e4, over which remainders shall shrink."""
MULTIPLES = (0.01, 1.0, 100.0)
FAR = np.array([1e2, 1e3, 1e4, 1e6])
"""mu_QK at which the remainder is bounded far beyond any time that can be solved for."""
CANCELLED = 0.25
"""A remainder below this part of its next orders passes through 0: whether it shrinks then says nothing."""
ROUTE = 1e-9
"""Error of mu_QK and of log(1 - alpha); that of z is `Z_ROUTE` log t."""
Z_ROUTE = 1e-12

ACCEPTED = (
    "where rho e^mu_QK >= 10 at log t = 690, the remainder shrinks from log t = 690 to 2e3 to 1e4; everywhere it "
    "lies in the interval that the proof gives for it, which shrinks to 0"
)
FALSIFIED = (
    "a remainder leaves its interval, or grows where saturated (unless it is passing through 0: less than a "
    "quarter of its next orders), or is not a number"
)


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
            case = Problem(problem.setting, kind, rates, problem.start if own else None)
            found[f"{kind.value}, r = {rates.ratio:g}"] = solve_exact(
                case, at_log_time=LOG_TIMES, field=field
            )
    return found


@functools.lru_cache(maxsize=4)
def _remainders(problem: Problem, field: Any) -> dict[str, dict[str, Remainder]]:
    return {name: remainders(case, field) for name, case in _cases(problem, field).items()}


def judge_rate(claim: Claim, evidence: Evidence, quantity: str) -> Claim:
    """Whether the remainders of "z", "mu_qk" or "one_minus_alpha" shrink, and lie where the proof puts them."""
    noise = Z_ROUTE * LOG_TIMES if quantity == "z" else np.full(LOG_TIMES.shape, ROUTE)
    shown = WITH_HALF if quantity == "z" else slice(1, None)
    errors: dict[str, Any] = {}
    at: dict[str, dict[str, Any]] = {}
    verdicts: dict[str, str] = {}
    values: dict[str, list[float]] = {}
    all_remainders = _remainders(evidence.problem, evidence.field)
    for name, case in cases(evidence).items():
        remainder = all_remainders[name][quantity]
        errors[f"{name}: interval"] = remainder.outside(noise)[shown]
        at[f"{name}: interval"] = {"log_t": LOG_TIMES[shown]}
        value, unsure = (x[DECREASING] for x in remainder.resolved(noise))
        values[name] = [float(x) for x in value]
        growth = np.maximum(abs(value[1:]) - unsure[1:], 0.0) / (abs(value[:-1]) + unsure[:-1])
        grows = growth > 1.0
        crossing = abs(value[:-1]) < CANCELLED * remainder.size[DECREASING][:-1]
        # rho e^mu_QK = 1/(1 - alpha) - 1
        saturated = bool(np.asarray(case.log_one_minus_alpha)[DECREASING[0]] <= -math.log1p(SATURATED))
        if not grows.any() and (saturated or quantity == "z"):
            verdicts[name] = "verified"
        elif not saturated:
            verdicts[name] = "undecided: not yet saturated"
        elif (crossing | ~grows).all():
            verdicts[name] = "undecided: the remainder passes through 0"
        else:
            verdicts[name] = "falsified"
        if verdicts[name] in ("verified", "falsified"):
            errors[f"{name}: growth"] = growth
            at[f"{name}: growth"] = {"log_t": LOG_TIMES[DECREASING][1:]}
        if quantity != "z":
            far, bound = beyond(case.problem, FAR, evidence.field)
            errors[f"{name}: beyond"] = abs(far) / (bound + 1e-11 + 1e-12 * FAR)
            at[f"{name}: beyond"] = {"mu_qk": FAR}
    horizon = f"log t = {LOG_TIMES[shown][-1]:g}" + ("" if quantity == "z" else f", mu_QK = {FAR[-1]:g}")
    judged = claim.judged(
        errors, at=at, horizon=horizon, cases=verdicts, remainders_at_log_t_690_2e3_1e4=values
    )
    if judged.verdict.value == "verified" and "verified" not in verdicts.values():
        why = "no parameterization at no ratio is saturated at log t = 690: not yet saturated"
        return claim.undecided(why, **judged.details)
    waiting = [f"{name} ({verdict})" for name, verdict in verdicts.items() if "undecided" in verdict]
    return dataclasses.replace(judged, why="; ".join(waiting))
