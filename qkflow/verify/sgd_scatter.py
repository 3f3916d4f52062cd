"""Minibatch training scatters about the population's as its step over its batch."""

from __future__ import annotations

import numpy as np

from qkflow.verify.claim import Claim, Scope
from qkflow.verify.confidence import LEVEL, decide, log_scatter, quantile, standard_error
from qkflow.verify.descent import descend
from qkflow.verify.evidence import Evidence
from qkflow.verify.noise import Noise

QUARTER = 0.25
"""Half of what tells the exponents 0, 1/2 and 1 apart."""
CLAIM = Claim(
    id="sgd_scatter",
    statement="Trained on fresh minibatches from an aligned start to a fixed time, mu_OV and mu_QK scatter "
    "over seeds as step/batch, the matrix entries about their directions as its square root, along pairs of "
    "step and batch that are not told apart; and the mean of the mu's tends to population gradient descent "
    "with the same step (which is at O(step) from the flow) as step/batch goes to 0.",
    source="derived",
    shown="qkflow.verify.noise",
    scope=Scope.STATISTICAL,
    compared="64 seeds, the same for five pairs of step and batch; exponents of the standard deviation of "
    "the mu's and of the root mean square entry off the directions, regressed on log step/batch over a "
    "factor of 64; and the means, extrapolated linearly to step/batch = 0 from the two smallest, with the "
    "scalar map of the derived field",
    accepted=f"with {LEVEL:.0%} simultaneous confidence over all comparisons, every exponent is within 1/4 "
    "of 1 or 1/2, and every extrapolated mean is within one standard deviation (of single trainings at the "
    "second smallest step/batch) of the map",
    falsified="an interval lies wholly beyond",
    reason="in units of these margins: 1/4 is half of what separates the exponents 0, 1/2 and 1; the mean's "
    "next order, (step/batch)^2, is a fraction of the scatter there",
    tolerance=1.0,
)
STRONG = 0.25
"""A single entry (a logit, a score) further off than this at the largest step/batch hides leading orders."""


def judge(evidence: Evidence) -> Claim:
    """Intervals by the influence of each seed, which pairs the trainings."""
    measured = evidence.record.noise
    if not measured:
        return CLAIM.undecided("the record has no minibatch training, or none that halves its loss")
    strongest = max(
        float(part.columns[off][0].mean()) for part in measured.values() for off in ("off_ov", "off_qk")
    )
    if strongest > STRONG:
        return CLAIM.undecided(f"single entries scatter by {strongest:.2g}: too much for the leading order")
    compared = {
        f"{name}: {part}": numbers
        for name, noise in measured.items()
        for part, numbers in _estimates(noise, evidence.field).items()
    }
    seeds = min(noise.columns["mu_ov"].shape[1] for noise in measured.values())
    t = quantile(len(compared), seeds)
    return decide(
        CLAIM,
        {
            part: (abs(estimate) / margin, t * error / margin)
            for part, (estimate, margin, error) in compared.items()
        },
        f"{seeds} seeds, to half of the start's loss",
        "too uncertain",
        intervals={
            part: [round(float(x), 5), round(t * error, 5)] for part, (x, _, error) in compared.items()
        },
        confidence=LEVEL,
    )


def _estimates(noise: Noise, field) -> dict[str, tuple[float, float, float]]:
    """By comparison, what ought to be 0, its margin and its standard error."""
    seen, found = noise.columns, {}
    log_ratio = np.log(seen["step_size"] / seen["batch"])
    slope = (log_ratio - log_ratio.mean()) / np.sum((log_ratio - log_ratio.mean()) ** 2)
    for quantity, exponent in (("mu_ov", 1.0), ("mu_qk", 1.0), ("off_ov", 0.5), ("off_qk", 0.5)):
        logs, influence = _log_size(seen[quantity], squares=exponent == 0.5)
        found[f"exponent of {quantity}"] = slope @ logs - exponent, QUARTER, standard_error(slope @ influence)
    for row, quantity in enumerate(("mu_ov", "mu_qk")):
        mapped = [
            descend(noise.problem, [int(steps)], float(size), field=field)[row][0]
            for steps, size in zip(seen["steps"][-2:], seen["step_size"][-2:], strict=True)
        ]
        coarse, fine = (seen[quantity][-2:].T - np.array(mapped)).T
        # Their step/batch is four to one.
        limit = (4.0 * fine - coarse) / 3.0
        scatter = float(coarse.std(ddof=1))
        found[f"mean of {quantity}"] = float(limit.mean()), scatter, standard_error(limit)
    return found


def _log_size(values: np.ndarray, squares: bool) -> tuple[np.ndarray, np.ndarray]:
    """log of the standard deviation, or of the root mean square, and the influence of each seed."""
    if not squares:
        return log_scatter(values)
    mean = (values**2).mean(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(mean[..., 0]) / 2.0, (values**2 / mean - 1.0) / 2.0
