"""The order of the four parameterizations in sharpness at equal loss, as a map.

That the criterion is right is proved in `qkflow.flow.sharpness`. It is judged without interpolating: z and
mu_QK rise together on every trajectory, so one state of B with no more z and no less mu_QK than A's shows
that B is the sharper at A's loss; one with no less z and no more mu_QK shows that A is.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from qkflow.flow._relation import Relation
from qkflow.flow.exact import solve_exact
from qkflow.flow.sharpness import sharpness_map
from qkflow.setting import LearningRates, Parameterization, Problem, Start
from qkflow.trajectory import Trajectory
from qkflow.verify.claim import Claim, Scope
from qkflow.verify.evidence import Evidence

CLAIM = Claim(
    id="sharpness_order",
    statement="At equal loss and mu_QK = g of A, parameterization B is sharper than A if and only if its "
    "first integral gives a smaller mu_OV at g; the order of the four is a map over ratio, start and loss.",
    source="derived",
    shown="qkflow.flow.sharpness",
    scope=Scope.ORDERING,
    compared="the order predicted by the first integral, solved anew, and the order of exact, integrated "
    "and trained states, wherever one of two curves is seen to lie above the other",
    accepted="no order is seen that contradicts the prediction by more than the routes err in log mu_OV: "
    "1e-8 solved, 2 % trained; and at least half of the pairs of solved states show an order",
    falsified="an order is seen that contradicts the prediction by more",
    reason="1 is the error of the route: 1e-8 where solved; 2 % where trained in steps of the record",
    tolerance=1.0,
)
RATIOS = np.geomspace(1e-2, 1e2, 9)
"""Multiples of the problem's ratio; every second one is solved."""
STARTS = (1e-6, 1e-4, 1e-2, 1.0)
LOSSES = (0.1, 0.01, 1e-4)
"""Parts of log M."""
SOLVED, TRAINED = 1e-8, 0.02
SEEN = 0.5
_BLOCKS, _AT_ONCE = 3, 8

Curves = Mapping[str, tuple[Problem, np.ndarray, np.ndarray]]
"""By parameterization: the problem, and mu_OV and mu_QK at increasing times."""


def judge(evidence: Evidence) -> Claim:
    """Contradicted predictions, in units of the route's error, and the map."""
    problem, field = evidence.problem, evidence.field
    errors: dict[str, np.ndarray] = {}
    at: dict[str, dict[str, np.ndarray]] = {}
    seen = []
    for multiple, start in itertools.product(RATIOS[::2], STARTS):
        curves = _solved(problem, float(multiple), start, field)
        found = contradictions(curves, field)
        part = f"exact, r = {multiple * problem.rates.ratio:.3g}, start {start:g}"
        errors[part], at[part] = found["by"] / SOLVED, {"log_z": found["log_z"]}
        seen.append(np.isfinite(found["by"]))
        own = problem.parameterization.value
        if multiple == 1.0 and _start(problem.parameterization, start) == problem.start:
            integrated = evidence.integrated_by_loss
            curves[own] = (problem, np.asarray(integrated.mu_ov), np.asarray(integrated.mu_qk))
            found = contradictions(curves, field)
            errors["integrated"], at["integrated"] = found["by"] / SOLVED, {"log_z": found["log_z"]}
    trained = {  # not the start, which may be common: rounding would put it in an order
        kind.value: (training.problem, training.columns["mu_ov"][-1, 1:], training.columns["mu_qk"][-1, 1:])
        for kind in Parameterization
        if (training := evidence.record.trainings.get(kind.value)) is not None
    }
    if len(trained) > 1:
        found = contradictions(trained, field)
        errors["trained"], at["trained"] = found["by"] / TRAINED, {"log_z": found["log_z"]}
    share = float(np.mean(np.concatenate(seen)))
    base = math.log(problem.setting.n_classes)
    drawn = sharpness_map(
        problem.setting,
        RATIOS * problem.rates.ratio,
        STARTS,
        [part * base for part in LOSSES],
        lr_ov=problem.rates.lr_ov,
        field=field,
    )
    details: dict[str, Any] = {"map": drawn.document(), "share_of_pairs_that_show_an_order": share}
    if share < SEEN:
        return CLAIM.undecided("fewer than half of the pairs of solved states show an order", **details)
    # where no order is seen, nothing is contradicted
    errors = {part: np.where(error == -np.inf, 0.0, error) for part, error in errors.items()}
    horizon = f"loss = {LOSSES[-1] * base:.3g}, ratios 1e-2 to 1e2 times the problem's"
    judged = CLAIM.judged(errors, at=at, horizon=horizon, **details)
    return dataclasses.replace(judged, why=f"{len(set(drawn.orders.ravel()) - {''})} orders in the map")


