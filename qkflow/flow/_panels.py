"""Y and t along the curve as rigorous quadratures: Taylor polynomials on panels, Cauchy's bound for the rest.

On a panel [a, b] with centre c the integrand f is expanded in N terms. If |f| <= G on the disc of radius R
around c, its k-th coefficient is at most G / R^k, so that at a distance of at most h from c

    |integral of (f - its first N terms)| <= h G (h/R)^N / (1 - h/R).

G comes from one evaluation of f on a complex rectangle around the disc. A panel is accepted once that bound
is small enough against what has been integrated; otherwise it is tried again half as wide.
"""

from __future__ import annotations

from typing import NamedTuple

from flint import acb, arb, arb_poly, arb_series, ctx  # type: ignore[import-untyped]

from qkflow.flow._balls import Ball, Curve, State

DISC = 4
"""Radius of the disc over half the width of the panel."""
MOST_PANELS = 20_000
SMALLEST = arb(2) ** -200_000
"""Of a disc."""


class Unresolved(ArithmeticError):
    """The balls are too wide for an answer at this precision."""


class TooLong(ArithmeticError):
    """More panels than anyone would wait for, at any precision."""

    def __init__(self) -> None:
        super().__init__(
            f"The way to this target takes more than {MOST_PANELS} panels: it cannot be certified."
        )


class Integral(NamedTuple):
    """An increasing function as its value at a panel's centre and a polynomial from there."""

    at_centre: arb
    rise: arb_poly  # in units of the disc's radius
    radius: arb
    error: arb  # a ball around 0

    def __call__(self, x: arb) -> arb:
        """The value at a distance x from the centre."""
        return self.at_centre + self.rise(x / self.radius) + self.error


class Panel(NamedTuple):
    """[start, end] with Y and, where it was asked for, t."""

    start: arb
    centre: arb
    end: arb
    half: arb
    radius: arb
    area: Integral
    time: Integral | None

    def holds(self, w: arb) -> bool:
        """Whether the enclosures are proved at w."""
        return bool(abs(w - self.centre) <= self.half)


def _from(start: arb, integrand: arb_series, left: arb, radius: arb, error: arb) -> Integral:
    """The integral that is `start` at the distance -left from the centre."""
    rise = arb_poly((integrand.integral() * radius).coeffs())
    return Integral(start - rise(-left / radius) + error, rise, radius, error)


def _tail(size: arb, half: arb, radius: arb) -> arb:
    ratio = half / radius
    return half * size * ratio ** (ctx.cap - 1) / (1 - ratio)


def panel(
    curve: Curve, start: arb, radius: arb, area: arb, time: arb | None, most: arb, about: arb | None = None
) -> Panel | None:
    """The panel from `start`, where Y and t are known, with a disc of this radius; None if that is too large.

    Args:
        curve: the curve.
        start: exact.
        radius: exact; the panel is 2/`DISC` of it wide.
        area: Y at the start.
        time: t at the start, or None where it is not asked for.
        most: largest error, relative to Y at the panel's end, and to `about` or t at its start.
        about: the size of the times that count, or None.
    """
    centre = (start + radius / DISC).mid()
    end = (centre + radius / DISC).mid()
    # Rounding has moved the ends; a little more, so that a ball around an end is held as well.
    half = arb((arb.max(centre - start, end - centre) * (1 + arb(2) ** -20)).upper())
    disc = acb(arb(centre, radius), arb(0, radius))
    straight, flat_area = curve.straight(disc)
    tau = curve.tau_rate * flat_area
    gap = curve.gap(tau)
    e_gap = gap.exp()
    widening = curve.rest_0 + curve.alpha_0 * e_gap
    d_area = widening * straight
    size = arb(d_area.abs_upper())
    tail = _tail(size, half, radius)
    middle, _ = curve.straight(centre)
    if not tail <= most * (area + half * middle):
        return None
    time_tail = None
    if time is not None and about is not None:
        pace = _pace_on_disc(curve, disc, straight, flat_area, tau, widening, area + (disc - start) * d_area)
        if pace is None:
            return None
        d_omega, mu_ov = pace
        odds, against = curve.odds_0 * e_gap, (-gap).exp() / curve.odds_0
        # 1 + odds may hold 0 where neither is small: late, the other form of alpha does not
        alpha = odds / (1 + odds) if abs(odds) < 1 else 1 / (1 + against)
        d_time = curve.density(mu_ov * alpha, against, d_omega)
        time_tail = _tail(arb(d_time.abs_upper()), half, radius)
        if not (time_tail <= most * about or time_tail <= most * time):
            return None

    left = centre - start
    d_area_series, e_gap_series = curve.series(centre, radius)
    area_model = _from(area, d_area_series, left, radius, arb(0, tail.upper()))
    if time is None or time_tail is None:
        return Panel(start, centre, end, half, radius, area_model, None)
    series = _time_series(curve, d_area_series, e_gap_series, area_model)
    time_model = _from(time, series, left, radius, arb(0, time_tail.upper()))
    return Panel(start, centre, end, half, radius, area_model, time_model)


