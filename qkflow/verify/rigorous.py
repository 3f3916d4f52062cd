r"""Bounds on the growth of mu_OV and mu_QK, proved or refuted for all t >= 0 by ball arithmetic.

`prove` takes the bounds of `qkflow.flow.asymptotics` with the problem's exact numbers and, for each, cuts the
curve 0 <= h = mu_QK - mu_QK(0) < infinity into intervals, from the start on. With f the statement in its
inverse form (`qkflow.verify._statements`), f >= 0 holds on an interval

* when it holds at the left end and a ball says that f' >= 0 on all of it. The last interval, [h, infinity),
  is like the others: its ranges go from the value at h to a limit;
* or when f at the left end outweighs the steepest fall that the range of f' allows up to the right end.

It does not hold at a point where a ball says f < 0, nor right after a start that the bound touches when
f' < 0 on [0, h]. An interval with neither is cut; when the allowance is used up the precision is raised, to
twice and eight times the first, and then the statement is undecided. X, mu_OV and all bounds are explicit;
time, which is needed only where f' does not decide, is enclosed by Taylor panels. Nothing here is judged with
a tolerance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from flint import arb  # type: ignore[import-untyped]

from qkflow.flow._balls import ball, working
from qkflow.flow.certify import decimal
from qkflow.setting import ArgumentError, Problem, exact
from qkflow.verify._line import Line
from qkflow.verify._statements import FORMS, RATE, Statement
from qkflow.verify._time import Clock, TooLongError

_SHARP = Fraction(1, 2**24)  # of a crossing's place, relative

_TOUCHED = 1 + Fraction(1, 2**10)
"""The factor with which balls judge the secant bound as it is stated.

