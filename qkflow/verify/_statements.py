r"""Statements on the growth of mu_OV and mu_QK, in balls, in the form in which they are proved.

A statement bounds g = mu_QK by a function of X, or u = mu_OV by a function of t; `constant` is a factor c of
that X or t (1: as stated in `qkflow.flow.asymptotics`). Its inverse T, the X or time at which the bound
reaches the state, turns it into one inequality along the curve; for an upper bound

    f(h) = c X(h) - T(g)  or  c t(h) - T(u)  >= 0,

and its negative for a lower one. T(start) <= 0: it is 0 but for bounds by L, where L(e^v/v) =
log[(v - log v) e^v] + log(e/(e-1)) >= v since log v <= v/e. With m = log(c dX/dT) or log(c dt/dT), ranges of
which are in `qkflow.verify._slopes`, the derivative of f is (e^m - 1) T'.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from flint import arb  # type: ignore[import-untyped]

from qkflow.flow._balls import ball
from qkflow.verify import _slopes
from qkflow.verify._line import Line
from qkflow.verify._slopes import Range
from qkflow.verify._time import Clock, TooLongError


class Form(NamedTuple):
    """A statement as it stands for every problem.

    Args:
        scope: whether it is stated for a line.
        bound: the bound as a function of c X or c t.
        inverse: T as a function of h or u.
        slope: range of log(dX/dT) or log(dt/dT) on [h1, h2], from (line, h1, h2).
        below: whether it is a lower bound.
        touched: whether f(0) is exactly 0.
        lemma: what the proof rests on beyond monotone parts.
    """

    scope: Callable[[Line], bool]
    bound: Callable[[Line, arb], arb]
    inverse: Callable[[Line, arb], arb]
    slope: Callable[[Line, Fraction, Fraction | None], Range]
    below: bool = False
    touched: bool = True
    lemma: str = "monotone parts"


def _tau(line: Line, factor: arb, t: arb) -> arb:
    return factor * line.lr_ov * t / line.b


def _log_growth(scale, factor):
    """u <= or >= log(e^{s u0} + factor eta_OV t/b) / s, and its inverse."""

    def bound(line: Line, t: arb) -> arb:
        s = scale(line)
        return line.u0 + ((-s * line.u0).exp() * _tau(line, factor(line), t)).log1p() / s

    def inverse(line: Line, u: arb) -> arb:
        s = scale(line)
        rise = (s * line.u0).exp() * (s * (u - line.u0)).expm1()
        return rise * line.b / (factor(line) * line.lr_ov)

    return bound, inverse


def _l_growth(scale, delay):
    """u <= L(e^{v0}/v0 + e^d 2 eta_OV t/sqrt b) / s, v0 = s u0, and its inverse."""

    def factor(line: Line) -> arb:
        return line.slope_ov * delay(line).exp()

    def bound(line: Line, t: arb) -> arb:
        v0 = scale(line) * line.u0
        return _slopes.big_l((v0.exp() / v0 + _tau(line, factor(line), t)).log()) / scale(line)

    def inverse(line: Line, u: arb) -> arb:
        v0 = scale(line) * line.u0
        return (_slopes.inverse_l(scale(line) * u) - v0.exp() / v0) * line.b / (factor(line) * line.lr_ov)

    return bound, inverse


def _one(line: Line) -> arb:
    return arb(1)


def _none(line: Line) -> arb:
    return arb(0)


def _alpha0(line: Line) -> arb:
    return line.start.alpha


def _collapsed(line: Line) -> bool:
    return not line.qk_factorized


def _balanced(line: Line) -> bool:
    return line.qk_balanced


_DIFFUSE = "(1 - alpha) u <= its bound from there on"
_PSI = "valley of (1 + W)/v"

FORMS = {
    "ov_below": Form(
        lambda line: True,
        *_log_growth(_one, lambda line: line.r_ov0 * line.start.alpha / line.n_classes),
        _slopes.below,
        below=True,
    ),
    "ov_above": Form(lambda line: not line.ov_factorized, *_log_growth(_alpha0, _alpha0), _slopes.above),
    "ov_above_saturated": Form(
        lambda line: line.on and not line.ov_factorized,
        *_log_growth(_one, lambda line: _slopes.delay(line).exp()),
        _slopes.above_saturated,
        lemma=_DIFFUSE,
    ),
    "ov_above_balanced": Form(
        lambda line: line.ov_balanced,
        *_l_growth(_alpha0, _none),
        _slopes.above_balanced,
        touched=False,
        lemma=_PSI,
    ),
    "ov_above_balanced_saturated": Form(
        lambda line: line.on and line.ov_balanced,
        *_l_growth(_one, _slopes.delay),
        _slopes.above_balanced_saturated,
        touched=False,
        lemma=f"{_DIFFUSE}; {_PSI}",
    ),
    "qk_above_linear": Form(
        _collapsed,
        lambda line, x: line.g0 + x / (1 + line.rho0),
        lambda line, h: (1 + line.rho0) * h,
        _slopes.linear,
    ),
    "qk_above_log": Form(
        _collapsed,
        lambda line, x: line.g0 + (x / line.rho0).log1p(),
        lambda line, h: line.rho0 * h.expm1(),
        _slopes.log,
    ),
    "qk_above_secant": Form(
        _balanced,
        lambda line, x: line.g0 + line.a * x / line.least_slope,
        lambda line, h: line.least_slope * h / line.a,
        _slopes.secant,
        lemma="A(g0) is the least secant",
    ),
    "qk_above_root": Form(
        _balanced,
        lambda line, x: -2 + ((line.g0 + 2) ** 2 + 4 * line.a * x / line.rho).sqrt(),
        lambda line, h: line.rho * h * (2 * line.g0 + 4 + h) / (4 * line.a),
        _slopes.root,
        lemma="valley of e^g/(g^2/2 + g)",
    ),
    "qk_above_saturated": Form(
        _balanced,
        lambda line, x: _slopes.big_l((line.g0.exp() / line.g0 + line.a * x / line.rho).log()),
        lambda line, h: line.rho / line.a * (_slopes.inverse_l(line.g0 + h) - line.g0.exp() / line.g0),
        _slopes.saturated,
        touched=False,
        lemma=_PSI,
    ),
    "qk_above_exponential": Form(
        _balanced,
        lambda line, x: line.g0 * (line.a * x / (1 + line.rho)).exp(),
        lambda line, h: (1 + line.rho) * (h / line.g0).log1p() / line.a,
        _slopes.exponential,
    ),
}
"""By name, in the order of `growth_bounds`."""

RATE = "qk_below_linear"
FORMS[RATE] = FORMS["qk_above_linear"]._replace(below=True)


class Statement:
    """One statement about one line.

    Args:
        name: one of `FORMS`.
        clock: time along the curve.
        constant: the factor c.
    """

    def __init__(self, name: str, clock: Clock, constant: Fraction):
        self.form, self.clock, self.line, self.constant = FORMS[name], clock, clock.line, constant
        self.of_ov = name.startswith("ov")

    def slope(self, h1: Fraction, h2: Fraction | None) -> Range:
        """Range of the logarithm of f's rising part's derivative over the other's, on [h1, h2]."""
        low, high = self.form.slope(self.line, h1, h2)
        shift = ball(self.constant).log()
        low, high = low + shift, high + shift
        return (-high, -low) if self.form.below else (low, high)

    def sides(self, h: Fraction) -> tuple[arb, arb]:
        """What f is the difference of, at h: c X or c t, and T, for a lower bound the other way round.

        Raises:
            TooLongError: where the curve is not explicit, or time along it takes too many panels.
        """
        line = self.line
        if not line.on:
            raise TooLongError("The curve is not explicit.")
        if self.of_ov:
            given, needed = self.clock(h), self.form.inverse(line, line.at(h).mu_ov)
        else:
            given, needed = line.x(h), self.form.inverse(line, ball(h))
        given *= ball(self.constant)
        return (needed, given) if self.form.below else (given, needed)

    def beyond(self, h: Fraction) -> arb:
        """How far the state at h is beyond the bound."""
        line, given = self.line, self.sides(h)[1 if self.form.below else 0]
        state = line.at(h).mu_ov if self.of_ov else line.mu_qk(h)
        beyond = state - self.form.bound(line, given)
        return -beyond if self.form.below else beyond
