r"""How fast X or t grows against the inverse T of each bound: ranges of log(dX/dT) and log(dt/dT).

On [h1, h2], where h2 may be infinite, a range follows from values at the two ends:

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

from flint import arb, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import ball
from qkflow.verify._line import INFINITY, Line, Point

Range = tuple[arb, arb]


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


def linear(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    alpha0 = line.start.alpha
    return (alpha0 * _rise(_h(h1))).log1p(), (alpha0 * _rise(_h(h2))).log1p()


def log(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    return (_decay(_h(h2)) / line.rho0).log1p(), (_decay(_h(h1)) / line.rho0).log1p()


def secant(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    low, high = valley(lambda g: g.exp() / g, g1, g2, arb(1), arb(1).exp())
    last = arb(0) if h2 is None else 1 / g2
    parts = (last + line.rho * low, 1 / g1 + line.rho * high)
    return (parts[0] / line.least_slope).log(), (parts[1] / line.least_slope).log()


def root(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    root = arb(2).sqrt()

    def square(g):
        return g * g / 2 + g

    low, high = valley(lambda g: g.exp() / square(g), g1, g2, root, root.exp() / (1 + root))
    last = arb(0) if h2 is None else 1 / (line.rho * square(g2))
    return (last + low).log(), (1 / (line.rho * square(g1)) + high).log()


def saturated(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    g1, g2 = line.mu_qk(h1), line.mu_qk(h2)
    low, high = psi(g1, g2)
    return low + (_decay(g2) / line.rho).log1p(), high + (_decay(g1) / line.rho).log1p()


def exponential(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    share = line.rho / (1 + line.rho)
    return (share * _rise(line.mu_qk(h1))).log1p(), (share * _rise(line.mu_qk(h2))).log1p()


# mu_OV: log(dt/dT)


def below(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)

    def part(state: Point, rest: arb) -> arb:
        u = state.mu_ov
        if u == INFINITY:
            return -INFINITY
        if u <= 1:  # exactly 0 at 0
            log_share = (((-rest * u).expm1() + line.others * (-u).expm1()) / line.n_classes).log1p()
        else:
            log_share = (((-rest * u).exp() + line.others * (-u).exp()) / line.n_classes).log()
        return log_share - state.log_r_ov_rise - state.log_alpha_rise

    return part(last, first.rest), part(first, last.rest)


def _share(line: Line, first: Point, last: Point) -> Range:
    """Range of log[(e^z + M - 1)/(alpha e^z)], z = alpha u."""
    rests = [(line.others * _decay(point.mu_ov * point.alpha)).log1p() for point in (last, first)]
    return rests[0] - last.alpha.log(), rests[1] - first.alpha.log()


def above(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = _share(line, first, last)
    rises = [line.start.alpha * _rise(point.log_alpha_rise) for point in (first, last)]  # of alpha
    return low + rises[0] * first.mu_ov, high + rises[1] * last.mu_ov


def above_balanced(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = psi(line.start.alpha * first.mu_ov, line.start.alpha * last.mu_ov)
    plain = above(line, h1, h2)
    return plain[0] + low, plain[1] + high


def above_saturated(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = _share(line, first, last)
    most = line.most_diffuse(h1)
    if h2 is not None:
        most = most.min(first.rest * last.mu_ov)
    return delay(line) + low - most, delay(line) + high - last.rest * first.mu_ov


def above_balanced_saturated(line: Line, h1: Fraction, h2: Fraction | None) -> Range:
    first, last = line.between(h1, h2)
    low, high = psi(first.mu_ov, last.mu_ov)
    plain = above_saturated(line, h1, h2)
    return plain[0] + low, plain[1] + high


def delay(line: Line) -> arb:
    """d of the saturated bounds."""
    a0, rest0 = line.start.alpha, line.start.rest
    r_qk = line.rescaling_qk(line.g0)
    if line.ov_factorized:
        return rest0 * line.u0 + line.slope_ov / (a0 * line.k * r_qk)
    return rest0 * line.u0 + 1 / (2 * (line.rho0 * line.k / 2 * r_qk).sqrt())
