"""How long, and in how many steps, matrices are trained to be seen."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from qkflow.flow import derived
from qkflow.setting import Problem
from qkflow.verify.descent import descend

LEARNED = (0.1, 0.2, 0.05)
"""Training ends where the flow's loss is this part of the start's; the first at which the order is clean."""
CLEAN = 0.035
"""How far the order seen from one step size to the next may be from 1 at the largest steps."""
UNSEEN = 1e-10
"""A mu that differs less from one step size to the next shows no order at the smallest ones."""
FIRST_STEPS = (64, 128, 256, 512, 1024)


def resolution(problem: Problem) -> tuple[float, int]:
    """How long to train, and in how many steps at first, for the error of a step to be of first order.

    The time at which the loss is one of the parts `LEARNED` of the start's, and the smallest power of two
    from which on halving the step halves the scalar map's distance to the flow within `CLEAN`: the first
    such pair, or the cleanest of all.
    """
    best = (math.inf, 1e3 / problem.rates.lr_ov, FIRST_STEPS[-1])
    for part in LEARNED:
        end = time_of(problem, part)
        if end is None:
            break
        for steps in FIRST_STEPS:
            runs = np.array([descend(problem, [steps * k], end / (steps * k)) for k in (1, 2, 4)])[:, :, 0]
            first, second = abs(runs[0] - runs[1]), abs(runs[1] - runs[2])
            with np.errstate(divide="ignore", invalid="ignore"):
                slopes = np.log2(first / second)
            off = float(np.max(np.where(first <= UNSEEN * abs(runs[2]), 0.0, abs(slopes - 1.0))))
            best = min(best, (off, end, steps))
            if off <= CLEAN:
                return end, steps
    return best[1:]


def time_of(problem: Problem, part: float) -> float | None:
    """About when the loss is this part of the start's, by the scalar map; `None` when it never is."""
    goal = log_loss(problem, problem.start.mu_ov, problem.start.mu_qk) + math.log(part)
    return time_until(problem, lambda mu_ov, mu_qk: log_loss(problem, mu_ov, mu_qk) <= goal)


def time_until(problem: Problem, passed: Callable[[float, float], bool]) -> float | None:
    """About when the state (mu_OV, mu_QK) passes, by the map (512 steps to ever later ends)."""

    def passed_at(end: float) -> bool:
        mu_ov, mu_qk = descend(problem, [512], end / 512)
        return passed(float(mu_ov[0]), float(mu_qk[0]))

    end = 1e-6 / problem.rates.lr_ov
    while not passed_at(end):
        if end > 1e30:
            return None
        end *= 2.0
    low, high = end / 2.0, end
    for _ in range(6):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if passed_at(middle) else (middle, high)
    return high


def log_loss(problem: Problem, mu_ov: float, mu_qk: float) -> float:
    """The log of the loss at a state, by the derived field."""
    c = problem.constants
    return float(derived.log_loss(c, derived.alpha(c, mu_qk) * mu_ov))
