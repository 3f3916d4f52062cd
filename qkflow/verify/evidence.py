"""The routes that claims hold against each other, each computed once."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
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
FINE, ALL, COARSE = 20, 80, slice(20, None, 10)
"""Losses close to the start's make the curves smooth; integration is asked for some of the others."""
MULTIPLES = (0.01, 0.1, 1.0, 10.0, 100.0)


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One problem, the record of its matrices, and the field that is judged.

    Args:
        problem: solved and integrated at full size.
        record: what was measured on matrices.
        field: the derived field.
        exact: the problem in exact numbers, where bounds are to be proved by ball arithmetic as well.
    """

    problem: Problem
    record: Record
    field: Any = derived
    exact: Problem | None = None

    @functools.cached_property
    def proofs(self) -> Mapping[str, Any]:
        """Of every bound in scope, by name, whether it holds for all t; empty without `exact`."""
        if self.exact is None:
            return {}
        # Ball arithmetic is imported where it is used.
        from qkflow.verify.rigorous import prove

        return prove(self.exact)

    @functools.cached_property
    def trained_horizon(self) -> str:
        """How far the matrices were trained."""
        trainings = self.record.trainings.values()
        steps = max(int(training.columns["step"][-1, -1]) for training in trainings)
        fall = max(float(np.ptp(training.columns["log_loss"][-1])) for training in trainings)
        return f"{steps:,} steps, loss falls {np.exp(fall):.3g}-fold ({len(trainings)} circuits)"

    @functools.cached_property
    def losses(self) -> np.ndarray:
        """A few close to the start's, then `COARSE`, to 1e-4 or to 1e-4 of the start's if that is less."""
        start = _start_loss(self.problem, self.field)
        near = start * (1.0 - np.geomspace(1e-3, 0.08, FINE))
        return np.concatenate(
            [near, np.geomspace(0.9 * start, min(LAST_LOSS, LAST_LOSS * start), ALL - FINE)]
        )

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
        """The problem at the `COARSE` ones of `losses`, integrated."""
        return integrate(self.problem, at_loss=self.losses[COARSE], field=self.field)

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
        """The same, integrated, at the `COARSE` ones of `losses`."""
        return [integrate(self._at(m), at_loss=self.losses[COARSE], field=self.field) for m in MULTIPLES]

    def _at(self, multiple: float) -> Problem:
        rates = self.problem.rates
        return dataclasses.replace(self.problem, rates=LearningRates(rates.lr_ov, rates.ratio * multiple))

    def curve(self, name: str) -> Trajectory:
        """A trained problem as a fine curve, exact, until the loss of its record's end."""
        training = self.record.trainings[name]
        start, end = _start_loss(training.problem, self.field), np.exp(training.columns["log_loss"][-1, -1])
        losses = np.geomspace(start, max(end, 1e-300), ALL + 1)[1:]
        return solve_exact(training.problem, at_loss=losses, field=self.field)

    @functools.cached_property
    def flows(self) -> dict[str, Trajectory]:
        """Every trained problem at the times of its record, exact."""
        return {
            name: solve_exact(training.problem, at_time=training.t, field=self.field)
            for name, training in self.record.trainings.items()
        }


def _start_loss(problem: Problem, field: Any) -> float:
    c = problem.constants
    return float(np.exp(field.log_loss(c, field.alpha(c, c.mu_qk_0) * c.mu_ov_0)))