def _pace_on_disc(
    curve: Curve, disc: acb, straight, flat_area, tau, widening, area
) -> tuple[Ball, Ball] | None:
    """d omega / dw and mu_OV on the disc; None where they are not proved to be holomorphic."""
    found = []
    mu_ov = (curve.mu_ov_0**2 + curve.square_rise(area)).sqrt(analytic=True)
    if mu_ov.is_finite() and not mu_ov.contains(0):
        found.append((widening * straight / mu_ov, mu_ov))
    # Near the start: Y = chord A, with the mean of q over the way from tau = 0, a ball and so convex.
    way = acb(arb(0).union(tau.real), arb(0).union(tau.imag))
    chord = curve.widening(curve.gap(way))
    if abs(chord - 1) < 1:
        s2, R_0 = curve.s**2, curve.R_0
        if curve.from_zero:
            square = chord * (2 * R_0 + s2 * chord * flat_area) / (2 * R_0 + s2 * flat_area)
        else:
            square = 1 + (chord - 1) * flat_area * (2 * R_0 + s2 * (chord + 1) * flat_area) / straight**2
        ratio = square.sqrt(analytic=True)
        if ratio.is_finite() and not ratio.contains(0):
            found.append((widening / ratio, straight * ratio))
    return min(found, key=lambda pair: float(pair[1].rad()), default=None)


def _time_series(curve: Curve, d_area: arb_series, e_gap: arb_series, area: Integral) -> arb_series:
    """dt / dw as a power series around a panel's centre."""
    n = ctx.cap
    y = arb_series([area.at_centre, *area.rise.coeffs()[1:]], prec=n)
    square = (y * curve.s**2 + 2 * curve.R_0) * y + curve.mu_ov_0**2
    mu_ov = square.sqrt()
    against = (e_gap * curve.odds_0).inv()  # (1 - alpha) / alpha
    z = mu_ov / (against + 1)
    return (z.exp() + (curve.M - 1)) * (against + 1) * d_area / mu_ov * curve.pace


class Trail:
    """Panels from w = 0 on, laid as far as they are asked for.

    Args:
        curve: the curve.
        first: no first panel ends beyond it; exact.
    """

    def __init__(self, curve: Curve, first: arb):
        self.curve = curve
        self.most = arb(2) ** (16 - ctx.prec)
        self._first = first * DISC / 2
        self.panels: list[Panel] = []

    def lay(self) -> Panel:
        """One more panel, with Y only."""
        if self.panels:
            last = self.panels[-1]
            new = self.next(last.end, last.area(last.end - last.centre), None, 2 * last.radius)
        else:
            new = self.next(arb(0), arb(0), None, self._first)
        self.panels.append(new)
        return new

    def next(self, start: arb, area: arb, time: arb | None, radius: arb, about: arb | None = None) -> Panel:
        """The panel from a start on, as wide as possible up to a radius."""
        while radius > start * arb(2) ** -(ctx.prec // 2) and radius > SMALLEST:
            if found := panel(self.curve, start, radius, area, time, self.most, about):
                return found
            radius = radius / 2
        raise Unresolved("a panel shrinks to nothing")

    def state(self, w: arb) -> State:
        """The curve at w > 0, with panels laid so far."""
        while not self.panels or not w < self.panels[-1].end:
            if len(self.panels) > MOST_PANELS:
                raise TooLong
            self.lay()
        return self.curve.state(w, self.area(w))

    def area(self, w: arb) -> arb:
        for k in range(len(self.panels) - 1, -1, -1):
            if self.panels[k].holds(w):
                return self.panels[k].area(w - self.panels[k].centre)
        raise Unresolved("a ball wider than a panel")

    def clock(self, about: arb) -> Clock:
        """t from where it is, surely, a negligible part of `about`, a time that need not be exact."""
        early = about * self.most / 2**8
        while len(self.panels) < 2 or self.curve.latest(self.state(self.panels[-1].start)) < early:
            self.lay()
        low, high = arb(0), self.panels[-1].start
        for k in range(len(self.panels) - 1, 0, -1):
            if self._before(self.panels[k].start, early):
                low = self.panels[k].start
                break
            high = self.panels[k].start
        for _ in range(10):
            middle = ((low + high) / 2).mid()
            low, high = (middle, high) if self._before(middle, early) else (low, middle)
        return Clock(self, low, about)

    def _before(self, w: arb, early: arb) -> bool:
        return bool(self.curve.latest(self.state(w)) < early)


class Clock:
    """t along the curve from w = start on, by panels of its own; before, 0 <= t <= `Curve.latest`."""

    def __init__(self, trail: Trail, start: arb, about: arb):
        self._trail, self._start, self._about = trail, start, about
        if start > 0:
            state = trail.state(start)
            self._area = trail.area(start)
            self._time = arb(0).union(trail.curve.latest(state))
        else:
            self._area, self._time = arb(0), arb(0)
        self._radius = next(p for p in trail.panels if start < p.end).radius
        self._count = 0

    def advance(self, most: arb | None = None) -> Panel:
        """One more panel, as wide as possible, but not beyond `most` by more than a few digits."""
        self._count += 1
        if self._count > MOST_PANELS:
            raise TooLong
        radius = self._radius
        if most is not None:
            radius = arb(arb.min(radius, (most - self._start) * (DISC / 2) * (1 + arb(2) ** -10)).upper())
        new = self._trail.next(self._start, self._area, self._time, radius, self._about)
        assert new.time is not None
        at = new.end - new.centre
        self._start, self._area, self._time = new.end, new.area(at), new.time(at)
        self._radius = 2 * new.radius
        return new
