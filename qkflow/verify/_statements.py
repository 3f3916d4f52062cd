r"""Statements on the growth of mu_OV and mu_QK, in balls, in the form in which they are proved.

A statement bounds g = mu_QK by a function of X, or u = mu_OV by a function of t; `constant` is a factor c of
that X or t (1: as stated in `qkflow.flow.asymptotics`). Its inverse T, the X or time at which the bound
reaches the state, turns it into one inequality along the curve; for an upper bound

    f(h) = c X(h) - T(g)  or  c t(h) - T(u)  >= 0,

and its negative for a lower one. T(start) <= 0: it is 0 but for bounds by L, where L(e^v/v) =
log[(v - log v) e^v] + log(e/(e-1)) >= v since log v <= v/e. With m = log(c dX/dT) or log(c dt/dT) the
derivative of f is (e^m - 1) T'. The range of m on [h1, h2], h2 possibly infinite, follows from values at the
two ends:

* every part of it is monotone in h, u, alpha or 1 - alpha, none of which turns;
* or a valley, which falls and then rises, so that its least value is at an end or at its known bottom:
  e^g/g (bottom 1), e^g/(g^2/2 + g) (bottom sqrt 2), and (1 + W)/v, W e^W = e^{v-C}, C = log(e/(e-1)), whose
  derivative has the sign of q(W) = W (C + log W - 2) - 1: -1 at W = 0, falling to e^{1-C}, then rising;
* or (1 - alpha) u, at most `Line.most_diffuse` from h1 on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from flint import arb, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import ball
from qkflow.verify._line import INFINITY, Line, Point, TooLongError

Range = tuple[arb, arb]


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


# Functions


def c_of_l() -> arb:
    """C = log(e/(e-1))."""
    return 1 - arb(1).expm1().log()


def big_l(log_y: arb) -> arb:
    """L(Y) at log Y."""
    return log_y + log_y.log() + c_of_l()


def inverse_l(v: arb) -> arb:
    """The Y at which L(Y) = v: log Y solves W e^W = e^{v-C}."""
    return (v - c_of_l()).exp().lambertw().exp()


def valley(f: Callable[[arb], arb], first: arb, last: arb, bottom: arb, least: arb) -> Range:
    """Range of a function that falls to its bottom and then rises."""
    highest = INFINITY if last == INFINITY else f(first).max(f(last))
    if first >= bottom:
        return f(first), highest
    return (f(last) if last <= bottom else least), highest


@functools.cache
def _bottom_of_psi(_precision: int) -> Range:
    """The v at which psi is least, as a ball, and a lower bound of psi there."""

    def q(w: Fraction) -> arb:
        return ball(w) * (c_of_l() + ball(w).log() - 2) - 1

    low, high = Fraction(5), Fraction(6)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if q(middle) < 0 else (low, middle)
    if not (q(low) < 0 and q(high) > 0):
        raise ArithmeticError("The bottom of psi is not between 5 and 6 at this precision.")
    w = ball(low).union(ball(high))
    v = w + w.log() + c_of_l()
    return v, ((1 + w) / v).log() + c_of_l()


def psi(first: arb, last: arb) -> Range:
    """Range of log[(1 + W) e^C / v]: how much faster e^v/v grows than the inverse of L, a valley."""

    def value(v: arb) -> arb:
        w = (v - c_of_l()).exp().lambertw()
        return w.log1p() + c_of_l() - v.log()

    bottom, least = _bottom_of_psi(ctx.prec)
    return valley(value, first, last, bottom, least)


# mu_QK: log(dX/dT)


def _decay(x: arb) -> arb:
    """e^-x, 0 at infinity."""
    return arb(0) if x == INFINITY else (-x).exp()


def _rise(x: arb) -> arb:
    """e^x - 1, infinite at infinity."""
    return INFINITY if x == INFINITY else x.expm1()


def _h(h: Fraction | None) -> arb:
    return INFINITY if h is None else ball(h)


def _slope_linear(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    alpha0 = line.start.alpha
    return (alpha0 * _rise(_h(h1))).log1p(), (alpha0 * _rise(_h(h2))).log1p()


def _slope_log(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    return (_decay(_h(h2)) / line.rho0).log1p(), (_decay(_h(h1)) / line.rho0).log1p()


def _slope_secant(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    low, high = valley(lambda g: g.exp() / g, g1, g2, arb(1), arb(1).exp())
    last = arb(0) if h2 is None else 1 / g2
    return ((last + line.rho * low) / line.least_slope).log(), (
        (1 / g1 + line.rho * high) / line.least_slope
    ).log()


def _slope_root(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    root = arb(2).sqrt()

    def square(g):
        return g * g / 2 + g

    low, high = valley(lambda g: g.exp() / square(g), g1, g2, root, root.exp() / (1 + root))
    last = arb(0) if h2 is None else 1 / (line.rho * square(g2))
    return (last + low).log(), (1 / (line.rho * square(g1)) + high).log()


def _slope_saturated(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    low, high = psi(g1, g2)
    return low + (_decay(g2) / line.rho).log1p(), high + (_decay(g1) / line.rho).log1p()


def _slope_exponential(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    share = line.rho / (1 + line.rho)
    return (share * _rise(line.mu_qk(h1))).log1p(), (share * _rise(line.mu_qk(h2))).log1p()


# mu_OV: log(dt/dT)


def _slope_below(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)

    def part(u: arb, rest: arb, log_rise: arb) -> arb:
        if u == INFINITY:
            return -INFINITY
        share = ((-rest * u).expm1() + line.others * (-u).expm1()) / line.n_classes
        faster = line.slope_ov**2 * (u - line.u0) * (u + line.u0) / (line.rescaling_ov(u) + line.r_ov0)
        return share.log1p() - (faster / line.r_ov0).log1p() - log_rise

    return part(last.mu_ov, first.rest, last.log_rise), part(first.mu_ov, last.rest, first.log_rise)


def _share(line: Line, first: Point, last: Point) -> Range:
    """Range of log[(e^z + M - 1)/(alpha e^z)], z = alpha u."""
    rests = [(line.others * _decay(point.mu_ov * point.alpha)).log1p() for point in (last, first)]
    return rests[0] - last.alpha.log(), rests[1] - first.alpha.log()


def _slope_above(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = _share(line, first, last)
    alpha0 = line.start.alpha
    return low + alpha0 * _rise(first.log_rise) * first.mu_ov, high + alpha0 * _rise(
        last.log_rise
    ) * last.mu_ov


def _slope_above_balanced(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = psi(line.start.alpha * first.mu_ov, line.start.alpha * last.mu_ov)
    plain = _slope_above(line, h1, h2)
    return plain[0] + low, plain[1] + high


def _slope_above_saturated(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = _share(line, first, last)
    most = line.most_diffuse(h1)
    if h2 is not None:
        most = most.min(first.rest * last.mu_ov)
    return delay(line) + low - most, delay(line) + high - last.rest * first.mu_ov


def _slope_above_balanced_saturated(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = psi(first.mu_ov, last.mu_ov)
    plain = _slope_above_saturated(line, h1, h2)
    return plain[0] + low, plain[1] + high


def delay(line: Line) -> arb:
    """d of the saturated bounds."""
    a0, rest0 = line.start.alpha, line.start.rest
    r_qk = line.rescaling_qk(line.g0)
    if line.ov_factorized:
        return rest0 * line.u0 + line.slope_ov / (a0 * line.k * r_qk)
    return rest0 * line.u0 + 1 / (2 * (line.rho0 * line.k / 2 * r_qk).sqrt())


# the statements


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
        return big_l((v0.exp() / v0 + _tau(line, factor(line), t)).log()) / scale(line)

    def inverse(line: Line, u: arb) -> arb:
        v0 = scale(line) * line.u0
        return (inverse_l(scale(line) * u) - v0.exp() / v0) * line.b / (factor(line) * line.lr_ov)

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
        _slope_below,
        below=True,
    ),
    "ov_above": Form(lambda line: not line.ov_factorized, *_log_growth(_alpha0, _alpha0), _slope_above),
    "ov_above_saturated": Form(
        lambda line: line.on and not line.ov_factorized,
        *_log_growth(_one, lambda line: delay(line).exp()),
        _slope_above_saturated,
        lemma=_DIFFUSE,
    ),
    "ov_above_balanced": Form(
        lambda line: line.ov_balanced,
        *_l_growth(_alpha0, _none),
        _slope_above_balanced,
        touched=False,
        lemma=_PSI,
    ),
    "ov_above_balanced_saturated": Form(
        lambda line: line.on and line.ov_balanced,
        *_l_growth(_one, delay),
        _slope_above_balanced_saturated,
        touched=False,
        lemma=f"{_DIFFUSE}; {_PSI}",
    ),
    "qk_above_linear": Form(
        _collapsed,
        lambda line, x: line.g0 + x / (1 + line.rho0),
        lambda line, h: (1 + line.rho0) * h,
        _slope_linear,
    ),
    "qk_above_log": Form(
        _collapsed,
        lambda line, x: line.g0 + (x / line.rho0).log1p(),
        lambda line, h: line.rho0 * h.expm1(),
        _slope_log,
    ),
    "qk_above_secant": Form(
        _balanced,
        lambda line, x: line.g0 + line.a * x / line.least_slope,
        lambda line, h: line.least_slope * h / line.a,
        _slope_secant,
        lemma="A(g0) is the least secant",
    ),
    "qk_above_root": Form(
        _balanced,
        lambda line, x: -2 + ((line.g0 + 2) ** 2 + 4 * line.a * x / line.rho).sqrt(),
        lambda line, h: line.rho * h * (2 * line.g0 + 4 + h) / (4 * line.a),
        _slope_root,
        lemma="valley of e^g/(g^2/2 + g)",
    ),
    "qk_above_saturated": Form(
        _balanced,
        lambda line, x: big_l((line.g0.exp() / line.g0 + line.a * x / line.rho).log()),
        lambda line, h: line.rho / line.a * (inverse_l(line.g0 + h) - line.g0.exp() / line.g0),
        _slope_saturated,
        touched=False,
        lemma=_PSI,
    ),
    "qk_above_exponential": Form(
        _balanced,
        lambda line, x: line.g0 * (line.a * x / (1 + line.rho)).exp(),
        lambda line, h: (1 + line.rho) * (h / line.g0).log1p() / line.a,
        _slope_exponential,
    ),
}
"""By name, in the order of `growth_bounds`."""

RATE = "qk_below_linear"
FORMS[RATE] = FORMS["qk_above_linear"]._replace(below=True)


class Statement:
    """One statement about one line.

    Args:
        name: one of `FORMS`.
        line: the curve.
        constant: the factor c.
    """

    def __init__(self, name: str, line: Line, constant: Fraction):
        self.form, self.line, self.constant = FORMS[name], line, constant
        self.of_ov = name.startswith("ov")
        self.by_definition = name == "qk_above_secant" and constant == 1

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
            given, needed = line.clock(h), self.form.inverse(line, line.at(h).mu_ov)
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
