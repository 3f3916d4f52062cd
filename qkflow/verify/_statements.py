r"""Statements on the growth of mu_OV and mu_QK, in balls, in the form in which they are proved.

A statement bounds g = mu_QK by a function of X, or u = mu_OV by a function of t; `constant` is a factor c of
that X or t (1: as stated in `qkflow.flow.asymptotics`). Its inverse T, the X or time at which the bound
reaches the state, turns it into one inequality along the curve; for an upper bound

    f(h) = c X(h) - T(g)  or  c t(h) - T(u)  >= 0,

and its negative for a lower one. T(start) <= 0: it is 0 but for bounds by L, where L(e^v/v) =
log[(v - log v) e^v] + log(e/(e-1)) >= v since log v <= v/e. The sign of f' is that of a *margin*, bounded
below and above on [h1, h2], h2 possibly infinite, from values at the two ends alone:

* every part of a margin is monotone in h, u, alpha or 1 - alpha, none of which turns;
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
        margin: range of a number with the sign of f' on [h1, h2], from (line, c, h1, h2).
        below: whether it is a lower bound.
        touched: whether f(0) is exactly 0.
        lemma: what the proof rests on beyond monotone parts.
    """

    scope: Callable[[Line], bool]
    bound: Callable[[Line, arb], arb]
    inverse: Callable[[Line, arb], arb]
    margin: Callable[..., Range]
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


def _product(factor: Fraction, value: arb) -> arb:
    """factor times a value that may be infinite."""
    return arb(0) if factor == 0 else ball(factor) * value


# mu_QK: margins from h1, h2


def _exp_rise(line: Line, h: Fraction | None) -> arb:
    return INFINITY if h is None else ball(h).expm1()


def _margin_linear(line: Line, c: Fraction, h1, h2) -> Range:
    fixed = _product(c - 1, 1 + line.rho0)
    rise = ball(c) * line.rho0
    return rise * _exp_rise(line, h1) + fixed, rise * _exp_rise(line, h2) + fixed


def _margin_below_linear(line: Line, c: Fraction, h1, h2) -> Range:
    low, high = _margin_linear(line, c, h1, h2)
    return -high, -low


def _margin_log(line: Line, c: Fraction, h1, h2) -> Range:
    ends = [
        ball(c) + _product(c - 1, line.rho0 * (INFINITY if h is None else ball(h).exp())) for h in (h1, h2)
    ]
    return (ends[0], ends[1]) if c >= 1 else (ends[1], ends[0])


def _margin_secant(line: Line, c: Fraction, h1, h2) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    low, high = valley(lambda g: g.exp() / g, g1, g2, arb(1), arb(1).exp())
    last = arb(0) if h2 is None else 1 / g2
    constant = line.least_slope
    return ball(c) * (last + line.rho * low) - constant, ball(c) * (1 / g1 + line.rho * high) - constant


def _margin_root(line: Line, c: Fraction, h1, h2) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    root = arb(2).sqrt()

    def square(g):
        return g * g / 2 + g

    low, high = valley(lambda g: g.exp() / square(g), g1, g2, root, root.exp() / (1 + root))
    last = arb(0) if h2 is None else 1 / (line.rho * square(g2))
    return ball(c) * (last + low) - 1, ball(c) * (1 / (line.rho * square(g1)) + high) - 1


def _margin_saturated(line: Line, c: Fraction, h1, h2) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    low, high = psi(g1, g2)
    ends = [arb(0) if h is None else ((-g).exp() / line.rho).log1p() for h, g in ((h1, g1), (h2, g2))]
    return low + ends[1] + ball(c).log(), high + ends[0] + ball(c).log()


def _margin_exponential(line: Line, c: Fraction, h1, h2) -> Range:
    fixed = _product(c - 1, 1 + line.rho)
    ends = [INFINITY if h is None else ball(c) * line.rho * line.mu_qk(h).expm1() + fixed for h in (h1, h2)]
    return ends[0], ends[1]


# mu_OV: margins are logarithms of dt/du over dT/du


def _diffuse_share(line: Line, first: Point, last: Point) -> Range:
    """Range of log[(e^z + M - 1)/(alpha e^{alpha u})]."""
    z1, z2 = first.mu_ov * first.alpha, last.mu_ov * last.alpha
    low = arb(0) if z2 == INFINITY else (line.others * (-z2).exp()).log1p()
    return low - last.alpha.log(), (line.others * (-z1).exp()).log1p() - first.alpha.log()


def _margin_ov_below(line: Line, c: Fraction, h1, h2) -> Range:
    first, last = line.between(h1, h2)

    def part(u: arb, rest: arb, log_rise: arb) -> arb:
        if u == INFINITY:
            return INFINITY
        share = ((-rest * u).expm1() + line.others * (-u).expm1()) / line.n_classes
        faster = line.slope_ov**2 * (u - line.u0) * (u + line.u0) / (line.rescaling_ov(u) + line.r_ov0)
        return -share.log1p() + (faster / line.r_ov0).log1p() + log_rise - ball(c).log()

    return part(first.mu_ov, last.rest, first.log_rise), part(last.mu_ov, first.rest, last.log_rise)


def _margin_ov_above(line: Line, c: Fraction, h1, h2) -> Range:
    first, last = line.between(h1, h2)
    low, high = _diffuse_share(line, first, last)
    rest0 = line.start.rest
    risen = [rest0 - first.rest if h1 else arb(0), rest0 - last.rest]  # of alpha
    if not line.on:
        risen[0] = arb(0)
    return low + risen[0] * first.mu_ov + ball(c).log(), high + risen[1] * last.mu_ov + ball(c).log()


