r"""The trajectory of the reduced flow in balls, as a curve in h = mu_QK - mu_QK(0), and time along it.

With g = mu_QK = g0 + h, u = mu_OV, rho0 = rho e^{g0} and a = 2 sqrt(b Q) / beta (R_QK = a g of balanced
factors), the first integral makes everything explicit in h:

    X = h + rho0 (e^h - 1)                             collapsed QK circuit
    X = [log(g/g0) + rho (Ei g - Ei g0)] / a           balanced QK circuit, infinite common vocabulary
    u = sqrt(u0^2 + 2 X/k)                             collapsed OV circuit
    R_OV(u) = R_OV(u0) + 4 b X/k                       factorized OV circuit, R_OV^2 = lambda^2 + 4 b u^2
    dt/dh = b (e^z + M - 1) (1 + rho e^g) / (alpha eta_OV k u R_QK)

Numbers of the problem enter exactly (a float by its binary value), h is a dyadic fraction, every other number
is a ball at the precision in force.
"""

from __future__ import annotations

import bisect
import functools
import math
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, arb_series, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import Curve, ball
from qkflow.setting import Problem

INFINITY = arb.pos_inf()
_ORDER = 20  # even: the remainder of a panel then has one sign
_GOAL = Fraction(1, 2**32)  # of a panel of time against the time so far
_PANELS = 8000


class TooLongError(ArithmeticError):
    """Time along the curve needs more panels than are allowed."""


class Point(NamedTuple):
    """A state: mu_OV, alpha, 1 - alpha, and log(alpha/alpha(0)), which is exactly 0 at the start."""

    mu_ov: arb
    alpha: arb
    rest: arb
    log_rise: arb


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
        self.start = Point(curve.mu_ov_0, curve.alpha_0, curve.rest_0, arb(0))
        self.end = Point(INFINITY, arb(1), arb(0), -curve.alpha_0.log())
        self.clock = _Clock(self)

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
        odds = self.rho * self.mu_qk(h).exp()
        log_rise = -(self.start.rest * (-ball(h)).expm1()).log1p()
        return Point(self.mu_ov(self.x(h)), odds / (1 + odds), 1 / (1 + odds), log_rise)

    def between(self, h1: Fraction, h2: Fraction | None) -> tuple[Point, Point]:
        """States between which the curve stays for h1 <= h <= h2: nothing ever falls but 1 - alpha."""
        if self.on:
            return self.at(h1), self.at(h2)
        last = INFINITY if h2 is None else self.u0 + ball(h2)
        return self.start._replace(mu_ov=self.u0 + ball(h1)), self.end._replace(mu_ov=last)

    def most_diffuse(self, h: Fraction) -> arb:
        r"""An upper bound of (1 - alpha) u from h on, on the line and without OV imbalance.

        y = 1/(1 - alpha) = 1 + rho e^g has dy/du = k alpha u R_QK/R_OV, and alpha R_QK never falls. Balanced:
        u/y <= u/(y1 + s (u - u1)), s = gamma' alpha1 R_QK(g1), which goes monotonically from u1/y1 to 1/s.
        Collapsed: u/y <= u/(p + s u^2/2), p = y1 - s u1^2/2, s = k alpha1 R_QK(g1), which falls from u1 on
        when s u1^2 >= y1 and never exceeds 1/sqrt(2 p s) when p > 0.
        """
        u, alpha, rest, _ = self.at(h)
        s = self.k * alpha * self.rescaling_qk(self.mu_qk(h))
        if self.ov_factorized:
            return (rest * u).max(self.slope_ov / s)
        if rest * s * u * u >= 1:
            return rest * u
        p = 1 / rest - s * u * u / 2
        return 1 / (2 * p * s).sqrt() if p > 0 else INFINITY


