"""What is seen of a state, and which questions about a trajectory have an answer."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from qkflow.setting import ArgumentError, Constants, Number, Problem, require, shown

KINDS = ("loss", "time", "log_time", "attention")
"""What a trajectory can be asked for; the argument of kind "loss" is `at_loss`, and so on."""

ROUNDING = 1e-14
"""Relative distance within which a loss or an attention mass counts as the start's own."""


def observe(field: Any, c: Constants, mu_ov: Number, mu_qk: Number) -> tuple[Number, Number, Number]:
    """alpha, log(1 - alpha) and log(loss) of a state, in its broadcast shape.

    Args:
        field: the derived field.
        c: the problem's numbers.
        mu_ov: logit gap per unit of attention.
        mu_qk: score gap that the softmax sees.
    """
    alpha = field.alpha(c, mu_qk)
    return alpha, field.log_one_minus_alpha(c, mu_qk), field.log_loss(c, alpha * mu_ov)


def the_target(**targets: Any) -> tuple[str, Any]:
    """The kind and the value of the one target that is not None.

    Raises:
        ArgumentError: when none or several are given.

    >>> the_target(loss=1e-4, time=None)
    ('loss', 0.0001)
    """
    given = {kind: value for kind, value in targets.items() if value is not None}
    if len(given) != 1:
        names = ", ".join(f"`at_{kind}`" for kind in targets)
        raise ArgumentError(f"Exactly one of {names} must be given, but {len(given)} are.")
    return next(iter(given.items()))


def check_target(problem: Problem, kind: str, values: Any, field: Any) -> None:
    """Refuse a question without an answer. Traced numbers pass unchecked.

    Args:
        problem: the layer; its numbers may be arrays of a common shape S.
        kind: one of `KINDS`.
        values: float, shape () or (K,).
        field: the derived field.

    Raises:
        ArgumentError: for more than one axis; NaN; a loss that is not positive or above the start's; an
            attention mass below the start's or not below 1; a time that is negative or infinite.
    """
    name = f"at_{kind}"
    if isinstance(values, list | tuple):
        values = np.asarray(values, float)
    if np.ndim(values) > 1:
        raise ArgumentError(
            f"Argument `{name}` must be a number or one row of numbers, but has {np.ndim(values)} axes."
        )
    if kind == "time":
        require(name, values, lambda x: (x >= 0) & np.isfinite(x), "finite and at least 0")
    elif kind == "log_time":
        require(name, values, lambda x: x < np.inf, "a number below infinity")
    elif not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(problem)):
        c = jax.tree.map(lambda v: np.asarray(v, float), problem.constants)
        with jax.ensure_compile_time_eval():  # the problem is concrete, also where a target is traced
            alpha, _, log_loss = (np.asarray(v) for v in observe(field, c, c.mu_ov_0, c.mu_qk_0))
        if kind == "loss":
            start = np.exp(log_loss).min()
            what = f"positive and at most the start's ({shown(start)})"
            require(name, values, lambda x: (x > 0) & (x <= start * (1 + ROUNDING)), what)
        else:
            start = alpha.max()
            what = f"at least the start's ({shown(start)}) and below 1"
            require(name, values, lambda x: (x >= start * (1 - ROUNDING)) & (x < 1), what)
