r"""Growth classes: does a series grow as log t, log^2 t, log log t or t^p, or can its window not tell?

A law is a family that does not change when y is shifted or scaled, or time measured in another unit tau:

    y = c0 + c1 f(t / tau),   f = log t, log^2 t, log log t, or t^p with p > 0 or p < 0.

The first three are the points q = 1, 2, 0 of one family, c0 + c1 [log(t/tau)^q - 1]/q, and powers of t are
its limit. So a series is never compared with the other named classes alone: its *rivals* are all powers of
log t that differ by 1/2 or more, q in [-4, 4], and all powers of t. A class is recognised when it fits and
every rival is excluded; any other outcome is `undecided`, with the reason. "Fits" has two meanings:

* as exactly as the noise allows: the smooth part of the residual (its projection on the first ten polynomials
  in the order of the points) is no larger than noise makes it, and no rival comes within ten standard
  deviations, so that a law between the classes does not hide in the noise;
* or, where no law is exact, within 1/1000 of the series' spread while no rival comes within 1/100: a leading
  order that a long window shows. `Growth.exact` says which.

An information criterion always names a winner; here being better is not enough. What a window can not know
stays unknown: the verdict is about the window, not about later times. Noise is taken to be independent from
point to point; where it is not (random walks, averages), the estimate from neighbouring points is too small
and no class fits, which is safe.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qkflow.setting import ArgumentError, require

LEAST_POINTS = 20
MODES = 10
"""Polynomials that carry the smooth part of a series: the laws need fewer, and noise fills them all alike."""
SIGMAS, SMOOTH_LIMIT = 4.0, 28.0
"""Four standard deviations, and the same probability (6e-5) for chi^2 of the six degrees left by a law."""
APART = 10.0
"""Standard deviations by which every rival is excluded. At four, mu_OV between two regimes (noise of 1 %) was
called log log t: a law between the classes must show before it can pass for one of them."""
CLOSE, FAR = 1e-3, 1e-2
"""Deviations over the spread: of a law that is only a leading order, and of the rivals it leaves behind."""
ROUNDING, ROUNDING_32 = 1e-9, 1e-5
"""Relative accuracy that is granted to a series in float64 and float32, beyond which all is noise."""
REACH = 3.0, 15.0
"""log(t/tau) at the window's start is at most 3 times the window's length in log t, or 15: beyond, every
power of log(t/tau) is log t. Likewise t^p with p below .05 and p times the length below log(4/3)."""
_POWERS = np.array([-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
_GRID, _ROUNDS = 16, 10


class GrowthClass(enum.Enum):
    """How a series grows."""

    LOG_LOG = "log log t"
    LOG = "log t"
    LOG_SQUARED = "log^2 t"
    POWER = "t^p"
    UNDECIDED = "undecided"


_Q = {GrowthClass.LOG_LOG: 0.0, GrowthClass.LOG: 1.0, GrowthClass.LOG_SQUARED: 2.0}
_CLASSES = (*_Q, GrowthClass.POWER)


@dataclasses.dataclass(frozen=True)
class Fit:
    """The best member of a class, y = offset + scale f.

    Args:
        offset: c0.
        scale: c1; f = log(t/tau)^q, log log(t/tau), or t^p times e^(-p log_t) at the window's end.
        shape: log tau, or p for a power; nan for log t, which has none.
        deviation: rms of the smooth part of the residual over that of the series about its mean.
        chi2: sum of squares of the smooth part of the residual in units of the noise; about 6 where it fits.
        excluded: whether the window excludes the class.
    """

    offset: float
    scale: float
    shape: float
    deviation: float
    chi2: float
    excluded: bool


@dataclasses.dataclass(frozen=True)
class Exponents:
    """Local exponents in blocks of neighbouring points, each column of shape (blocks,).

    Args:
        log_t: centres of the blocks.
        slope: d y / d log t: constant for log t.
        slope_error: one standard deviation of the noise, joined with what a local cubic changes.
        power_of_log: d log y / d log log t: 2 for log^2 t without offset and with time unit 1; nan where
            t <= 1 or y <= 0 in the block.
        power_of_log_error: likewise.
    """

    log_t: np.ndarray
    slope: np.ndarray
    slope_error: np.ndarray
    power_of_log: np.ndarray
    power_of_log_error: np.ndarray


@dataclasses.dataclass(frozen=True)
class Growth:
    """What a window says about the growth of a series.

    Args:
        verdict: one of the classes, or `GrowthClass.UNDECIDED`.
        reason: one sentence.
        window: first and last log t.
        noise: standard deviation of the noise, of the shape given (a number when estimated).
        exact: whether the class holds as exactly as the noise allows (not only to leading order).
        fits: the best fit of every class.
        exponents: the local exponents.
    """

    verdict: GrowthClass
    reason: str
    window: tuple[float, float]
    noise: Any
    exact: bool
    fits: Mapping[GrowthClass, Fit]
    exponents: Exponents


def classify(y: Any, *, t: Any = None, log_t: Any = None, noise: Any = None) -> Growth:
    """The growth class of a series on its window, or `undecided`.

    Args:
        y: (P,) finite numbers, at least 20. Shifted, scaled or falling series have the class of the others.
        t: (P,) times, positive and strictly increasing; their unit does not matter.
        log_t: natural logarithms of the times, in place of `t`: for times that overflow.
        noise: standard deviation of independent noise, a number or (P,); `None` estimates it from the
            scatter of neighbouring points.

    Returns:
        Verdict, reason, fits of all classes and local exponents.

    Raises:
        ArgumentError: unless exactly one of `t` and `log_t` is given, both columns match, the times
            increase, and all numbers are finite.

    >>> t = np.geomspace(1e3, 1e7, 60)
    >>> classify(3.0 - 0.2 * np.log(t) ** 2, t=t).verdict
    <GrowthClass.LOG_SQUARED: 'log^2 t'>
    >>> growth = classify(np.log(t) + 0.1 * np.log(t) ** 2.5, t=t)
    >>> growth.verdict.value, growth.reason
    ('undecided', 'no class fits this window')
    """
    y, x, noise, rounding = _checked(y, t, log_t, noise)
    sigma, freedom = (_estimated(x, y), y.size / 3) if noise is None else (noise, math.inf)
    sigma = np.maximum(sigma, rounding)
    smooth = _Smooth(x, y, np.broadcast_to(sigma, y.shape))
    window, exponents = (float(x[0]), float(x[-1])), _exponents(x, y, np.broadcast_to(sigma, y.shape))
    if smooth.chi2 <= SMOOTH_LIMIT:
        nothing = {kind: Fit(float(y.mean()), 0.0, math.nan, 1.0, smooth.chi2, False) for kind in _CLASSES}
        why = "the series does not change by more than its noise"
        return Growth(GrowthClass.UNDECIDED, why, window, sigma, False, nothing, exponents)
    powers, units = _powers_of_log(smooth)
    power, p = _power_of_time(smooth)
    judge = _Judge(powers, power, smooth.chi2, freedom)
    verdict, reason, exact = judge.verdict()
    fits = {}
    for kind in _CLASSES:
        chi2 = judge.of(kind)
        shape = p if kind is GrowthClass.POWER else units[_Q[kind] == _POWERS].item()
        offset, scale = smooth.line(kind, shape)
        shape = math.nan if kind is GrowthClass.LOG else shape if kind is GrowthClass.POWER else x[0] - shape
        excluded = not judge.open_to(kind) if verdict is GrowthClass.UNDECIDED else kind is not verdict
        fits[kind] = Fit(offset, scale, float(shape), math.sqrt(chi2 / smooth.chi2), chi2, excluded)
    return Growth(verdict, reason, window, sigma, exact, fits, exponents)


def _checked(y: Any, t: Any, log_t: Any, noise: Any):
    """The columns as float64, log t from whichever was given; and the accuracy that is granted to y."""
    if (t is None) == (log_t is None):
        raise ArgumentError("Arguments `t` and `log_t`: exactly one of them must be given.")
    if t is not None:
        require("t", t, lambda v: (v > 0) & np.isfinite(v), "positive and finite")
    name, given = ("t", t) if log_t is None else ("log_t", log_t)
    require(name, given, np.isfinite, "finite")
    require("y", y, np.isfinite, "finite")
    series, times = np.asarray(y, float), np.asarray(given, float)
    if series.ndim != 1 or series.size < LEAST_POINTS:
        raise ArgumentError(f"Argument `y` must be one column of at least {LEAST_POINTS} numbers.")
    if times.shape != series.shape:
        raise ArgumentError(f"Argument `{name}` must have the shape of `y`, {series.shape}.")
    single = getattr(y, "dtype", None) == np.float32
    rounding = (ROUNDING_32 if single else ROUNDING) * float(abs(series).max())
    x = np.log(times) if log_t is None else times
    if not (np.diff(x) > 0).all():
        raise ArgumentError(f"Argument `{name}` must be strictly increasing.")
    if noise is None:
        return series, x, None, rounding
    require("noise", noise, lambda v: (v > 0) & np.isfinite(v), "positive and finite")
    if np.shape(noise) not in ((), series.shape):
        raise ArgumentError(f"Argument `noise` must be a number or have the shape of `y`, {series.shape}.")
    return series, x, noise, rounding


def _estimated(x: np.ndarray, y: np.ndarray) -> float:
    """Noise from the differences of five neighbours that a cubic in log t leaves at zero.

    Their median is not moved by a stretch where the series itself bends as sharply; it is worth about a third
    of its numbers.
    """
    at = np.lib.stride_tricks.sliding_window_view(x, 5)
    apart = at[:, :, None] - at[:, None, :] + np.eye(5) * (at[:, -1] - at[:, 0])[:, None, None]
    weights = 1.0 / np.prod(apart / (at[:, -1] - at[:, 0])[:, None, None], axis=2)
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    left = (weights * np.lib.stride_tricks.sliding_window_view(y, 5)).sum(axis=1)
    return 1.4826 * float(np.median(abs(left)))


class _Smooth:
    """A series in units of its noise, reduced to its smooth part, its best constant taken out."""

    def __init__(self, x: np.ndarray, y: np.ndarray, sigma: np.ndarray):
        self.x, self.y, self.sigma = x, y, sigma
        self.length = x[-1] - x[0]
        order = np.polynomial.legendre.legvander(np.linspace(-1.0, 1.0, x.size), MODES - 1)
        basis = np.linalg.qr(order / sigma[:, None])[0].T
        constant = basis @ (1.0 / sigma)
        constant /= np.linalg.norm(constant)
        self.basis = basis - np.outer(constant, constant @ basis)
        # The constant is no part of the smooth part: taken out of y first, it costs no digits.
        self.target = self.basis @ ((y - y.mean()) / sigma)
        self.chi2 = float(self.target @ self.target)

    def left(self, laws: np.ndarray) -> np.ndarray:
        """chi^2 that laws (P, ...) leave once scaled and shifted at best."""
        columns = np.tensordot(self.basis / self.sigma, laws, 1)
        size = (columns**2).sum(axis=0)
        scale = np.tensordot(self.target, columns, 1) / np.where(size > 0, size, 1.0)
        target = self.target.reshape(-1, *[1] * (columns.ndim - 1))
        return ((target - scale * columns) ** 2).sum(axis=0)

    def power_of_log(self, q: np.ndarray, start: np.ndarray) -> np.ndarray:
        """(P, *q.shape): (log(t/tau)^q - 1)/q with log(t/tau) = start at the first point, 1 at the last."""
        shift = (1,) * q.ndim
        ratio = np.log((self.x - self.x[0]).reshape(-1, *shift) + start) - np.log(self.length + start)
        safe = np.where(q == 0, 1.0, q)
        return np.where(q == 0, ratio, np.expm1(safe * ratio) / safe)

    def power_of_time(self, p: np.ndarray) -> np.ndarray:
        """(P, *p.shape): t^p, divided by its largest value on the window."""
        x = self.x.reshape(-1, *[1] * p.ndim)
        return np.expm1(p * (x - np.where(p > 0, self.x[-1], self.x[0])))

    def line(self, kind: GrowthClass, shape: float) -> tuple[float, float]:
        """Offset and scale of a class's law of this shape (log(t/tau) at the start, or p)."""
        distance = self.x - self.x[0] + (shape if kind is not GrowthClass.POWER else 0.0)
        with np.errstate(under="ignore"):
            law = {
                GrowthClass.LOG_LOG: lambda: np.log(distance),
                GrowthClass.LOG: lambda: self.x,
                GrowthClass.LOG_SQUARED: lambda: distance**2,
                GrowthClass.POWER: lambda: np.exp(shape * (self.x - self.x[-1 if shape > 0 else 0])),
            }[kind]()
        weight = 1.0 / self.sigma
        middle = float((weight**2 @ law) / (weight @ weight))
        design = np.stack([weight, (law - middle) * weight], axis=1)
        level, scale = np.linalg.lstsq(design, self.y * weight, rcond=None)[0]
        return float(level - scale * middle), float(scale)