class _Clock:
    """Time along a line: an enclosure of the integral of dt/dh from 0, remembered where it was asked for.

    The first stretch, where dt/dh can be infinite, is bounded by the least and greatest dt/du on it; so is
    what lies so far below the end that it does not count. After it panels hold the Taylor polynomial of dt/dh
    around their middle and the last coefficient's ball over the whole panel: for even n, integral of f = sum
    over even j < n of 2 c_j w^{j+1}/(j+1) + 2 c_n w^{n+1}/(n+1) with c_n in its ball, since x^n >= 0.
    """

    def __init__(self, line: Line):
        self.line = line
        self.known: list[tuple[Fraction, arb]] = [(Fraction(0), arb(0))]

    def __call__(self, h: Fraction) -> arb:
        """t at h.

        Raises:
            TooLongError: when that needs too many panels.
        """
        place = bisect.bisect_right(self.known, h, key=lambda entry: entry[0]) - 1
        at, time = self.known[place]
        if at == h:
            return time
        skipped = self._skipped(at, h)
        if skipped is not None:
            at, time = skipped
        elif at == 0:
            at, time = self._first(h)
        while at < h:
            step = min(h, at + Fraction(2) ** (math.floor(math.log2(at)) - 1))
            at, time = step, self._advance(at, step, time)
            if skipped is None or at == h:  # earlier times would be worth little after a leap
                self.known.insert(bisect.bisect_right(self.known, at, key=lambda entry: entry[0]), (at, time))
        return time

    def _slowness(self, above: Point, rescaling: arb, alpha: arb) -> arb:
        """dt/du from its three parts."""
        line = self.line
        return line.b * ((above.mu_ov * above.alpha).exp() + line.others) / (alpha * line.lr_ov * rescaling)

    def _first(self, h: Fraction) -> tuple[Fraction, arb]:
        """A first stretch, so short that its crude bound has the accuracy aimed at."""
        line, first = self.line, self.line.start
        for _ in range(40):
            last = line.at(h)
            fast = self._slowness(first, line.rescaling_ov(last.mu_ov), last.alpha)
            slow = self._slowness(last, line.r_ov0, first.alpha)
            if slow - fast <= fast * ball(_GOAL):
                return h, (last.mu_ov - line.u0) * fast.union(slow)
            h /= 256
        raise TooLongError("The start is too steep for the precision.")

    def _skipped(self, known: Fraction, h: Fraction) -> tuple[Fraction, arb] | None:
        """A place after `known`, and the time there, crudely, if that is nothing against the time at h."""
        line, last = self.line, self.line.at(h)
        near = self._before(h, 1)
        if near is None:
            return None
        point = line.at(near)
        least = (last.mu_ov - point.mu_ov) * self._slowness(point, line.rescaling_ov(last.mu_ov), last.alpha)
        for drop in (40, 80, 160, 320):
            place = self._before(h, drop)
            if place is None or place <= known:
                return None
            point = line.at(place)
            most = (point.mu_ov - line.u0) * self._slowness(point, line.r_ov0, line.start.alpha)
            if most <= least * ball(_GOAL):
                return place, arb(0).union(most)
        return None

    def _before(self, h: Fraction, drop: int) -> Fraction | None:
        """A place where z is between `drop` and twice that below its value at h."""

        def z(place: Fraction) -> arb:
            point = self.line.at(place)
            return point.mu_ov * point.alpha

        low, high, end = Fraction(0), h, z(h)
        if not z(low) <= end - drop:
            return None
        while not z(low) >= end - 2 * drop:
            middle = (low + high) / 2
            low, high = (middle, high) if z(middle) <= end - drop else (low, middle)
        return low

    def _advance(self, h1: Fraction, h2: Fraction, time: arb) -> arb:
        stack, panels = [(h1, h2)], 0
        while stack:
            h1, h2 = stack.pop()
            panels += 1
            if panels > _PANELS:
                raise TooLongError(f"Time needs more than {_PANELS} panels.")
            part = self._panel(h1, h2)
            if part.is_finite() and part.rad() <= (time + part).mid() * ball(_GOAL):
                time += part
            else:
                middle = (h1 + h2) / 2
                stack += [(middle, h2), (h1, middle)]
        return time

    def _panel(self, h1: Fraction, h2: Fraction) -> arb:
        line, middle, half = self.line, (h1 + h2) / 2, ball((h2 - h1) / 2)
        cap, ctx.cap = ctx.cap, _ORDER + 1
        try:
            terms = self._density(line.mu_qk(middle), line.x(middle)).coeffs()
            whole = line.mu_qk(h1).union(line.mu_qk(h2))
            last = self._density(whole, line.x(h1).union(line.x(h2))).coeffs()[_ORDER]
        except (ValueError, ZeroDivisionError):  # a divisor's ball holds 0: the panel is too wide
            return arb.nan()
        finally:
            ctx.cap = cap
        powers = ((terms[j] if j < _ORDER else last, j) for j in range(0, _ORDER + 1, 2))
        total = arb(0)
        for coefficient, j in powers:
            total += 2 * coefficient * half ** (j + 1) / (j + 1)
        return total

    def _density(self, mu_qk: arb, x: arb) -> arb_series:
        """dt/dh as a power series around a ball."""
        line = self.line
        g = arb_series([mu_qk, 1])
        growth = (1 + line.rho * g.exp()) / line.rescaling_qk(g)
        u = line.mu_ov(x + growth.integral())
        against = 1 + (-g).exp() / line.rho
        return line.b / (line.lr_ov * line.k) * ((u / against).exp() + line.others) * against * growth / u