def contradictions(curves: Curves, field: Any) -> dict[str, np.ndarray]:
    """By how much log mu_OV contradicts the order that two curves show; -inf where none is shown.

    Returns:
        "by" and "log_z", one entry for every state of A against every other curve B, in order of loss.
    """
    by, places = [], []
    relations = {name: Relation(problem, field) for name, (problem, _, _) in curves.items()}

    def z_of(name, u, g):
        return u * np.exp(-np.logaddexp(0.0, -relations[name].log_rho - g))

    for a, b in itertools.permutations(curves, 2):
        (_, u_a, g_a), (_, u_b, g_b) = curves[a], curves[b]
        z_a, z_b = z_of(a, u_a, g_a)[:, None], z_of(b, u_b, g_b)[None, :]
        b_sharper = ((z_b <= z_a) & (g_b[None, :] > g_a[:, None])).any(1)
        a_sharper = ((z_b >= z_a) & (g_b[None, :] < g_a[:, None])).any(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = g_a > relations[b].g0
            # B is beyond g from the start: as if it passed g with no mu_OV at all
            lead = np.log(u_a) - relations[b].log_mu_ov(np.where(passed, g_a, relations[b].g0 + 1.0))
            lead = np.where(passed, lead, np.inf)
        by.append(np.where(b_sharper, -lead, np.where(a_sharper, lead, -np.inf)))
        by[-1] = np.where(b_sharper & a_sharper, np.inf, by[-1])
        places.append(np.log(np.maximum(z_a[:, 0], 1e-300)))
    order = np.argsort(np.concatenate(places), kind="stable")
    return {"by": np.concatenate(by)[order], "log_z": np.concatenate(places)[order]}


def _start(kind: Parameterization, size: float) -> Start:
    return Start(size if kind.ov_factorized else 0.0, size if kind.qk_factorized else 0.0)


def _solved(problem: Problem, multiple: float, size: float, field: Any) -> dict[str, Any]:
    """The four parameterizations, exact, at times between onset and the least loss."""
    rates = LearningRates(problem.rates.lr_ov, problem.rates.ratio * multiple)
    found = {}
    for kind in Parameterization:
        case = Problem(problem.setting, kind, rates, _start(kind, size))
        c = case.constants
        first = math.log(c.n_distinct_vocab / c.lr_ov)
        last = first + math.log((c.n_classes - 1.0) / math.expm1(LOSSES[-1] * math.log(c.n_classes)))
        last += 2.0 * math.log1p(c.n_common / c.n_distinct) + math.log(c.n_classes)
        if kind.ov_factorized:
            last += math.log1p(-math.log(size)) if size < 1.0 else 0.0
        times = np.linspace(first - 1.0, last, _BLOCKS * _AT_ONCE)
        # as many at once as a record has times: the solver is compiled for that
        blocks: list[Trajectory] = [
            solve_exact(case, at_log_time=times[k::_BLOCKS], field=field).checked() for k in range(_BLOCKS)
        ]
        order = np.argsort(np.concatenate([times[k::_BLOCKS] for k in range(_BLOCKS)]))
        u, g = (
            np.concatenate([np.asarray(getattr(x, n)) for x in blocks])[order] for n in ("mu_ov", "mu_qk")
        )
        found[kind.value] = (case, u, g)
    return found