def _least(value: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray):
    """Least values over a shape parameter, each row in its own interval: grids that close in on the best."""
    rows = np.arange(low.size)
    least, place = np.full(low.size, np.inf), low
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID, axis=1)
        found = value(grid)
        best = found.argmin(axis=1)
        least, place, step = found[rows, best], grid[rows, best], grid[:, 1] - grid[:, 0]
        low, high = np.maximum(low, place - step), np.minimum(high, place + step)
    return least, place


def _powers_of_log(smooth: _Smooth) -> tuple[np.ndarray, np.ndarray]:
    """chi^2 of every power in `_POWERS` at its best time unit, and log(t/tau) at the first point there."""
    first, length = smooth.x[0], smooth.length
    near = 1e-3 * length if first <= 0 else min(1e-3 * length, first)
    far = max(REACH[0] * length, REACH[1], first)
    ends = np.full(_POWERS.size, math.log(near)), np.full(_POWERS.size, math.log(far))

    def value(log_start):
        powers = np.broadcast_to(_POWERS[:, None], log_start.shape)
        return smooth.left(smooth.power_of_log(powers, np.exp(log_start)))

    chi2, log_start = _least(value, *ends)
    return chi2, np.exp(log_start)


def _power_of_time(smooth: _Smooth) -> tuple[float, float]:
    """chi^2 of the best power of t, and its exponent."""
    low = math.log(min(math.log(4 / 3) / smooth.length, 0.05))
    high = math.log(max(10.0, 20.0 / smooth.length))
    sign = np.array([[1.0], [-1.0]])

    def value(log_p):
        return smooth.left(smooth.power_of_time(sign * np.exp(log_p)))

    chi2, log_p = _least(value, np.full(2, low), np.full(2, high))
    best = int(chi2.argmin())
    return float(chi2[best]), float(sign[best, 0] * math.exp(log_p[best]))


