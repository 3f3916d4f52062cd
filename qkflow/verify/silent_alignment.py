"""Small starts off the manifold align before the loss falls."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from qkflow.setting import Start
from qkflow.verify.alignment import Alignment
from qkflow.verify.claim import Claim, Scope, Verdict
from qkflow.verify.confidence import LEVEL, decide, quantile, standard_error
from qkflow.verify.descent import descend
from qkflow.verify.evidence import Evidence
from qkflow.verify.scalar_map import moved

CLAIM = Claim(
    id="silent_alignment",
    statement="Trained from a small identity or random start of scale s, a layer with a factorized circuit "
    "comes to the manifold early: the part of W_OV outside the singular spaces of its direction when the "
    "loss has fallen by a tenth, and of W_QK when attention begins to move, are O(s). From an identity start "
    "both also come to their lines (a factorized QK with a finite common vocabulary: to the plane of its "
    "modes) as O(s), and from there, while the loss halves, the mu's are at O(s) from the flow started where "
    "they are (not claimed of the plane). Of a random start only the spaces are claimed.",
    source="derived",
    shown="qkflow.verify.alignment",
    scope=Scope.STATISTICAL,
    compared="matrices trained on the population from three scales over a factor of ten, 16 random seeds, "
    "the same for every scale, and the identity; exponents of s regressed on log s, seed by seed; the flow "
    "as the scalar map of the derived field with the same step",
    accepted=f"with {LEVEL:.0%} simultaneous confidence over all comparisons every exponent is above 3/4 "
    "(an identity start has no scatter)",
    falsified="an interval lies wholly below 3/4, or is not a number",
    reason="what the exponent may fall short of 1: half of what tells 1 from 1/2",
    tolerance=0.25,
)


def judge(evidence: Evidence) -> Claim:
    """How far exponents fall short of 1."""
    measured = evidence.record.alignment
    if not measured:
        return CLAIM.undecided("the record has no training from starts off the manifold, or none that learns")
    exponents: dict[str, np.ndarray] = {}
    unseen = ""
    for name, alignment in measured.items():
        seen = alignment.columns
        if np.isnan([seen["outside_ov"], seen["outside_qk"]]).any():
            unseen = name
            continue
        on_line = ("line_ov", "line_qk") if name.endswith("identity") else ()
        for quantity in ("outside_ov", "outside_qk", *on_line):
            exponents[f"{name}: {quantity}"] = _exponent(seen["scale"], seen[quantity])
        if on_line and _has_line(alignment):
            off = _off_the_flow(alignment, evidence.field)
            for row, quantity in zip(off, ("mu_ov", "mu_qk"), strict=True):
                exponents[f"{name}: {quantity} off the flow"] = _exponent(seen["scale"], row[:, None])
    why = f"{unseen} does not reach its stages from every start"
    if not exponents:
        return CLAIM.undecided(why)
    seeds = max(part.columns["outside_ov"].shape[1] for part in measured.values())
    compared = sum(len(found) > 1 for found in exponents.values())
    t = quantile(max(compared, 1), seeds) if seeds > 1 else 0.0
    intervals = {
        part: (float(found.mean()), t * standard_error(found) if len(found) > 1 else 0.0)
        for part, found in exponents.items()
    }
    smallest = min(float(part.columns["scale"].min()) for part in measured.values())
    judged = decide(
        CLAIM,
        {part: (1.0 - exponent, width) for part, (exponent, width) in intervals.items()},
        f"scales to {smallest:g}, {seeds} seeds",
        "too uncertain",
        exponents={part: [round(x, 4), round(width, 4)] for part, (x, width) in intervals.items()},
        random_off_the_line={
            f"{name}: {quantity}": np.mean(part.columns[quantity], axis=1).round(4).tolist()
            for name, part in measured.items()
            for quantity in ("line_ov", "line_qk")
            if not name.endswith("identity")
        },
        confidence=LEVEL,
    )
    return CLAIM.undecided(why) if unseen and judged.verdict is Verdict.VERIFIED else judged


def _exponent(scale: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(K,), the slope of log values (S, K) on log scale; infinite where nothing but zero is left."""
    log_scale = np.log(scale) - np.log(scale).mean()
    with np.errstate(divide="ignore"):
        return np.where(values.max(0) <= 0.0, np.inf, log_scale @ np.log(values) / (log_scale @ log_scale))


def _has_line(alignment: Alignment) -> bool:
    """Whether a gap mu_QK is all that is to be known of an aligned QK circuit."""
    problem = alignment.problem
    return problem.setting.n_common_vocab == math.inf or not problem.parameterization.qk_factorized


def _off_the_flow(alignment: Alignment, field: Any) -> np.ndarray:
    """(2, S), the largest distance of mu_OV and mu_QK from the map from the first record, over the way."""
    seen, off = alignment.columns, []
    for step, size, *states in zip(
        seen["step"], seen["step_size"], seen["mu_ov"], seen["mu_qk"], strict=True
    ):
        measured = np.array(states)
        problem = dataclasses.replace(alignment.problem, start=Start(*map(float, measured[:, 0])))
        mapped = np.array(descend(problem, step - step[0], float(size), field=field))
        off.append((abs(mapped - measured) / moved(measured)).max(-1))
    return np.transpose(off)
