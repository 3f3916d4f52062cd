r"""Time along the curve of `qkflow.verify._line`, enclosed.

    t = integral of dt/dh,  dt/dh = b (e^z + M - 1) (1 + rho e^g) / (alpha eta_OV k u R_QK).

The first stretch, where dt/dh can be infinite, is bounded by the least and greatest dt/du on it; so is what
lies so far below the end that it does not count. After it panels hold the Taylor polynomial of dt/dh around
their middle and the last coefficient's ball over the whole panel: for even n,

    integral of f over [m - w, m + w] = sum over even j < n of 2 c_j w^{j+1}/(j+1) + 2 c_n w^{n+1}/(n+1)

with c_n somewhere in that ball, since (h - m)^n >= 0.
"""

from __future__ import annotations

import bisect
from fractions import Fraction

from flint import arb, arb_series, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import ball
from qkflow.verify._line import Line, Point

_ORDER = 20  # even: the remainder of a panel then has one sign
_GOAL = Fraction(1, 2**32)  # of a panel of time against the time so far
_PANELS = 4000


class TooLongError(ArithmeticError):
    """Time along the curve needs more panels than are allowed."""


class Clock:
    """Time as a function of h, remembered where it was asked for.

    Args:
        line: the curve.
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
            octave = at.numerator.bit_length() - at.denominator.bit_length()
            step = min(h, at + Fraction(2) ** (octave - 1))
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
        for _ in range(200):
            last = line.at(h)
            fast = self._slowness(first, line.rescaling_ov(last.mu_ov), last.alpha)
            slow = self._slowness(last, line.r_ov0, first.alpha)
            if slow - fast <= fast * ball(_GOAL):
                return h, line.ov_rise(h) * fast.union(slow)
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
            most = line.ov_rise(place) * self._slowness(point, line.r_ov0, line.start.alpha)
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
        for _ in range(200):
            if z(low) >= end - 2 * drop:
                return low
            middle = (low + high) / 2
            low, high = (middle, high) if z(middle) <= end - drop else (low, middle)
        return None

    def _advance(self, h1: Fraction, h2: Fraction, time: arb) -> arb:
        stack, panels = [(h1, h2)], 0
        while stack:
            h1, h2 = stack.pop()
            panels += 1
            if panels > _PANELS or (h2 - h1) * 2 ** (ctx.prec // 2) < h2:
                raise TooLongError("Time along the curve takes too many or too narrow panels.")
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
