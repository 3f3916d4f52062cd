"""The field that is solved is the one derived from the loss, and it has a first integral."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qkflow.setting import Constants, Problem
from qkflow.verify.claim import Claim, Scope, relative
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="derivation",
    statement="Along the flow derived from the loss (1 + (m/n) e^mu_QK) drive_QK = r b beta (M-1)/(M Q) "
    "mu_OV drive_OV identically, which integrates; the field that is solved is that flow.",
    source="paper",
    shown="derivation#first integral",
    scope=Scope.IDENTITY,
    compared="both sides as symbols; the derived expressions to 30 digits, and the field, at random states "
    "of random settings",
    reason="rounding of a dozen operations",
    tolerance=1e-12,
)
POINTS = 12
_COUNTS = ("n_classes", "n_distinct_vocab", "n_distinct", "n_common", "n_common_vocab", "n_query_vocab")
_REALS = ("score_scale", "lr_ov", "ratio", "imbalance_ov", "imbalance_qk")


def judge(evidence: Evidence) -> Claim:
    """Simplify the difference of both sides to zero, then evaluate the expressions apart from the field."""
    # Symbols are imported where they are used: importing the package does without sympy.
    import sympy as sp

    from qkflow.symbolic import derive
    from qkflow.symbolic.symbols import mu_OV

    flow = derive()
    factor, of_ov, of_qk = flow.separated
    identity = sp.simplify(flow.explicit(of_qk * flow.drive_qk - factor * of_ov * flow.drive_ov))
    if identity != 0 or of_ov != mu_OV:
        return CLAIM.judged({"both sides as symbols": np.inf}, residual=str(identity))
    errors, places = _errors(evidence.problem, evidence.field, flow)
    judged = CLAIM.judged(errors, at=dict.fromkeys(errors, places), horizon="all states, as symbols")
    return judged.proved("symbols; 30 digits against float64")


def _errors(problem: Problem, field: Any, flow: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Relative errors of the field at random states of random settings, the first of them the problem's."""
    random = np.random.default_rng(1)
    ov, qk = random.uniform(0.1, 8.0, POINTS), random.uniform(-2.0, 6.0, POINTS)
    draws = {name: random.integers(2, 30, POINTS).astype(float) for name in _COUNTS}
    draws["n_common_vocab"] = np.where(np.arange(POINTS) % 2, math.inf, draws["n_common_vocab"])
    draws |= {name: random.uniform(0.1, 3.0, POINTS) for name in _REALS}
    for name in (*_COUNTS, "score_scale"):
        draws[name][0] = float(getattr(problem.constants, name))
    c = problem.constants._replace(**draws)
    found = {
        "drive_OV": (flow.drive_ov, field.drive_ov(c, ov, qk)),
        "drive_QK": (flow.drive_qk, field.drive_qk(c, ov, qk)),
        "R_OV": (flow.rescaling_ov, field.rescaling_ov(c, ov)),
        "R_QK": (flow.rescaling_qk, field.rescaling_qk(c, qk)),
        "alpha": (flow.attention, field.alpha(c, qk)),
        "separation": (flow.separation, field.separation(c)),
        "line gap": (flow.line_gap, field.line_gap(c)),
        "nu_1": (flow.singular_values_qk[0], field.singular_values_qk(c)[0]),
        "nu_2": (flow.singular_values_qk[1], field.singular_values_qk(c)[1]),
    }
    errors = {}
    for name, (expression, values) in found.items():
        exact = np.array([_value(flow.explicit(expression), c, ov, qk, k) for k in range(POINTS)])
        errors[name] = relative(np.asarray(values) - exact, abs(exact))
    return errors, {"mu_ov": ov, "mu_qk": qk}


def _value(expression: Any, c: Constants, mu_ov: np.ndarray, mu_qk: np.ndarray, k: int) -> float:
    """The expression at the k-th point to 30 digits, from the exact values of the floats."""
    import sympy as sp

    from qkflow.symbolic import symbols as s

    numbers: dict[Any, Any] = {symbol: getattr(c, name) for symbol, name in s.CONSTANTS.items()}
    numbers |= {s.mu_OV: mu_ov, s.mu_QK: mu_qk, s.sigma: mu_qk}
    point = {symbol: float(np.broadcast_to(number, POINTS)[k]) for symbol, number in numbers.items()}
    exact = {x: sp.oo if value == np.inf else sp.Rational(value) for x, value in point.items()}
    return float(sp.N(expression.subs(exact), 30))
