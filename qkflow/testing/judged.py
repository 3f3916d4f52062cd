"""What all assertions share: checked columns, tolerances, and the verdict with its first violation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from qkflow.setting import ArgumentError, require, shown

ROUNDED, ROUNDED_32 = 1e-8, 1e-3
"""What rounding may make of thousands of steps in float64 and float32, relative to the distance moved; a rate
that is off by one part in a million, or by one in a hundred, shows."""


@dataclasses.dataclass(frozen=True)
class Held:
    """An assertion that held.

    Args:
        statement: what was asserted.
        error: the worst error; negative where a bound was kept with room.
        allowed: the largest error that would have been accepted.
        at: where the worst error is, e.g. "mu_qk, t = 40".
    """

    statement: str
    error: float
    allowed: float
    at: str

    @property
    def margin(self) -> float:
        """allowed / error, at least 1; infinite where there is no error."""
        return self.allowed / self.error if self.error > 0 else math.inf

    def __str__(self) -> str:
        """One line to print."""
        return (
            f"{self.statement}: worst error {self.error:.2g} of {self.allowed:.2g} allowed "
            f"(margin {self.margin:.3g}) at {self.at}"
        )


def needs_float64() -> None:
    """Raise `ArgumentError` without float64."""
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError('Theory needs float64: call jax.config.update("jax_enable_x64", True) first.')


def every(name: str, value: Any, holds: Any, what: str) -> None:
    """Raise `ArgumentError` with the first entry of `value` for which `holds` is false."""
    values, held = np.broadcast_arrays(np.atleast_1d(np.asarray(value, float)), holds)
    if not held.all():
        raise ArgumentError(f"Argument `{name}` must be {what}, but is {shown(values[~held])}.")


def column_of(name: str, value: Any, times: np.ndarray) -> np.ndarray:
    """A column as float64, once its last axis runs over the times."""
    if times.ndim != 1 or not times.size:
        raise ArgumentError("Argument `t` must be one column of times.")
    column = np.asarray(value, dtype=float)
    if column.ndim < 1 or column.shape[-1] != times.size:
        raise ArgumentError(
            f"Argument `{name}` must have {times.size} records, but has shape {column.shape}."
        )
    return column


def rounded(*columns: Any) -> float:
    """The tolerance that rounding needs in the precision of the columns."""
    single = any(getattr(column, "dtype", None) == np.float32 for column in columns)
    return ROUNDED_32 if single else ROUNDED


def allowed_by(tolerance: Any, default: float) -> float:
    """The user's tolerance, checked, or the default."""
    if tolerance is None:
        return default
    require("tolerance", tolerance, lambda v: (v > 0) & np.isfinite(v), "positive and finite")
    return float(tolerance)


def judged(
    statement: str,
    errors: Mapping[str, np.ndarray],
    allowed: float,
    at: Mapping[str, np.ndarray],
    values: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> Held:
    """`Held`, or an AssertionError: what is not a number violates."""
    ((coordinate, places),) = at.items()
    table = {name: np.where(np.isnan(error), np.inf, error) for name, error in errors.items()}

    def place(name: str, index: Sequence[int]) -> str:
        seed = f", seed {', '.join(map(str, index[:-1]))}" if len(index) > 1 else ""
        return f"{name}, {coordinate} = {places[index[-1]]:.6g}{seed}"

    worst = max(table, key=lambda name: float(table[name].max()))
    at_worst = np.unravel_index(table[worst].argmax(), table[worst].shape)
    error = float(table[worst][at_worst]) + 0.0
    held = Held(statement, error, allowed, place(worst, [int(i) for i in at_worst]))
    if error <= allowed:
        return held
    first: tuple[int, str, Sequence[int]] | None = None
    for name, error_of in table.items():
        for index in np.argwhere(error_of > allowed):
            if first is None or index[-1] < first[0]:
                first = int(index[-1]), name, [int(i) for i in index]
    assert first is not None
    record, name, index = first
    value, expected = (column[tuple(index)] for column in values[name])
    raise AssertionError(
        f"Training {statement}: no. First violation: {place(name, index)} (record {record}): "
        f"{value:.9g} against {expected:.9g}, error {table[name][tuple(index)]:.3g}, allowed {allowed:.3g}. "
        f"Worst: {held.error:.3g} at {held.at}; margin {held.margin:.3g}."
    )
