"""Certified solutions: the state at given losses, times, log times or attention masses, as balls.

A ball is a midpoint and a radius, and holds the exact value. The question's place w on the curve
(`qkflow.flow._balls`) is enclosed by two sign tests of an increasing function, the state is a formula there,
and Y and t are quadratures with proved errors (`qkflow.flow._panels`). Numbers are read exactly: strings,
ints and `Fraction`s as what they say, a float as its binary value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import Curve, State, ball, working
from qkflow.flow._panels import DISC, Panel, Trail, Unresolved
from qkflow.flow.observe import the_target
from qkflow.setting import ArgumentError, Number, Problem, exact
from qkflow.trajectory import SCHEMA, describe, provenance

RADIUS = Fraction(1, 10**20)
"""Largest relative radius of a ball."""
FIELDS = ("t", "log_t", "mu_ov", "mu_qk", "alpha", "log_one_minus_alpha", "loss", "log_loss", "z")
BITS = (128, 192, 288, 448, 672, 1008, 1512, 2304, 3456, 5184)
"""Precisions that are tried in turn."""
MOST_STEPS = 200
"""Of a root search."""


@dataclasses.dataclass(frozen=True)
class Certificate:
    """States of one layer, each number a ball (`flint.arb`) that is proved to hold the exact value.

    Fields are those of `qkflow.Trajectory` and `z`, each a tuple over the targets in the order asked. A field
    that the question fixes is the target itself. At t = 0, `log_t` is -inf.

    Args:
        problem: what was solved.
        bits: working precision of each point.
    """

    problem: Problem
    bits: tuple[int, ...]
    t: tuple[Any, ...]
    log_t: tuple[Any, ...]
    mu_ov: tuple[Any, ...]
    mu_qk: tuple[Any, ...]
    alpha: tuple[Any, ...]
    log_one_minus_alpha: tuple[Any, ...]
    loss: tuple[Any, ...]
    log_loss: tuple[Any, ...]
    z: tuple[Any, ...]
    method: str = dataclasses.field(default="certify", init=False)

    def document(self) -> dict[str, Any]:
        """The strict-JSON document: every number as `decimal` gives it, null for -inf."""
        c = self.problem.exact_constants
        points = [{name: decimal(getattr(self, name)[k]) for name in FIELDS} for k in range(len(self.t))]
        return {
            "schema": SCHEMA,
            "setting": describe(self.problem),
            "exact": {name: str(value) for name, value in c._asdict().items()},
            "method": self.method,
            "options": {"largest_relative_radius": "1e-20"},
            "seeds": [],
            "stats": {"bits": list(self.bits)},
            "points": points,
            **(provenance() | {"device": "cpu", "dtype": "balls"}),
        }

    def table(self) -> str:
        """The points one below the other, each number with 25 digits and the radius of its ball."""
        blocks = []
        for k, bits in enumerate(self.bits):
            lines = [f"point {k + 1} of {len(self.bits)}, {bits} bits"]
            for name in FIELDS:
                number = decimal(getattr(self, name)[k], digits=25)
                shown = "-inf" if number is None else f"{number['mid']} +- {number['radius']}"
                lines.append(f"  {name:<20}{shown}")
            blocks.append("\n".join(lines))
        return "\n".join(blocks)


def decimal(number: arb, digits: int = 60) -> dict[str, str] | None:
    """A ball as decimal strings: the interval mid +- radius holds the ball, so also the rounding of mid.

    Args:
        number: the ball.
        digits: of mid, at most.

    >>> decimal(arb(1) / 4), decimal(arb(2), digits=5)
    ({'mid': '0.25', 'radius': '0'}, {'mid': '2', 'radius': '0'})
    """
    if not number.is_finite():
        return None
    mid, radius, exponent = (int(v) for v in number.mid_rad_10exp(digits + 5))
    if radius:  # what is smaller than the radius says nothing
        digits = min(digits, max(1, len(str(abs(mid))) - len(str(radius)) + 3))
    lost = max(0, len(str(abs(mid))) - digits)
    rounded = (2 * mid + 10**lost) // (2 * 10**lost)
    radius += abs(mid - rounded * 10**lost)
    spare = max(0, len(str(radius)) - 3)
    upwards = -(-radius // 10**spare)
    return {"mid": _text(rounded, exponent + lost), "radius": _text(upwards, exponent + spare)}


def _text(whole: int, exponent: int) -> str:
    """whole 10^exponent in scientific or, near 1, plain notation."""
    if whole == 0:
        return "0"
    sign, digits = "-" * (whole < 0), str(abs(whole))
    exponent += len(digits) - 1
    digits = digits.rstrip("0")
    if -5 <= exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    if 0 <= exponent < 16:
        digits = digits.ljust(exponent + 1, "0")
        head, tail = digits[: exponent + 1], digits[exponent + 1 :]
        return f"{sign}{head}.{tail}" if tail else f"{sign}{head}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}e{exponent}"


def certify(
    problem: Problem | None = None,
    *,
    at_loss: Any = None,
    at_time: Any = None,
    at_log_time: Any = None,
    at_attention: Any = None,
) -> Certificate:
    """The state where a loss, a time or an attention mass is reached, enclosed in balls.

    Every ball has a relative radius of at most 1e-20 (0 where the value is 0). Precision is raised until that
    is so.

    Args:
        problem: one layer, of plain numbers; `None` is the paper's, `Problem()`.
        at_loss: cross-entropies, a number (int, float, `Fraction`, or a string such as "1e-4") or several.
        at_time: times, likewise.
        at_log_time: natural logarithms of times, likewise.
        at_attention: attention masses on distinct tokens, likewise.

    Raises:
        ArgumentError: unless exactly one target is given; for a question without an answer; for arrays.
        ArithmeticError: when no tried precision is enough.

    >>> point = certify(Problem(), at_loss="1e-4")
    >>> print(point.mu_qk[0].str(20, radius=False))
    2.6711391443259672308
    """
    kind, given = the_target(loss=at_loss, time=at_time, log_time=at_log_time, attention=at_attention)
    problem = Problem() if problem is None else problem
    values = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    points = [_certified(problem, kind, _target(kind, value)) for value in values]
    columns = {name: tuple(point[1][name] for point in points) for name in FIELDS}
    return Certificate(problem, tuple(point[0] for point in points), **columns)


def _target(kind: str, value: Number) -> Fraction | float:
    """The exact target; -inf for a log time that is the start's."""
    number = exact(value)
    try:
        number = number if isinstance(number, int | Fraction) else float(number)
        target = number if number == -math.inf else Fraction(number)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"Argument `at_{kind}` must be a finite number, but is {value!r}.") from None
    if kind != "log_time" and not (target > 0 or (kind == "time" and target == 0)):
        what = "at least 0" if kind == "time" else "positive"
        raise ArgumentError(f"Argument `at_{kind}` must be {what}, but is {value}.")
    if kind == "attention" and target >= 1:
        raise ArgumentError(f"Argument `at_attention` must be below 1, but is {value}.")
    return target


