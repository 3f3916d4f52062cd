"""How minibatch training scatters about training on the population.

Why the mu's see noise only at second order. Take one sequence with class c, query q, distinct tokens S and
common tokens S', and matrices on the manifold, where every token of S has score s_d and value v = mu_OV (e_c
- 1/M), and every token of S' score s_k and value 0. Then the attention is a_d = alpha/m on S and a_k = (1 -
alpha)/n on S', and the logits are alpha v: neither depends on c, q, S or S' but by naming them. With p =
softmax(logits),

- dl/dW_OV = (p - e_c) (sum_j a_j x_j)^T, and its product with the direction D_OV is alpha (p - e_c) . (e_c -
  1/M) = -alpha (1 - p_c);
- dl/dW_QK has the entry a_j (p - e_c) . (v_j - alpha v) at (j, q), and its product with D_QK (1/b at (D_c,
  Q_c), -1/B at common keys) is the sum over S by 1/b less the sum over S' by 1/B; so it is with the two modes
  of D_QK.

These are the same for every sequence, so a batch moves mu_OV, mu_QK and the modes as the population does, and
its noise moves what is off the manifold alone. A balanced or imbalanced aligned factorized circuit A B moves
by G B^T B + A A^T G, and B^T B and A A^T are multiples of projectors onto the direction's singular spaces
(mode by mode), which leave the products alone; its term h^2 G W^T G has no part linear in the noise along the
direction.

Off the manifold a step h of batch size B adds noise of size h / sqrt(B); over t / h steps single entries
random-walk to d ~ sqrt(t h / B). By symmetry (permuting classes, and tokens and queries of a class) the
population's gradient along D has no part linear in d. So mu_OV and mu_QK change by t d^2 ~ h/B in the mean,
with a scatter of the same order, to which the noise's own part linear in d adds: h sqrt(t/h) d / sqrt(B) ~
h/B. The discretisation, O(h), is that of gradient descent on the population with the same step."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qkflow.models import directions
from qkflow.setting import Problem
from qkflow.train import circuit_sgd, train
from qkflow.trajectory import Trajectory
from qkflow.verify.descent import descend
from qkflow.verify.horizon import time_of

SEEDS = 64
BATCH = 8
FIRST_STEPS = (128, 256, 512, 1024)
LADDER = ((1, 1), (4, 1), (16, 1), (1, 16), (4, 16))
"""Multiples of the number of steps and of the batch: step/batch falls to 1/64, to 1/16 by either way."""
PART = 0.5
"""Training ends where the loss is this part of the start's; later noise hides its own leading order."""
SETTLED = 0.1
"""At the largest step the mu's are this close to those of half the step, relative to how far they moved."""


@dataclasses.dataclass(frozen=True)
class Noise:
    """One problem trained on random sequences from its aligned start to one time, by steps and batches.

    Args:
        problem: what was trained.
        columns: `steps`, `step_size` and `batch` (C,), and at the end, for the same seeds, (C, K) mu_ov,
            mu_qk, off_ov and off_qk: the root mean square of the entries' distance from the direction (of a
            factorized QK circuit with a finite common vocabulary: from its two modes), in units of
            the scores (times beta) for QK.
    """

    problem: Problem
    columns: Mapping[str, np.ndarray]


def measure_noise(
    problem: Problem, optimizer: Callable[[Any, Any], Any] = circuit_sgd, seeds: int = SEEDS
) -> Noise | None:
    """Train by every pair of `LADDER`; `None` where the loss never halves.

    Args:
        problem: a small one: its loss is averaged over all of its sequences.
        optimizer: makes the optax transformation of (h lr_ov, h lr_qk).
        seeds: K.
    """
    end = time_of(problem, PART)
    if end is None:
        return None
    first = _first_steps(problem, end)
    rows = []
    for more_steps, larger in LADDER:
        steps, batch = first * more_steps, BATCH * larger
        run = train(
            problem,
            mode="sgd",
            steps=steps,
            step_size=end / steps,
            seeds=seeds,
            batch_size=batch,
            records=1,
            optimizer=optimizer,
        )
        off_ov, off_qk = _off(problem, run)
        rows.append((steps, end / steps, batch, run.mu_ov[:, -1], run.mu_qk[:, -1], off_ov, off_qk))
    names = ("steps", "step_size", "batch", "mu_ov", "mu_qk", "off_ov", "off_qk")
    return Noise(problem, dict(zip(names, map(np.stack, zip(*rows, strict=True)), strict=True)))


def _first_steps(problem: Problem, end: float) -> int:
    """The fewest of `FIRST_STEPS` at which the map has settled, else the most."""
    start = np.array([problem.start.mu_ov, problem.start.mu_qk], dtype=float)
    for steps in FIRST_STEPS:
        coarse, fine = (np.ravel(descend(problem, [k], end / k)) for k in (steps, 2 * steps))
        if np.all(abs(coarse - fine) <= SETTLED * abs(fine - start)):
            return steps
    return FIRST_STEPS[-1]


def _off(problem: Problem, run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square entries off the directions at the end, (K,) each, from the relative residuals."""
    setting = problem.setting
    qk, ov = directions(setting)
    gap = 1 / setting.n_distinct_vocab + 1 / float(setting.n_common_vocab)

    def norms(mu, direction, residual):
        return abs(mu) * np.linalg.norm(direction) / np.sqrt((1 - residual) * (1 + residual))

    last = {name: column[..., -1] for name, column in run.extra.items()}
    of_ov = last["residual_ov"] * norms(run.mu_ov[:, -1], ov, last["residual_ov"])
    of_qk = last.get("residual_qk_modes", last["residual_qk"]) * norms(
        run.mu_qk[:, -1] / gap, qk, last["residual_qk"]
    )
    return of_ov / math.sqrt(ov.size), of_qk / math.sqrt(qk.size)
