r"""The trajectory of the reduced flow in balls, as a curve in h = mu_QK - mu_QK(0).

With g = mu_QK = g0 + h, u = mu_OV, rho0 = rho e^{g0} and a = 2 sqrt(b Q) / beta (R_QK = a g of balanced
factors), the first integral makes everything explicit in h:

    X = h + rho0 (e^h - 1)                             collapsed QK circuit
    X = [log(g/g0) + rho (Ei g - Ei g0)] / a           balanced QK circuit, infinite common vocabulary
    u = sqrt(u0^2 + 2 X/k)                             collapsed OV circuit
    R_OV(u) = R_OV(u0) + 4 b X/k                       factorized OV circuit, R_OV^2 = lambda^2 + 4 b u^2

Numbers of the problem enter exactly (a float by its binary value), h is a dyadic fraction, every other number
is a ball at the precision in force.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import Curve, ball
from qkflow.setting import Problem

INFINITY = arb.pos_inf()


class Point(NamedTuple):
    """A state, with what R_OV and alpha have risen by, exactly 0 at the start."""

    mu_ov: arb
    alpha: arb
    rest: arb  # 1 - alpha
    log_alpha_rise: arb  # log(alpha/alpha(0))
    log_r_ov_rise: arb  # log(R_OV/R_OV(0))


class Line:
    """The curve of one problem, at the precision in force when it is made.

    Args:
        problem: an unbatched problem with concrete numbers.

    Attributes:
        on: whether the curve is explicit. Where it is not (two amplitudes, imbalance of QK) h stands for
            mu_OV - mu_OV(0), and alpha is only known to lie between alpha(0) and 1.
    """

    def __init__(self, problem: Problem):
        kind, c, curve = problem.parameterization, problem.exact_constants, Curve(problem)
        self.problem = problem
        self.qk_factorized, self.ov_factorized = kind.qk_factorized, kind.ov_factorized
        self.qk_balanced = kind.qk_factorized and c.imbalance_qk == 0 and c.n_common_vocab == math.inf
        self.ov_balanced = kind.ov_factorized and c.imbalance_ov == 0
        self.on = not kind.qk_factorized or self.qk_balanced
        self.n_classes, self.others, self.b = curve.M, curve.M - 1, curve.b
        self.rho, self.rho0, self.lr_ov = curve.rho, curve.odds_0, curve.lr_ov
        self.g0, self.u0 = curve.mu_qk_0, curve.mu_ov_0
        self.k = curve.k * curve.line_gap
        self.a = 2 * (curve.b * curve.Q).sqrt() / curve.beta
        self.slope_ov = curve.s  # of R_OV in mu_OV
        self.imbalance_ov, self.r_ov0 = curve.imbalance_ov, curve.R_0
        self.start = Point(curve.mu_ov_0, curve.alpha_0, curve.rest_0, arb(0), arb(0))
        self.end = Point(INFINITY, arb(1), arb(0), -curve.alpha_0.log(), INFINITY)

    @functools.cached_property
    def least_slope(self) -> arb:
        """A(g0) = min over h > 0 of [N(g0 + h) - N(g0)]/h, N = log g + rho Ei g (balanced QK circuit).

        N' = (1 + rho e^g)/g has a derivative with the sign of rho e^g (g - 1) - 1, which rises: N' falls,
        then rises. The secant's slope S falls where S > N' and rises where S < N': one bottom, where N'
        is rising or g = g0, and A = N' there. Bracketed by the sign of S - N', A is at most S at the upper
        end, and at least N' at the lower end once N' is rising there.
        """
        with ctx.workprec(2 * ctx.prec + 64):
            line = Line(self.problem)
            least = line._least_slope()
        return +least

    def _least_slope(self) -> arb:
        def tangent(h: Fraction) -> arb:
            g = self.mu_qk(h)
            return (1 + self.rho * g.exp()) / g

        def rising(h: Fraction) -> bool:
            g = self.mu_qk(h)
            return bool(self.rho * g.exp() * (g - 1) >= 1)

        def excess(h: Fraction) -> arb:  # of the secant over the tangent, times h
            return self.a * self.x(h) - ball(h) * tangent(h)

        if rising(Fraction(0)):
            return tangent(Fraction(0))
        low, high = Fraction(0), Fraction(1)
        while not excess(high) < 0:
            low, high = (high if excess(high) > 0 else low), 2 * high
        for _ in range(ctx.prec):
            middle = (low + high) / 2
            over = excess(middle)
            if not (over > 0 or over < 0):
                break
            low, high = (middle, high) if over > 0 else (low, middle)
        least = tangent(low) if rising(low) else arb(0)
        return least.union(self.a * self.x(high) / ball(high))

    def rescaling_ov(self, mu_ov: Any) -> Any:
        """R_OV, also of a series."""
        if not self.ov_factorized:
            return arb(1)
        if self.ov_balanced:
            return self.slope_ov * mu_ov
        return (self.imbalance_ov**2 + 4 * self.b * mu_ov * mu_ov).sqrt()

    def rescaling_qk(self, mu_qk: Any) -> Any:
        """R_QK on the line, also of a series."""
        return self.a * mu_qk if self.qk_factorized else arb(1)

    def mu_qk(self, h: Fraction | None) -> arb:
        """g at h; `None` is infinity."""
        return INFINITY if h is None else self.g0 + ball(h)

    def x(self, h: Fraction) -> arb:
        """X at h, exactly 0 at 0."""
        if h == 0:
            return arb(0)
        rise = ball(h)
        if not self.qk_factorized:
            return rise + self.rho0 * rise.expm1()
        return ((rise / self.g0).log1p() + self.rho * ((self.g0 + rise).ei() - self.g0.ei())) / self.a

    def mu_ov(self, x: Any) -> Any:
        """u at X, also of a series."""
        if not self.ov_factorized:
            return (self.u0 * self.u0 + 2 * x / self.k).sqrt()
        if self.ov_balanced:
            return self.u0 + self.slope_ov * x / self.k
        rise = 4 * self.b * x / self.k
        return (self.u0 * self.u0 + rise * (2 * self.r_ov0 + rise) / (4 * self.b)).sqrt()

    def ov_rise(self, h: Fraction) -> arb:
        """u - u0 at h, without cancellation."""
        if h == 0:
            return arb(0)
        x = self.x(h)
        u = self.mu_ov(x)
        return x / self.k * (self.r_ov0 + self.rescaling_ov(u)) / (self.u0 + u)

    def x_of(self, mu_ov: arb) -> arb:
        """X at u, the inverse of `mu_ov`."""
        squares = self.k * (mu_ov - self.u0) * (mu_ov + self.u0)
        return squares / (self.rescaling_ov(mu_ov) + self.r_ov0)

    def at(self, h: Fraction | None) -> Point:
        """The state at h."""
        if h is None:
            return self.end
        if h == 0:
            return self.start
        odds, x = self.rho * self.mu_qk(h).exp(), self.x(h)
        log_alpha_rise = -(self.start.rest * (-ball(h)).expm1()).log1p()
        log_r_ov_rise = (self.slope_ov**2 * x / (self.k * self.r_ov0)).log1p()
        return Point(self.mu_ov(x), odds / (1 + odds), 1 / (1 + odds), log_alpha_rise, log_r_ov_rise)

    def between(self, h1: Fraction, h2: Fraction | None) -> tuple[Point, Point]:
        """States between which the curve stays for h1 <= h <= h2: nothing ever falls but 1 - alpha."""
        if self.on:
            return self.at(h1), self.at(h2)

        def state(h: Fraction | None, like: Point) -> Point:
            if h is None:
                return like
            u = self.u0 + ball(h)
            squares = self.slope_ov**2 * ball(h) * (self.u0 + u)
            rise = (squares / ((self.rescaling_ov(u) + self.r_ov0) * self.r_ov0)).log1p()
            return like._replace(mu_ov=u, log_r_ov_rise=rise)

        return state(h1, self.start), state(h2, self.end)

    def most_diffuse(self, h: Fraction) -> arb:
        r"""An upper bound of (1 - alpha) u from h on, on the line and without OV imbalance.

        y = 1/(1 - alpha) = 1 + rho e^g has dy/du = k alpha u R_QK/R_OV, and alpha R_QK never falls. Balanced:
        u/y <= u/(y1 + s (u - u1)), s = gamma' alpha1 R_QK(g1), which goes monotonically from u1/y1 to 1/s.
        Collapsed: u/y <= u/(p + s u^2/2), p = y1 - s u1^2/2, s = k alpha1 R_QK(g1), which falls from u1 on
        when s u1^2 >= y1 and never exceeds 1/sqrt(2 p s) when p > 0.
        """
        u, alpha, rest, *_ = self.at(h)
        s = self.k * alpha * self.rescaling_qk(self.mu_qk(h))
        if self.ov_factorized:
            return (rest * u).max(self.slope_ov / s)
        if rest * s * u * u >= 1:
            return rest * u
        p = 1 / rest - s * u * u / 2
        return 1 / (2 * p * s).sqrt() if p > 0 else INFINITY
