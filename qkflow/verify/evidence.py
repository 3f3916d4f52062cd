"""The routes that claims hold against each other, each computed once."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from qkflow.flow import derived
from qkflow.flow.exact import solve_exact
from qkflow.flow.integrate import integrate
from qkflow.setting import LearningRates, Problem
from qkflow.trajectory import Trajectory
from qkflow.verify.record import Record

HORIZON = 1e4
"""Largest log t at which bounds are checked."""
INTEGRATED_HORIZON = 100.0
LAST_LOSS = 1e-4
MULTIPLES = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One problem, the record of its matrices, and the field that is judged.

    Args:
        problem: solved and integrated at full size.
        record: what was measured on matrices.
        field: the derived field.
    """

    problem: Problem
    record: Record
    field: Any = derived

    @functools.cached_property
    def losses(self) -> np.ndarray:
        """Log-spaced from a little below the start's to 1e-4, or to 1e-4 of the start's if that is less."""
        c = self.problem.constants
        z = self.field.alpha(c, c.mu_qk_0) * c.mu_ov_0
        start = float(np.exp(self.field.log_loss(c, z)))
        return np.geomspace(0.9 * start, min(LAST_LOSS, LAST_LOSS * start), 25)

    @functools.cached_property
    def log_times(self) -> np.ndarray:
        """The start, then log times from -10 to the horizon."""
        return np.concatenate([[-math.inf], np.linspace(-10.0, 30.0, 81), np.geomspace(30.5, HORIZON, 60)])

    @functools.cached_property
    def by_loss(self) -> Trajectory:
        """The problem at `losses`, exact."""
        return solve_exact(self.problem, at_loss=self.losses, field=self.field)

    @functools.cached_property
    def by_time(self) -> Trajectory:
        """The problem at `log_times`, exact."""
        return solve_exact(self.problem, at_log_time=self.log_times, field=self.field)

    @functools.cached_property
    def integrated_by_loss(self) -> Trajectory:
        """The problem at every fourth of `losses`, integrated."""
        return integrate(self.problem, at_loss=self.losses[::4], field=self.field)

    @functools.cached_property
    def integrated_by_time(self) -> Trajectory:
        """The problem at `log_times` up to the integrated horizon, integrated."""
        reached = self.log_times[self.log_times <= INTEGRATED_HORIZON]
        return integrate(self.problem, at_log_time=reached, field=self.field)

    @functools.cached_property
    def ratios(self) -> list[Trajectory]:
        """The problem at five ratios around its own, exact, at `losses`."""
        return [solve_exact(self._at(m), at_loss=self.losses, field=self.field) for m in MULTIPLES]

    @functools.cached_property
    def integrated_ratios(self) -> list[Trajectory]:
        """The same, integrated, at every fourth of `losses`."""
        return [integrate(self._at(m), at_loss=self.losses[::4], field=self.field) for m in MULTIPLES]

    def _at(self, multiple: float) -> Problem:
        rates = self.problem.rates
        return dataclasses.replace(self.problem, rates=LearningRates(rates.lr_ov, rates.ratio * multiple))

    @functools.cached_property
    def flows(self) -> dict[str, Trajectory]:
        """Every trained problem at the times of its record, exact."""
        return {
            name: solve_exact(training.problem, at_time=training.t, field=self.field)
            for name, training in self.record.trainings.items()
        }
