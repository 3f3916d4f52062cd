"""The matrices stay on the line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qkflow.models import read_matrices
from qkflow.setting import Problem
from qkflow.testing.judged import Held, allowed_by, judged, rounded


def assert_on_line(problem: Problem, w_qk: Any, w_ov: Any, *, tolerance: Any = None) -> Held:
    """The matrices stay on the line of the reduced flow: a symmetric training has nothing else.

    A factorized QK circuit with a finite common vocabulary leaves the line by theory; it is held to the plane
    of its two modes.

    Args:
        problem: setting and parameterization.
        w_qk: W_QK, (P, keys, queries) or (keys, queries), laid out as `read_matrices` says; of a factorized
            circuit the product.
        w_ov: W_OV, (P, classes, keys) or (classes, keys).
        tolerance: largest norm off the line, relative to the largest norm in the record; by default 1e-8 for
            float64 and 1e-3 for float32, for rounding.

    Returns:
        The margin.

    Raises:
        AssertionError: with the first violation.
        ArgumentError: for matrices of other shapes.

    >>> from qkflow.models import directions
    >>> qk, ov = directions(Problem().setting)
    >>> assert_on_line(Problem(), 0.1 * qk, 3.0 * ov).error < 1e-12
    True
    """
    reading = read_matrices(problem.setting, w_qk, w_ov)
    plane = problem.parameterization.qk_factorized and problem.setting.n_common_vocab != math.inf
    off_qk = reading.off_qk_modes if plane else reading.off_qk
    errors, values = {}, {}
    for name, off, norm in (("w_qk", off_qk, reading.norm_qk), ("w_ov", reading.off_ov, reading.norm_ov)):
        largest = float(np.max(norm))
        errors[name] = np.atleast_1d(off / (largest if largest > 0 else 1.0))
        values[name] = np.atleast_1d(off), np.zeros(np.atleast_1d(off).shape)
    records = {name: np.arange(error.shape[-1]) for name, error in errors.items()}
    record = max(records.values(), key=len)
    allowed = allowed_by(tolerance, rounded(w_qk, w_ov))
    return judged(
        "stays on the plane" if plane else "stays on the line", errors, allowed, {"record": record}, values
    )
