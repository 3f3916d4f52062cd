"""The main job: every claim about one problem, judged."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.flow.asymptotics import growth_bounds
from qkflow.setting import ArgumentError, Problem
from qkflow.verify import (
    attention_rate,
    attention_to_one,
    certified,
    conserved,
    derivation,
    exact_integrated,
    first_integral,
    gradient_descent_order,
    line,
    loss_identity,
    ov_logarithmic,
    ov_rate,
    qk_bounded,
    qk_rate,
    reduction,
    rescaling,
    scalar_map,
    sgd_scatter,
    sharper,
    sharpness_order,
    silent_alignment,
    training_limit,
)
from qkflow.verify.claim import Claim
from qkflow.verify.evidence import Evidence
from qkflow.verify.record import Record, measure, require_float64
from qkflow.verify.report import Curves, Report

MODULES = (
    derivation,
    reduction,
    rescaling,
    loss_identity,
    line,
    scalar_map,
    gradient_descent_order,
    training_limit,
    sgd_scatter,
    silent_alignment,
    conserved,
    first_integral,
    exact_integrated,
    ov_logarithmic,
    ov_rate,
    qk_bounded,
    qk_rate,
    attention_rate,
    attention_to_one,
    sharper,
    sharpness_order,
)
"""One module a claim, in the order of the report."""


def verify(
    problem: Problem | None = None,
    *,
    record: Record | None = None,
    field: Any = derived,
    claims: Sequence[str] | None = None,
    rigorous: bool = False,
    progress: Callable[[str], Any] | None = None,
) -> Report:
    """Hold theory, integration and trained matrices against each other.

    The problem is solved exactly and integrated at full size. Matrices are trained in all four
    parameterizations, in the problem's own setting where its population has at most 5,000 sequences, else
    in a stated small one.

    Args:
        problem: concrete numbers; `None` is the paper's, `Problem()`.
        record: what was measured on matrices before; `None` trains them now.
        field: the derived field to be judged.
        claims: identifiers of the claims to judge, in this order; `None` judges all.
        rigorous: whether to prove the bounds for all t, and to hold the exact route against certified balls.
        progress: called with a line about what is being done.

    Returns:
        A `Report`; its `ok` says whether no claim is falsified. A claim whose routes have no answer, or one
        that is not a number, is falsified.

    Raises:
        ArgumentError: for an unknown claim, a number that is an array, or float32.
    """
    problem = Problem() if problem is None else problem
    modules = (*MODULES, certified) if rigorous else MODULES
    known = {module.CLAIM.id: module for module in modules}
    for name in claims or ():
        if name not in known:
            raise ArgumentError(f"Argument `claims` must name some of {', '.join(known)}, but has {name!r}.")
    for name, value in problem.constants._asdict().items():
        if np.ndim(value):
            raise ArgumentError(f"Argument `{name}` must be a single number to be verified, but is an array.")
    require_float64()
    began, clock = datetime.datetime.now(datetime.UTC), time.perf_counter()
    say = progress or (lambda line: None)
    exact, problem = problem, problem.in_floats()
    record = measure(problem, progress=say) if record is None else record
    evidence = Evidence(problem, record, field, exact if rigorous else None)
    judged = []
    chosen = list(known if claims is None else claims)
    for k, name in enumerate(chosen):
        say(f"judging {k + 1} of {len(chosen)}: {name}")
        judged.append(_judge(known[name], evidence))
    curves = _curves(evidence) if claims is None else None
    seconds = time.perf_counter() - clock
    return Report(
        problem, record.setting, tuple(judged), curves, began.isoformat(timespec="seconds"), seconds
    )


def _judge(module: Any, evidence: Evidence) -> Claim:
    try:
        return module.judge(evidence)
    except (ArgumentError, FloatingPointError) as error:
        return module.CLAIM.without_answer(str(error))


def _curves(evidence: Evidence) -> Curves | None:
    """What the figures show; nothing when a route had no answer, which a claim has said."""
    try:
        name = evidence.problem.parameterization.value
        training = evidence.record.trainings[name]
        growth = evidence.by_time
        bounds = growth_bounds(evidence.problem, growth.log_t, growth.mu_ov, field=evidence.field)
        return Curves(
            growth,
            bounds,
            evidence.integrated_by_loss,
            evidence.curve(name),
            training.columns,
            evidence.ratios,
        )
    except (ArgumentError, FloatingPointError):
        return None
