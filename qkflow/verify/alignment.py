"""How small starts off the manifold come to it: silent alignment.

Why. Near zero a factorized circuit W = A B moves by dA = -G B^T, dB = -A^T G with G the gradient. Along the
singular spaces U and V of its direction (G = -g U S V^T with one singular value) the half sum X = (U^T A + B
V)/2 grows like exp(integral of g S), the half difference shrinks as fast, and what is outside, A_0 and B_0,
stays at the start's scale s. When X has grown to order 1, W = U X X^T V^T + U X B_0 + A_0 X^T V^T + A_0 B_0:
the part outside the singular spaces is s over |X|, of first order in s at any fixed stage. A collapsed
circuit keeps the part of its start that is outside, s, while mu grows. OV grows from the start. QK is driven
in proportion to mu_OV, so it aligns later than OV, but before attention moves: that is its stage.

Within the singular spaces W is U X X^T V^T. An identity start has X X^T a multiple of the identity (its rows
and columns are alike, and U is orthogonal to the vector of ones), so it comes to the line itself, in a
factorized QK circuit with a finite common vocabulary to the plane of the two modes. A random start has not:
singular values that start unequal stay unequal at any s (their ratio tends to 1 with the width), so it comes
to the singular spaces only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qkflow.setting import Problem, Start
from qkflow.train import circuit_sgd, train
from qkflow.trajectory import Trajectory
from qkflow.verify.descent import descend
from qkflow.verify.horizon import time_of

SCALES = (0.03, 0.01, 0.003)
SEEDS = 16
STEPS, RECORDS = 1024, 120
FALL = 0.1
"""OV is seen when the loss has fallen by this part of the start's."""
GAP = 0.5
"""QK is seen at this mu_QK, or at half of what the map ends with if that is less."""
LAST, LONGER = 0.1, 2.0
"""Training takes this many times the time at which the map's loss is `LAST` of the start's."""
KEPT = 6
"""Records at which an identity start is compared with the flow."""


@dataclasses.dataclass(frozen=True)
class Alignment:
    """One problem trained on the population from starts off the manifold, of several scales.

    Args:
        problem: what was trained; its own start is not used.
        columns: `scale` (S,) and `gap`, the mu_QK at which QK is seen; of K seeds, (S, K): outside_ov,
            line_ov when the loss has fallen, outside_qk, line_qk at `gap`: the part of the matrix outside the
            singular spaces, and off the line (or the plane of the two modes), relative, NaN where the stage
            is not reached. Of the first seed: `step_size` (S,), and (S, P) step, mu_ov, mu_qk from both
            stages until the loss has halved once more.
    """

    problem: Problem
    columns: Mapping[str, np.ndarray]


def measure_alignment(
    problem: Problem,
    start: str,
    *,
    scales: tuple[float, ...] = SCALES,
    optimizer: Callable[[Any, Any], Any] = circuit_sgd,
) -> Alignment | None:
    """Train from starts of every scale; `None` where the map from a small start does not learn.

    Args:
        problem: a small one; at least one of its circuits factorized.
        start: "identity", or "random" with `SEEDS` seeds, the same for all scales.
        scales: s, decreasing.
        optimizer: makes the optax transformation of (h lr_ov, h lr_qk).
    """
    planned = [_plan(problem, scale) for scale in scales]
    if any(plan is None for plan in planned):
        return None
    gap = min(GAP, *(plan[1] for plan in planned if plan))
    rows = []
    for scale, plan in zip(scales, planned, strict=True):
        assert plan is not None
        run = train(
            problem,
            steps=STEPS,
            step_size=plan[0] / STEPS,
            seeds=SEEDS if start == "random" else 1,
            start=start,
            start_scale=scale,
            records=RECORDS,
            optimizer=optimizer,
        )
        rows.append(
            _stages(run, gap) | {"scale": np.asarray(scale), "step_size": np.asarray(plan[0] / STEPS)}
        )
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return Alignment(problem, columns | {"gap": np.asarray(gap)})


def _plan(problem: Problem, scale: float) -> tuple[float, float] | None:
    """How long to train, and half of the final mu_QK, by the map from a little less than scale^2."""
    kind = problem.parameterization
    low = scale**2 / 4.0
    small = Start(low if kind.ov_factorized else 0.0, low if kind.qk_factorized else 0.0)
    problem = dataclasses.replace(problem, start=small)
    learned = time_of(problem, LAST)
    if learned is None:
        return None
    end = LONGER * learned
    return end, 0.5 * float(descend(problem, [STEPS], end / STEPS)[1][0])


def _stages(run: Trajectory, gap: float) -> dict[str, np.ndarray]:
    extra = run.extra
    fall = 1.0 - np.exp(run.log_loss - run.log_loss[:, :1])
    line_qk = extra.get("residual_qk_modes", extra["residual_qk"])
    stages = ((fall, FALL, "ov", extra["residual_ov"]), (run.mu_qk, gap, "qk", line_qk))
    found: dict[str, np.ndarray] = {}
    for clock, level, circuit, line in stages:
        for name, column in ((f"outside_{circuit}", extra[f"outside_{circuit}"]), (f"line_{circuit}", line)):
            found[name] = np.array([_at(level, *pair) for pair in zip(clock, column, strict=True)])
    # Without both stages the last record stands for all, and there is nothing to follow.
    passed = [*np.flatnonzero((fall[0] >= FALL) & (run.mu_qk[0] >= gap)), len(fall[0]) - 1]
    halved = run.log_loss[0, passed] < run.log_loss[0, passed[0]] - math.log(2.0)
    both = np.array(passed)[: max(2, int(np.argmax(halved)) if halved.any() else len(passed))]
    kept = both[np.rint(np.linspace(0, len(both) - 1, KEPT)).astype(int)]
    return found | {"step": extra["step"][kept], "mu_ov": run.mu_ov[0, kept], "mu_qk": run.mu_qk[0, kept]}


def _at(level: float, clock: np.ndarray, column: np.ndarray) -> float:
    """The column where the clock first passes the level, both read between records on a log scale."""
    later = int(np.argmax(clock >= level))
    if clock[later] < level or later == 0:
        return math.nan
    before, after = np.maximum(clock[later - 1 : later + 1], 1e-3 * level)
    part = math.log(level / before) / math.log(after / before)
    with np.errstate(divide="ignore"):
        return float(np.exp((1.0 - part) * np.log(column[later - 1]) + part * np.log(column[later])))
