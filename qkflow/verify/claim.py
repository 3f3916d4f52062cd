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
    """An identity of symbols, or a bound with a proof."""
    VERIFIED = "verified"
    """Held numerically, within the tolerance, as far as was looked."""
    FALSIFIED = "falsified"
    """Violated by more than the tolerance, or something compared was not a number."""
    UNDECIDED = "undecided"
    """The evidence does not reach far enough to tell."""
    OUT_OF_SCOPE = "out_of_scope"
    """Not stated for this problem."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement, fixed before anything runs, and what became of it.

    Args:
        id: short identifier.
        statement: what is claimed, exactly.
        source: where it is claimed and shown: the paper, a part of the derivation, a module with the proof.
        scope: "identity", "bound", "rate" or "ordering".
        compared: which two independent routes were held against each other.
        reason: where the tolerance comes from.
        tolerance: the largest error that is accepted.
        error: the error that was found; `None` before judging and out of scope.
        verdict: what follows.
        details: where the error is largest, errors by parameterization, horizons; plain JSON values.
    """

    id: str
    statement: str
    source: str
    scope: str
    compared: str
    reason: str
    tolerance: float | None
    error: float | None = None
    verdict: Verdict = Verdict.UNDECIDED
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def judged(self, errors: Mapping[str, float], **details: Any) -> Claim:
        """The claim with its verdict: verified when every error is a number within the tolerance.

        Args:
            errors: the largest error of each part (such as a parameterization), not empty; what is not a
                number counts as infinitely wrong.
            details: further plain JSON values to keep.

        >>> claim = Claim("sum", "1 + 1 = 2", "derived", "identity", "a, b", "rounding", tolerance=1e-15)
        >>> claim.judged({"all": 0.0}).verdict, claim.judged({"all": float("nan")}).verdict
        (<Verdict.VERIFIED: 'verified'>, <Verdict.FALSIFIED: 'falsified'>)
        """
        if self.tolerance is None:
            raise ValueError(f"The claim {self.id} has no tolerance to judge by.")
        found = {part: math.inf if math.isnan(error) else float(error) for part, error in errors.items()}
        worst = max(found, key=found.__getitem__)
        verdict = Verdict.VERIFIED if found[worst] <= self.tolerance else Verdict.FALSIFIED
        return dataclasses.replace(
            self, error=found[worst], verdict=verdict, details={"worst": worst, "errors": found, **details}
        )

    def without_verdict(self, verdict: Verdict, why: str) -> Claim:
        """The claim left undecided or out of scope, and why."""
        return dataclasses.replace(self, verdict=verdict, details={"why": why})

    def document(self) -> dict[str, Any]:
        """Strict JSON values; an error that is not a finite number is the text "inf"."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return _strict(fields | {"verdict": self.verdict.value})


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def largest(error: Any, scale: Any = 1.0) -> float:
    """The largest |error| / scale, infinite when one of them is not a number.

    >>> largest([1.0, -3.0], 2.0), largest([float("nan")])
    (1.5, inf)
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.max(abs(np.asarray(error)) / scale))
    return math.inf if math.isnan(ratio) else ratio