class _Judge:
    """Which classes a window leaves open, from the chi^2 of all laws."""

    def __init__(self, powers: np.ndarray, power: float, total: float, freedom: float):
        self.powers, self.power, self.total = powers, power, total
        self.least = min(float(powers.min()), power)
        # With an estimated noise four standard deviations are Student's (Wallace's approximation).
        self.gap = SIGMAS**2
        if freedom < math.inf:
            stretch = ((8 * freedom + 3) / (8 * freedom + 1)) ** 2
            self.gap = freedom * math.expm1(SIGMAS**2 * stretch / freedom)
        self.limit = SMOOTH_LIMIT * self.gap / SIGMAS**2

    def of(self, kind: GrowthClass) -> float:
        """A class's chi^2."""
        return self.power if kind is GrowthClass.POWER else float(self.powers[_Q[kind] == _POWERS].item())

    def rivals(self, kind: GrowthClass) -> dict[str, float]:
        """chi^2 of the laws that must be excluded before a class is recognised."""
        if kind is GrowthClass.POWER:
            return {f"log^{q:g} t": v for q, v in zip(_POWERS, self.powers)}
        others = {f"log^{q:g} t": v for q, v in zip(_POWERS, self.powers) if abs(q - _Q[kind]) >= 0.5}
        return others | {"t^p": self.power}

    def open_to(self, kind: GrowthClass) -> bool:
        """Whether a class fits as exactly as the noise allows."""
        return self.of(kind) <= self.limit and self.of(kind) <= self.least + self.gap

    def verdict(self) -> tuple[GrowthClass, str, bool]:
        """Verdict, reason, and whether the class holds up to noise."""
        fitting = [kind for kind in _CLASSES if self.open_to(kind)]
        if len(fitting) == 1:
            kind = fitting[0]
            rivals = self.rivals(kind)
            rival = min(rivals, key=rivals.__getitem__)
            if rivals[rival] > self.of(kind) + self.gap * (APART / SIGMAS) ** 2:
                return kind, f"{kind.value} fits up to noise, and no other law does", True
            why = f"the window does not separate {kind.value} from {_named(rival)}"
            return GrowthClass.UNDECIDED, why, False
        if fitting:
            names = ", ".join(kind.value for kind in fitting[:-1]) + f" and {fitting[-1].value}"
            return GrowthClass.UNDECIDED, f"the window does not separate {names}", False
        kind = min(_CLASSES, key=self.of)
        deviation = math.sqrt(self.of(kind) / self.total)
        rival = math.sqrt(min(self.rivals(kind).values()) / self.total)
        if deviation <= CLOSE and rival >= FAR:
            why = (
                f"{kind.value} is followed to {deviation:.1e} of the spread, no rival better than {rival:.1e}"
            )
            return kind, why, False
        return GrowthClass.UNDECIDED, "no class fits this window", False


