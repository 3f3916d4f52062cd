"""A factorized circuit has its implicit learning rate."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.setting import ArgumentError, Problem, require
from qkflow.testing.judged import Held, every, judged


def assert_rescaled_rate(
    problem: Problem, circuit: str, mu: Any, factorized: Any, collapsed: Any, *, tolerance: float = 1e-6
) -> Held:
    """A factorized circuit moves R times as fast as the same circuit collapsed.

    R_OV = sqrt(lambda^2 + 4 b mu_OV^2), R_QK = sqrt(lambda^2 + 4 b Q (mu_QK/beta)^2); 1 for a circuit that is
    collapsed in the problem.

    Args:
        problem: parameterization, setting and imbalances.
        circuit: "ov" or "qk".
        mu: mu_OV or mu_QK where the rates were measured, any shape.
        factorized: the rate d mu/dt of the circuit as trained, of the same shape: from the gradient G in the
            product W = A B it is the coefficient of -(G B^T B + A A^T G), or what one small step moves.
        collapsed: the rate of one matrix at the same place: the coefficient of -G.
        tolerance: largest relative error; the default is for gradients. Rates taken from a step of h, or from
            differences of a record, are off by the order of h.

    Returns:
        The margin.

    Raises:
        AssertionError: with the first violation.
        ArgumentError: for an unknown circuit, shapes that differ, or a factorized QK circuit with a finite
            common vocabulary, whose two modes have a rate each.

    >>> problem = Problem(parameterization="CAFO")
    >>> assert_rescaled_rate(problem, "ov", [1.0], [0.3 * 2 * 50**0.5], [0.3]).error < 1e-12
    True
    """
    if circuit not in ("ov", "qk"):
        raise ArgumentError(f"Argument `circuit` must be ov or qk, but is {circuit!r}.")
    require("mu", mu, np.isfinite, "finite")
    require("tolerance", tolerance, lambda v: (v > 0) & np.isfinite(v), "positive and finite")
    mu, kind, c = np.asarray(mu, dtype=float), problem.parameterization, problem.constants
    rates = {}
    for name, value in (("factorized", factorized), ("collapsed", collapsed)):
        rates[name] = np.asarray(value, dtype=float)
        if rates[name].shape != mu.shape:
            raise ArgumentError(f"Argument `{name}` must have the shape of `mu`, {mu.shape}.")
    if circuit == "ov":
        expected = np.asarray(derived.rescaling_ov(c, mu)) if kind.ov_factorized else np.ones(mu.shape)
    elif kind.qk_factorized:
        infinite = c.n_common_vocab == math.inf
        every("n_common_vocab", c.n_common_vocab, infinite, "inf for the one rate of a factorized QK circuit")
        sigma = np.asarray(derived.singular_values_qk(c)[1] / derived.line_gap(c)) * mu
        expected = np.asarray(derived.rescaling_qk(c, sigma))
    else:
        expected = np.ones(mu.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        measured = np.atleast_1d(rates["factorized"] / rates["collapsed"])
        errors = abs(measured / expected - 1.0)
    name = f"R_{circuit.upper()}"
    return judged(
        "has the rescaled rate",
        {name: errors},
        float(tolerance),
        {f"mu_{circuit}": np.atleast_1d(mu)},
        {name: (measured, np.atleast_1d(expected))},
    )