def _certified(problem: Problem, kind: str, target: Fraction | float) -> tuple[int, dict[str, arb]]:
    """The bits that were needed, and the fields."""
    if target == -math.inf or (kind == "time" and target == 0) or _starts_there(problem, kind, target):
        return _narrowed(lambda: _start(Curve(problem)), problem)
    goal = Fraction(target)
    return _narrowed(lambda: _answer(Curve(problem), kind, goal), problem)


def _starts_there(problem: Problem, kind: str, target: Fraction | float) -> bool:
    """Whether the target is the start's attention mass; only mu_QK = 0 makes that a rational number."""
    c = problem.exact_constants
    if kind != "attention" or c.mu_qk_0 != 0:
        return False
    return target == Fraction(c.n_distinct) / Fraction(c.n_distinct + c.n_common)


def _narrowed(answer: Any, problem: Problem) -> tuple[int, dict[str, arb]]:
    """An answer by the first precision whose balls are small enough."""
    for bits in BITS:
        with working(bits):
            try:
                fields = answer()
            except Unresolved:
                continue
            if all(_small(fields[name]) for name in FIELDS):
                return bits, fields
    raise ArithmeticError(
        f"No precision up to {BITS[-1]} bits encloses the answer to 1e-20; is the target the start's?"
    )


def _small(number: arb) -> bool:
    if not number.is_finite():
        return number == arb.neg_inf()
    # half of it: writing a ball as decimals widens it a little
    return bool(number.is_exact() or number.rad() * 2 <= abs(number).lower() * ball(RADIUS))


def _start(curve: Curve) -> dict[str, arb]:
    z, rest = curve.z_0, curve.rest_0
    loss = ((curve.M - 1) * (-z).exp()).log1p()
    return dict(
        t=arb(0),
        log_t=arb.neg_inf(),
        mu_ov=curve.mu_ov_0,
        mu_qk=curve.mu_qk_0,
        alpha=curve.alpha_0,
        log_one_minus_alpha=rest.log(),
        loss=loss,
        log_loss=loss.log(),
        z=z,
    )


class Question(NamedTuple):
    """What is asked for, as a measure of the state that increases from 0 at the start."""

    kind: str
    goal: arb

    def measured(self, state: State) -> tuple[arb, arb]:
        """The measure of a state and its derivative by w; not for times."""
        if self.kind == "loss":
            return state.z_rise, state.d_z
        return state.gap, state.d_gap


def _question(curve: Curve, kind: str, target: Fraction) -> Question:
    value = ball(target)
    if kind == "loss":
        goal, what = ((curve.M - 1) / value.expm1()).log() - curve.z_0, "at most the start's"
    elif kind == "attention":
        goal, what = (value / (1 - value) / curve.odds_0).log(), "at least the start's"
    elif kind == "log_time":
        return Question(kind, value.exp())
    else:
        return Question(kind, value)
    if goal < 0:
        start = decimal(_start(curve)["loss" if kind == "loss" else "alpha"])
        assert start is not None
        raise ArgumentError(
            f"Argument `at_{kind}` must be {what} ({start['mid'][:22]}), but is {_shown(target)}."
        )
    if not goal > 0:
        raise Unresolved("the target cannot be told from the start's")
    return Question(kind, goal)