def _margin_ov_above_balanced(line: Line, c: Fraction, h1, h2) -> Range:
    first, last = line.between(h1, h2)
    low, high = psi(line.start.alpha * first.mu_ov, line.start.alpha * last.mu_ov)
    plain = _margin_ov_above(line, c, h1, h2)
    return plain[0] + low, plain[1] + high


def _margin_ov_saturated(line: Line, c: Fraction, h1, h2) -> Range:
    first, last = line.between(h1, h2)
    low, high = _diffuse_share(line, first, last)
    least = last.rest * first.mu_ov
    most = line.most_diffuse(h1)
    if h2 is not None:
        most = most.min(first.rest * last.mu_ov)
    fixed = delay(line) + ball(c).log()
    return fixed + low - most, fixed + high - least


def _margin_ov_balanced_saturated(line: Line, c: Fraction, h1, h2) -> Range:
    first, last = line.between(h1, h2)
    low, high = psi(first.mu_ov, last.mu_ov)
    plain = _margin_ov_saturated(line, c, h1, h2)
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
        _margin_ov_below,
        below=True,
    ),
    "ov_above": Form(lambda line: not line.ov_factorized, *_log_growth(_alpha0, _alpha0), _margin_ov_above),
    "ov_above_saturated": Form(
        lambda line: line.on and not line.ov_factorized,
        *_log_growth(_one, lambda line: delay(line).exp()),
        _margin_ov_saturated,
        lemma=_DIFFUSE,
    ),
    "ov_above_balanced": Form(
        lambda line: line.ov_balanced,
        *_l_growth(_alpha0, _none),
        _margin_ov_above_balanced,
        touched=False,
        lemma=_PSI,
    ),
    "ov_above_balanced_saturated": Form(
        lambda line: line.on and line.ov_balanced,
        *_l_growth(_one, delay),
        _margin_ov_balanced_saturated,
        touched=False,
        lemma=f"{_DIFFUSE}; {_PSI}",
    ),
    "qk_above_linear": Form(
        _collapsed,
        lambda line, x: line.g0 + x / (1 + line.rho0),
        lambda line, h: (1 + line.rho0) * h,
        _margin_linear,
    ),
    "qk_above_log": Form(
        _collapsed,
        lambda line, x: line.g0 + (x / line.rho0).log1p(),
        lambda line, h: line.rho0 * h.expm1(),
        _margin_log,
    ),
    "qk_above_secant": Form(
        _balanced,
        lambda line, x: line.g0 + line.a * x / line.least_slope,
        lambda line, h: line.least_slope * h / line.a,
        _margin_secant,
        lemma="A(g0) is the least secant",
    ),
    "qk_above_root": Form(
        _balanced,
        lambda line, x: -2 + ((line.g0 + 2) ** 2 + 4 * line.a * x / line.rho).sqrt(),
        lambda line, h: line.rho * h * (2 * line.g0 + 4 + h) / (4 * line.a),
        _margin_root,
        lemma="valley of e^g/(g^2/2 + g)",
    ),
    "qk_above_saturated": Form(
        _balanced,
        lambda line, x: big_l((line.g0.exp() / line.g0 + line.a * x / line.rho).log()),
        lambda line, h: line.rho / line.a * (inverse_l(line.g0 + h) - line.g0.exp() / line.g0),
        _margin_saturated,
        touched=False,
        lemma=_PSI,
    ),
    "qk_above_exponential": Form(
        _balanced,
        lambda line, x: line.g0 * (line.a * x / (1 + line.rho)).exp(),
        lambda line, h: (1 + line.rho) * (h / line.g0).log1p() / line.a,
        _margin_exponential,
    ),
    "qk_below_linear": Form(
        _collapsed,
        lambda line, x: line.g0 + x / (1 + line.rho0),
        lambda line, h: (1 + line.rho0) * h,
        _margin_below_linear,
        below=True,
    ),
}
"""By name, in the order of `growth_bounds`; last a wrong one, log^2 t as a rate."""


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
        self.sign = -1 if self.form.below else 1
        self.by_definition = name == "qk_above_secant" and constant == 1

    def margin(self, h1: Fraction, h2: Fraction | None) -> Range:
        """Range of a number with the sign of f' on [h1, h2]."""
        return self.form.margin(self.line, self.constant, h1, h2)

    def _sides(self, h: Fraction) -> tuple[arb, arb]:
        """c X or c t, and T, at h; both never fall.

        Raises:
            TooLongError: where the curve is not explicit, or time along it takes too many panels.
        """
        line = self.line
        if not line.on:
            raise TooLongError("The curve is not explicit.")
        if self.of_ov:
            return ball(self.constant) * line.clock(h), self.form.inverse(line, line.at(h).mu_ov)
        return ball(self.constant) * line.x(h), self.form.inverse(line, ball(h))

    def value(self, h: Fraction) -> arb:
        """f(h)."""
        given, needed = self._sides(h)
        return self.sign * (given - needed)

    def kept(self, h1: Fraction, h2: Fraction) -> bool:
        """Whether the two sides' values at the ends alone show f >= 0 on [h1, h2]."""
        (given1, needed1), (given2, needed2) = self._sides(h1), self._sides(h2)
        return bool(given1 >= needed2 if self.sign > 0 else needed1 >= given2)

    def beyond(self, h: Fraction) -> arb:
        """How far the state at h is beyond the bound."""
        given, _ = self._sides(h)
        state = self.line.at(h).mu_ov if self.of_ov else self.line.mu_qk(h)
        return self.sign * (state - self.form.bound(self.line, given))