def _named(rival: str) -> str:
    return {"log^0 t": "log log t", "log^1 t": "log t", "t^p": "a power of t"}.get(rival, rival)


def _exponents(x: np.ndarray, y: np.ndarray, sigma: np.ndarray) -> Exponents:
    """Local quadratic fits in at most eight blocks of at least eight points."""
    blocks = np.array_split(np.arange(x.size), max(2, min(8, x.size // 8)))
    rows = []
    for block in blocks:
        at, value, noise = x[block], y[block], sigma[block]
        row = [(at[0] + at[-1]) / 2, *_local_slope(at, value, noise, (at[0] + at[-1]) / 2)]
        if at[0] > 0 and (value > 0).all():
            log_at = np.log(at)
            row += _local_slope(log_at, np.log(value), noise / value, math.log(row[0]))
        else:
            row += [math.nan, math.nan]
        rows.append(row)
    return Exponents(*np.array(rows).T)


def _local_slope(x: np.ndarray, y: np.ndarray, sigma: np.ndarray, centre: float) -> tuple[float, float]:
    """Slope at the centre, and its error from noise and from the third order that a quadratic leaves out."""
    half = (x[-1] - x[0]) / 2
    slopes = []
    for degree in (2, 3):
        design = np.vander((x - centre) / half, degree + 1, increasing=True) / sigma[:, None]
        solver = np.linalg.pinv(design)[1] / half
        slopes.append((solver @ (y / sigma), float(np.linalg.norm(solver))))
    (slope, noise), (finer, _) = slopes
    return float(slope), math.hypot(noise, finer - slope)
