"""The trajectory as an explicit curve in ball arithmetic: every number here is enclosed.

With d omega = d mu_OV / R_OV and d tau = d sigma_i / (nu_i R_i) (collapsed QK: d mu_QK / (beta (1/b + 1/B)))
the two equations separate, (1 + rho e^mu_QK) d tau = k' mu_OV d omega. So with

    Y = integral mu_OV d omega = (1/k') integral (1 + rho e^mu_QK) d tau,

mu_QK is explicit in tau, mu_OV^2 = mu_OV(0)^2 + 2 R_OV(0) Y + s^2 Y^2 and R_OV = R_OV(0) + s^2 Y (s^2 = 4b
factorized, 0 collapsed). The coordinate w is the omega that would have led to the same tau with mu_QK at its
start: tau = k' A(w) / (1 + rho_0), A = integral of the mu_OV that such a circuit would have. All is analytic
around w >= 0, also at a start of zero.

Formulas: derivations/*.md. Balls are python-flint's `arb` and `acb`; a name in this module that ends in
nothing particular may be either, so that the same line encloses a real interval or a complex neighbourhood.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from flint import arb, arb_series, ctx, fmpq  # type: ignore[import-untyped]

from qkflow.setting import Problem

Ball = Any
"""An `arb`, or an `acb` where the comment above says so."""


@contextlib.contextmanager
def working(bits: int) -> Iterator[None]:
    """Ball arithmetic of so many bits and, for power series, half as many terms."""
    before = ctx.prec, ctx.cap
    ctx.prec, ctx.cap = bits, bits // 2
    try:
        yield
    finally:
        ctx.prec, ctx.cap = before


def ball(number: int | Fraction | float) -> arb:
    """The ball around an exact finite number, at the working precision.

    >>> with working(100):
    ...     ball(Fraction(1, 3)) * 3 == 1, (ball(Fraction(1, 3)) * 3).contains(1)
    (False, True)
    """
    exact = Fraction(number)
    return arb(fmpq(exact.numerator, exact.denominator))


class Mode(NamedTuple):
    """A singular amplitude of W_QK; it moves mu_QK by up p + down p/(1 + p), p = e^(rate tau) - 1."""

    rate: arb
    up: arb
    down: arb


class State(NamedTuple):
    """What the curve is at w; `d_` are derivatives by w."""

    mu_ov: arb
    mu_qk: arb
    odds: arb  # alpha / (1 - alpha)
    alpha: arb
    rest: arb  # 1 - alpha
    z: arb
    z_rise: arb  # z - z(0), without cancellation
    gap: arb  # mu_QK - mu_QK(0)
    omega: arb
    d_z: arb
    d_gap: arb
    d_t: arb


class Curve:
    """One problem's constants as balls, and its curve. Make and use it inside `working(bits)`.

    Args:
        problem: a layer of plain numbers (int, float, Fraction, str), not arrays.
    """

    def __init__(self, problem: Problem):
        kind, c = problem.parameterization, problem.exact_constants
        self.kind = kind
        self.M, self.b, self.Q = ball(c.n_classes), ball(c.n_distinct_vocab), ball(c.n_query_vocab)
        self.inverse_B = arb(0) if c.n_common_vocab == math.inf else 1 / ball(c.n_common_vocab)
        self.exact_rho = Fraction(c.n_distinct) / Fraction(c.n_common)
        self.rho, self.beta = ball(self.exact_rho), ball(c.score_scale)
        self.lr_ov, self.ratio = ball(c.lr_ov), ball(c.ratio)
        self.mu_ov_0, self.mu_qk_0 = ball(c.mu_ov_0), ball(c.mu_qk_0)
        self.imbalance_ov, self.imbalance_qk = ball(c.imbalance_ov), ball(c.imbalance_qk)
        self.from_zero = c.mu_ov_0 == 0

        M, b, Q, beta = self.M, self.b, self.Q, self.beta
        self.k = self.ratio * b * beta * (M - 1) / (M * Q)
        self.pace = b / self.lr_ov
        self.odds_0 = self.rho * self.mu_qk_0.exp()
        self.rest_0, self.alpha_0 = 1 / (1 + self.odds_0), self.odds_0 / (1 + self.odds_0)
        self.z_0 = self.alpha_0 * self.mu_ov_0
        self.tau_rate = self.k / (1 + self.odds_0)  # tau / A
        if kind.ov_factorized:
            self.s = 2 * b.sqrt()
            self.R_0 = (self.imbalance_ov**2 + (self.s * self.mu_ov_0) ** 2).sqrt()
        else:
            self.s, self.R_0 = arb(0), arb(1)
        self.line_gap = beta * (1 / b + self.inverse_B)
        self.modes = self._modes(finite=c.n_common_vocab != math.inf) if kind.qk_factorized else []

    def _modes(self, finite: bool) -> list[Mode]:
        M, b, Q, beta = self.M, self.b, self.Q, self.beta
        nu_2 = (Q / b).sqrt()
        if finite:
            nu_1 = (Q / b + M * Q * self.inverse_B).sqrt()
            parts = [
                (nu_1, beta * (1 / (M * b) + self.inverse_B) / nu_1),
                (nu_2, beta * (M - 1) / (M * b * nu_2)),
            ]
        else:  # both amplitudes are one
            parts = [(nu_2, beta / (b * nu_2))]
        modes = []
        for nu, weight in parts:
            sigma = self.mu_qk_0 * nu / self.line_gap
            # R + 2 sigma and R - 2 sigma multiply e^(2 nu tau) and its inverse; their product is lambda^2
            larger = (self.imbalance_qk**2 + 4 * sigma**2).sqrt() + 2 * abs(sigma)
            smaller = self.imbalance_qk**2 / larger
            up, down = (smaller, larger) if self.mu_qk_0 < 0 else (larger, smaller)
            modes.append(Mode(2 * nu, weight * up / 4, weight * down / 4))
        return modes

    # the QK circuit in tau (arb or acb)

    def gap(self, tau: Ball) -> Ball:
        """mu_QK - mu_QK(0)."""
        if not self.modes:
            return self.line_gap * tau
        total = tau * 0
        for rate, up, down in self.modes:
            p = (rate * tau).expm1()
            total += up * p + down * p / (1 + p)
        return total

    def gap_rate(self, tau: Ball) -> Ball:
        """d mu_QK / d tau."""
        if not self.modes:
            return self.line_gap
        total = tau * 0
        for rate, up, down in self.modes:
            e = (rate * tau).exp()
            total += rate * (up * e + down / e)
        return total

    def widening(self, gap: Ball) -> Ball:
        """q = (1 + rho e^mu_QK) over its start: d Y / d A."""
        return self.rest_0 + self.alpha_0 * gap.exp()

    # the OV circuit in w (arb or acb)

    def straight(self, w: Ball) -> tuple[Ball, Ball]:
        """mu_OV at omega = w, and A(w), its integral."""
        if not self.kind.ov_factorized:
            return self.mu_ov_0 + w, w * (self.mu_ov_0 + w / 2)
        x = self.s * w
        sinh, cosh = x.sinh(), x.cosh()
        versed = 2 * (x / 2).sinh() ** 2
        u = self.mu_ov_0 * cosh + self.R_0 * sinh / self.s
        return u, (self.mu_ov_0 * sinh + self.R_0 * versed / self.s) / self.s

    def square_rise(self, area: Ball) -> Ball:
        """mu_OV^2 - mu_OV(0)^2 at Y = area."""
        return area * (2 * self.R_0 + self.s**2 * area)

    def omega(self, mu_ov: arb, area: arb) -> arb:
        """omega where mu_OV and Y are these."""
        rise = self.square_rise(area) / (mu_ov + self.mu_ov_0)
        if not self.kind.ov_factorized:
            return rise
        # R + s mu_OV grows as e^(s omega)
        return ((self.s * rise + self.s**2 * area) / (self.s * self.mu_ov_0 + self.R_0)).log1p() / self.s

    # both

    def density(self, z: Ball, against: Ball, d_omega: Ball) -> Ball:
        """d t / d w, with against = (1 - alpha) / alpha."""
        middle = z.real.mid()
        # apart, because of a wide ball around a large number Arb's exponential is wider than need be
        e_z = (z - middle).exp() * middle.exp()
        return self.pace * (e_z + (self.M - 1)) * (1 + against) * d_omega

    def state(self, w: arb, area: arb) -> State:
        """The curve at w > 0, where Y = area."""
        straight, flat_area = self.straight(w)
        tau = self.tau_rate * flat_area
        gap = self.gap(tau)
        square = self.square_rise(area)
        u = (self.mu_ov_0**2 + square).sqrt()
        rise = square / (u + self.mu_ov_0)
        odds = self.odds_0 * gap.exp()
        rest = 1 / (1 + odds)
        alpha = odds * rest
        d_omega = self.widening(gap) * straight / u
        d_gap = self.gap_rate(tau) * self.tau_rate * straight
        z = alpha * u
        return State(
            mu_ov=u,
            mu_qk=self.mu_qk_0 + gap,
            odds=odds,
            alpha=alpha,
            rest=rest,
            z=z,
            z_rise=alpha * (rise - self.mu_ov_0 * self.rest_0 * (-gap).expm1()),
            gap=gap,
            omega=self.omega(u, area),
            d_z=alpha * ((self.R_0 + self.s**2 * area) * d_omega + rest * u * d_gap),
            d_gap=d_gap,
            d_t=self.density(z, 1 / odds, d_omega),
        )

    def latest(self, state: State) -> arb:
        """An upper bound of t at a state: before it z was smaller, and alpha at least the start's."""
        return self.pace * (state.z.exp() + (self.M - 1)) / self.alpha_0 * state.omega

    # power series around w

    def series(self, w: arb, unit: arb) -> tuple[arb_series, arb_series]:
        """d Y / dw and e^gap as power series in y around w, at w + unit y."""
        n = ctx.cap
        straight, flat_area = self.straight(w)
        if self.kind.ov_factorized:
            x = self.s * w
            dual = self.mu_ov_0 * x.sinh() + self.R_0 / self.s * x.cosh()
            power, terms = arb(1), []
            for j in range(n):
                terms.append(power * (dual if j % 2 else straight))
                power *= self.s * unit / (j + 1)
            u = arb_series(terms, prec=n)
        else:
            u = arb_series([straight, unit], prec=n)
        tau = (u.integral() * unit + arb_series([flat_area], prec=n)) * self.tau_rate
        e_gap = self._gap_series(tau).exp()
        return (e_gap * self.alpha_0 + self.rest_0) * u, e_gap

    def _gap_series(self, tau: arb_series) -> arb_series:
        if not self.modes:
            return tau * self.line_gap
        total = arb_series([0], prec=ctx.cap)
        for rate, up, down in self.modes:
            e = (tau * rate).exp()
            total += e * up
            if not down.is_zero():
                total -= e.inv() * down
        # the first term without cancellation
        return arb_series([self.gap(tau[0]), *total.coeffs()[1:]], prec=ctx.cap)