It is touched where the secant's slope is least, by the definition of A(g0); that it holds follows from the
lemma in `Line.least_slope`. No ball can show a touch, but balls show that A is at most so much too large.
"""


@dataclasses.dataclass(frozen=True)
class Place:
    """A place on the curve, in balls.

    Args:
        mu_qk: mu_QK.
        mu_ov: mu_OV.
        log_t: log t, to nine digits or more, -inf at the start; `None` where time along the curve takes too
            long to enclose.
    """

    mu_qk: arb
    mu_ov: arb
    log_t: arb | None

    def document(self) -> dict[str, Any]:
        """Strict JSON values."""
        return {
            "mu_qk": decimal(self.mu_qk),
            "mu_ov": decimal(self.mu_ov),
            "log_t": None if self.log_t is None else decimal(self.log_t),
        }


@dataclasses.dataclass(frozen=True)
class Violation:
    """The first violation of a statement.

    Args:
        at: where it fails.
        by: how far the state is beyond the bound there, in units of the state; positive. `None` where that
            needs a time too long to enclose.
        kept_to: up to where it was proved; the first crossing lies between the two.
        at_once: whether it fails at all t > 0 up to `at`; `kept_to` is then the start.
    """

    at: Place
    by: arb | None
    kept_to: Place
    at_once: bool


@dataclasses.dataclass(frozen=True)
class Proof:
    """What was shown about one statement.

    Args:
        name: the bound, as in `growth_bounds`.
        constant: the factor of X or t at which it was judged; 1 is the bound as stated.
        verdict: "proved" for all t >= 0, "refuted", or "undecided".
        lemma: what the proof rests on besides monotone parts; see `qkflow.verify._statements`.
        intervals: how many intervals were looked at.
        bits: the precision that sufficed, or was tried last.
        violation: where a refuted statement fails first.
        why: why it is undecided.
    """

    name: str
    constant: Fraction
    verdict: str
    lemma: str
    intervals: int
    bits: int
    violation: Violation | None = None
    why: str = ""

    def document(self) -> dict[str, Any]:
        """Strict JSON values; balls as decimal strings, null where infinite or not known."""
        plain = dataclasses.asdict(dataclasses.replace(self, violation=None)) | {
            "constant": str(self.constant)
        }
        if self.violation is not None:
            found = self.violation
            plain["violation"] = {
                "at": found.at.document(),
                "by": None if found.by is None else decimal(found.by),
                "kept_to": found.kept_to.document(),
                "at_once": found.at_once,
            }
        return plain


def prove(
    problem: Problem,
    names: Iterable[str] | None = None,
    *,
    constant: Any = 1,
    intervals: int = 2000,
    bits: int = 128,
) -> dict[str, Proof]:
    """Prove or refute bounds for all t >= 0.

    Args:
        problem: an unbatched problem with concrete numbers.
        names: which bounds, and possibly `RATE`; `None` takes every bound of `growth_bounds`. Those that are
            not stated for the problem are left out.
        constant: the factor of X (mu_QK) or t (mu_OV) to judge the bounds with; str, int and Fraction are
            exact.
        intervals: how many intervals may be looked at for a bound at one precision.
        bits: the precision to begin with; twice and eight times as much follow where it does not decide.

    Returns:
        A proof for each bound in scope, in the order of `growth_bounds`.

    Raises:
        ArgumentError: for an unknown name or a constant that is not positive.

    >>> [proof.verdict for proof in prove(Problem()).values()]
    ['proved', 'proved', 'proved', 'proved', 'proved']
    >>> halved = prove(Problem(), ["qk_above_linear"], constant="1/2")["qk_above_linear"]
    >>> halved.verdict, halved.violation.at_once
    ('refuted', True)
    """
    wanted = set(FORMS) - {RATE} if names is None else set(names)
    if wanted - set(FORMS):
        unknown = min(wanted - set(FORMS))
        raise ArgumentError(f"Argument `names` must be among {', '.join(FORMS)}, but is {unknown!r}.")
    try:
        factor = Fraction(exact(constant))
    except (ValueError, OverflowError, TypeError, ZeroDivisionError):
        factor = Fraction(0)
    if factor <= 0:
        raise ArgumentError(f"Argument `constant` must be a positive number, but is {constant!r}.")
    proofs: dict[str, Proof] = {}
    for step in (1, 2, 8):
        with working(step * bits):
            clock = Clock(Line(problem))
            for name, form in FORMS.items():
                open_ = name not in proofs or proofs[name].verdict == "undecided"
                if name in wanted and open_ and form.scope(clock.line):
                    weaker = _TOUCHED if name == "qk_above_secant" and factor == 1 else factor
                    proof = _decide(name, Statement(name, clock, weaker), intervals, step * bits)
                    proofs[name] = dataclasses.replace(proof, constant=factor)
    return proofs


def _decide(name: str, statement: Statement, allowance: int, bits: int) -> Proof:
    """Look from the start on; everything left of the interval in hand is proved."""

    def found(verdict: str, violation: Violation | None = None, why: str = "") -> Proof:
        lemma = statement.form.lemma
        return Proof(name, statement.constant, verdict, lemma, looked, bits, violation, why)

    looked = 0
    proved_to, failed_at = Fraction(0), None
    stack: list[tuple[Fraction, Fraction | None]] = [(Fraction(0), None)]
    while stack and looked < allowance:
        h1, h2 = stack.pop()
        looked += 1
        low, high = statement.slope(h1, h2)
        if low >= 0:
            if h2 is None:
                return found("proved")
            proved_to = h2
            continue
        falling = bool(high < 0)
        if falling and h1 == 0 and h2 is not None and statement.form.touched and statement.line.on:
            return found("refuted", _violation(statement, h1, h2, at_once=True))
        if h2 is not None and (falling or (h2 - h1) * 8 < h2):
            try:
                (more1, less1), (more2, less2) = statement.sides(h1), statement.sides(h2)
                if more2 - less2 < 0:
                    failed_at = h2
                    if h2 - h1 <= _SHARP * h2:
                        break
                elif more1 - less1 + low.expm1() * (less2 - less1) >= 0:  # low < 0 or undetermined
                    proved_to = h2
                    continue
            except TooLongError as why:
                return found("undecided", why=f"proved up to h = {float(h1):.6g}. {why}")
        middle = _between(h1, h2)
        stack += [(middle, h2), (h1, middle)]
    if failed_at is not None:
        return found("refuted", _violation(statement, proved_to, failed_at))
    return found("undecided", why=f"{looked} intervals prove it only up to h = {float(proved_to):.6g}")


def _between(h1: Fraction, h2: Fraction | None) -> Fraction:
    """A dyadic number inside an interval, geometrically in the middle of a wide one."""
    if h2 is None:
        return 2 * h1 if h1 else Fraction(1)
    if h1 == 0:
        return h2 / 16
    octaves = (h2 / h1).numerator.bit_length() - (h2 / h1).denominator.bit_length()
    return h1 * 2 ** (octaves // 2) if octaves > 2 else (h1 + h2) / 2


def _violation(statement: Statement, h1: Fraction, h2: Fraction, at_once: bool = False) -> Violation:
    clock = statement.clock
    try:
        by = statement.beyond(h2)
    except TooLongError:
        by = None
    return Violation(_place(clock, h2), by, _place(clock, h1), at_once)


def _place(clock: Clock, h: Fraction) -> Place:
    try:
        log_t = clock(h).log() if h else arb.neg_inf()
    except TooLongError:
        log_t = None
    return Place(clock.line.mu_qk(h), clock.line.at(h).mu_ov, log_t)


def bound_balls(problem: Problem, log_t: Any, mu_ov: Any = None, *, bits: int = 128) -> dict[str, arb | None]:
    """Every bound of `growth_bounds` in a ball, at one time and state.

    Args:
        problem: an unbatched problem with concrete numbers.
        log_t: natural logarithm of a time, exact (int, float, str, Fraction) or a ball.
        mu_ov: mu_OV there, likewise; `None` leaves out the bounds of mu_QK.
        bits: the working precision.

    Returns:
        The bounds by name; `None` where one is not stated for the problem.

    >>> bounds = bound_balls(Problem(), 10)
    >>> round(float(bounds["ov_below"].mid()), 12)
    1.099413961025
    """
    with working(bits):
        line = Line(problem)
        t = _ball(log_t).exp()
        found: dict[str, arb | None] = {}
        for name, form in FORMS.items():
            if name == RATE or (mu_ov is None and name.startswith("qk")):
                continue
            if not form.scope(line):
                found[name] = None
            else:
                found[name] = form.bound(line, t if name.startswith("ov") else line.x_of(_ball(mu_ov)))
        return found


def _ball(number: Any) -> arb:
    return number if isinstance(number, arb) else ball(exact(number))
