"""What a claim is, and how a measured error turns into a verdict."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping
from typing import Any

import numpy as np


class Verdict(enum.Enum):
    """What was found about a claim, never a bare boolean."""

    PROVED = "proved"
    """For all t: an identity of symbols, or a bound with a proof whose hypotheses were checked rigorously."""
    VERIFIED = "verified"
    """Held numerically, with the margin and as far as was looked."""
    FALSIFIED = "falsified"
    """Violated by more than the tolerance, or something compared was not a number."""
    UNDECIDED = "undecided"
    """The evidence does not reach far enough to tell."""
    OUT_OF_SCOPE = "out_of_scope"
    """Not stated for this problem."""


class Scope(enum.Enum):
    """What kind of statement a claim is."""

    IDENTITY = "identity"
    """Two expressions or routes are equal."""
    BOUND = "bound"
    """One quantity keeps below or above another, for all t."""
    RATE = "rate"
    """How fast something grows or vanishes in a limit, with its constant."""
    ORDERING = "ordering"
    """Which of several is larger."""
    STATISTICAL = "statistical"
    """A statement about many seeds, with confidence intervals."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement, fixed before anything runs, and what became of it.

    Args:
        id: short identifier.
        statement: what is claimed, exactly.
        source: who claims it: "paper" or "derived".
        shown: where it is derived or proved: "derivation#" and a heading of the derivation, or a module.
        scope: what kind of statement it is.
        compared: which independent routes were held against each other.
        reason: where the tolerance comes from.
        tolerance: the largest error that is accepted, positive.
        accepted: the acceptance rule.
        falsified: the falsification rule; what neither accepts nor falsifies is undecided.
        precision: of the numbers compared.
        verdict: what follows.
        error: the error that was found; `None` before judging and out of scope.
        horizon: how far was looked.
        first_violation: of a falsified claim, the part, by how much times the tolerance it is exceeded there,
            and where; `None` otherwise.
        why: what a reader must know beside the verdict, such as why there is none.
        details: errors by part and the like; plain JSON values.
    """

    id: str
    statement: str
    source: str
    shown: str
    scope: Scope
    compared: str
    reason: str
    tolerance: float
    accepted: str = "every error is at most the tolerance"
    falsified: str = "an error exceeds the tolerance, or is not a number"
    precision: str = "float64"
    verdict: Verdict = Verdict.UNDECIDED
    error: float | None = None
    horizon: str = ""
    first_violation: Mapping[str, Any] | None = None
    why: str = ""
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def margin(self) -> float | None:
        """How many times the error fits into the tolerance: below 1 falsified, infinite without any error.

        >>> CLAIM = Claim("sum", "1 + 1 = 2", "derived", "-", Scope.IDENTITY, "a, b", "rounding", 1e-15)
        >>> CLAIM.judged({"all": 1.25e-16}).margin, CLAIM.judged({"all": 2e-15}).margin
        (8.0, 0.5)
        """
        if self.error is None:
            return None
        return self.tolerance / self.error if self.error > 0 else math.inf

    def judged(
        self,
        errors: Mapping[str, Any],
        *,
        at: Mapping[str, Mapping[str, Any]] | None = None,
        horizon: str = "",
        **details: Any,
    ) -> Claim:
        """The claim with its verdict: verified when every error is a number within the tolerance.

        Args:
            errors: scaled errors of each part (such as a parameterization): arrays of any shape, not empty,
                whose last axis runs in time or towards smaller losses; negative where there is room; what is
                not a number counts as infinitely wrong.
            at: of a part, coordinates that name a place: by name, arrays that broadcast to its errors.
            horizon: how far was looked.
            details: further plain JSON values to keep.

        >>> claim = Claim("sum", "1 + 1 = 2", "derived", "-", Scope.IDENTITY, "a, b", "rounding", 1e-15)
        >>> claim.judged({"all": 0.0}).verdict, claim.judged({"all": float("nan")}).verdict
        (<Verdict.VERIFIED: 'verified'>, <Verdict.FALSIFIED: 'falsified'>)
        >>> claim.judged({"all": [0.0, 5.0, 9.0]}, at={"all": {"t": [0.0, 0.1, 0.2]}}).first_violation
        {'part': 'all', 'times_the_tolerance': 5000000000000000.0, 't': 0.1}
        """
        found = {part: _infinite_if_nan(error) for part, error in errors.items()}
        worst_of = {part: float(error.max()) for part, error in found.items()}
        worst = max(worst_of, key=worst_of.__getitem__)
        held = worst_of[worst] <= self.tolerance
        first = None if held else self._first(worst, found[worst], (at or {}).get(worst, {}))
        return dataclasses.replace(
            self,
            verdict=Verdict.VERIFIED if held else Verdict.FALSIFIED,
            error=worst_of[worst] + 0.0,
            horizon=horizon,
            first_violation=first,
            details={"worst": worst, "errors": worst_of, **details},
        )

    def _first(self, part: str, error: np.ndarray, at: Mapping[str, Any]) -> dict[str, Any]:
        beyond = error > self.tolerance
        column = int(np.argmax(beyond.any(axis=tuple(range(error.ndim - 1)))))
        row = int(np.argmax(error[..., column]))
        place = (*np.unravel_index(row, error.shape[:-1]), column)
        where = {name: np.broadcast_to(values, error.shape)[place] for name, values in at.items()}
        by = float(error[place]) / self.tolerance
        return {"part": part, "times_the_tolerance": by, **{k: _plain(v) for k, v in where.items()}}

    def without_answer(self, why: str) -> Claim:
        """Falsified because a route had no answer: a theory that sends a solver nowhere is not confirmed."""
        return dataclasses.replace(self.judged({"no answer": math.inf}), why=why)

    def undecided(self, why: str, **details: Any) -> Claim:
        """The claim left undecided, and why."""
        return dataclasses.replace(self, verdict=Verdict.UNDECIDED, why=why, details=details)

    def out_of_scope(self, why: str) -> Claim:
        """The claim not stated for this problem, and why."""
        return dataclasses.replace(self, verdict=Verdict.OUT_OF_SCOPE, why=why)

    def proved(self, precision: str, **details: Any) -> Claim:
        """A verified claim raised to a proof for all t; any other stays what it is."""
        if self.verdict is not Verdict.VERIFIED:
            return self
        details = {**self.details, **details}
        return dataclasses.replace(self, verdict=Verdict.PROVED, precision=precision, details=details)

    def document(self) -> dict[str, Any]:
        """Strict JSON values; a number that is not finite is a text such as "inf"."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        fields |= {"scope": self.scope.value, "verdict": self.verdict.value, "margin": self.margin}
        return _strict(fields)


def _infinite_if_nan(error: Any) -> np.ndarray:
    error = np.atleast_1d(np.asarray(error, dtype=float))
    return np.where(np.isnan(error), math.inf, error)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def relative(error: Any, scale: Any = 1.0) -> np.ndarray:
    """|error| / scale, elementwise; infinite where one of them is not a number, or scale is zero.

    >>> relative([1.0, -3.0], 2.0).tolist(), relative([0.0], 0.0).tolist()
    ([0.5, 1.5], [inf])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return _infinite_if_nan(abs(np.asarray(error, dtype=float)) / scale)