def _shown(target: Fraction) -> str:
    number = decimal(ball(target))
    assert number is not None
    return number["mid"]


def _answer(curve: Curve, kind: str, target: Fraction) -> dict[str, arb]:
    """The fields at a target after the start."""
    question = _question(curve, kind, target)
    first = arb(1)
    while True:  # until the first panel is not much wider than the way to the answer
        trail = Trail(curve, first)
        find = _find_time if kind in ("time", "log_time") else _find_state
        found = find(trail, question)
        way = trail.panels[0].end
        if not found < way / (2 * DISC):
            break
        first = arb((found * DISC).mid())
    state = trail.state(found)
    t = question.goal if find is _find_time else _time_at(trail, found, state)
    return _fields(curve, kind, target, state, t)


def _fields(curve: Curve, kind: str, target: Fraction, state: State, t: arb) -> dict[str, arb]:
    loss = ((curve.M - 1) * (-state.z).exp()).log1p()
    fields = dict(
        t=t,
        log_t=t.log(),
        mu_ov=state.mu_ov,
        mu_qk=state.mu_qk,
        alpha=state.alpha,
        log_one_minus_alpha=-state.odds.log1p(),
        loss=loss,
        log_loss=loss.log(),
        z=state.z,
    )
    value = ball(target)
    if kind == "loss":
        fields |= dict(loss=value, log_loss=value.log(), z=((curve.M - 1) / value.expm1()).log())
    elif kind == "attention":
        odds = target / (1 - target)  # in rational numbers, so that mu_QK = 0 is exactly that
        mu_qk = ball(odds / curve.exact_rho).log()
        fields |= dict(alpha=value, log_one_minus_alpha=-ball(odds).log1p(), mu_qk=mu_qk)
    elif kind == "time":
        fields |= dict(t=value, log_t=value.log())
    else:
        fields |= dict(t=value.exp(), log_t=value)
    return fields


def _find_state(trail: Trail, question: Question) -> arb:
    """The ball of w at which the state has the question's measure."""
    low, high = arb(0), trail.lay().end
    while not question.measured(trail.state(high))[0] > question.goal:
        low, high = high, trail.lay().end
    return _root(lambda w: question.measured(trail.state(w)), question.goal, low, high)


def _find_time(trail: Trail, question: Question) -> arb:
    """The ball of w at which t is the question's."""
    clock = trail.clock(question.goal)
    while True:
        panel = clock.advance()
        at_end, _ = _time(trail.curve, panel, panel.end)
        if at_end > question.goal:
            break
    return _root(lambda w: _time(trail.curve, panel, w), question.goal, panel.start, panel.end)


def _time(curve: Curve, panel: Panel, w: arb) -> tuple[arb, arb]:
    if not panel.holds(w) or panel.time is None:
        raise Unresolved("the root is too near a panel's end")
    x = w - panel.centre
    return panel.time(x), curve.state(w, panel.area(x)).d_t


def _time_at(trail: Trail, w: arb, state: State) -> arb:
    """t at w, where the curve is at `state`."""
    # About t, to choose where the quadrature begins; the answer's radius shows whether it was early enough.
    parts = [state.d_t * w / (1 + w * state.d_z)]
    parts += [trail.state(p.centre).d_t * (p.end - p.start) for p in trail.panels if p.end < w]
    clock = trail.clock(arb(max(part.mid() for part in parts)))
    end = arb(w.upper())
    while True:
        panel = clock.advance(end)
        if panel.end > end:
            return _time(trail.curve, panel, w)[0]


def _root(f: Any, goal: arb, low: arb, high: arb) -> arb:
    """A ball that holds the w in [low, high] (or just beyond) at which the increasing f is `goal`."""
    w = high
    for _ in range(MOST_STEPS):
        value, slope = f(w)
        value, slope = value.mid(), slope.mid()
        if value < goal.mid():
            low = w
        else:
            high = w
        # Newton's step in log w for log f: almost straight in a first panel
        grade = slope * w / value
        step = (goal.mid() / value).log() / grade
        new = (w * step.exp()).mid() if abs(step) < 50 else arb(0)
        if not (low < new and new < high):
            new = ((low + high) / 2).mid()
        done = abs(new - w) <= w * arb(2) ** -((_bits() - 8) // 2) and abs(step) < 1
        w = new
        if done:
            break
    value, slope = f(w)
    doubt = (value.rad() + goal.rad() + abs(value.mid() - goal.mid())) / (slope * w) + arb(2) ** (8 - _bits())
    for _ in range(6):
        width = (doubt * w).mid()
        below, above = (w - width).mid(), (w + width).mid()
        if f(below)[0] < goal and f(above)[0] > goal:
            return below.union(above)
        doubt *= 4
    raise Unresolved("no sign is certain around the root")


def _bits() -> int:
    return ctx.prec
