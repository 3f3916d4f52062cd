"""The reduced flow to 27 digits and more, sharing neither code nor method with the package.

The ordinary differential equations of the flow, written with polynomial right-hand sides in
omega (d omega = d mu_OV / R_OV), are integrated by their Taylor series: no closed form, no first integral, no
quadrature. Everything is typed here from the matrix picture: amplitudes of the singular directions and their
rescaling.
"""

from __future__ import annotations

import operator
from fractions import Fraction

import mpmath as mp
from mpmath.libmp import to_fixed

from qkflow.setting import Problem

DIGITS = 27
"""Correct ones, unless more are asked for."""
GUARD = 18
"""Further digits that are calculated with."""


def _exactly(number) -> mp.mpf:
    if isinstance(number, Fraction):
        return mp.mpf(number.numerator) / number.denominator
    return mp.mpf(number)


class _Terms(list):
    """Taylor coefficients, kept as integers as well, which multiply ten times faster.

    The integers are c_k 2^(k unit) in units of the first that is not zero, with bits for a step of 4 2^unit.
    """

    def __init__(self, unit: int, order: int, first):
        super().__init__()
        self.unit, self.bits, self.whole, self.low = unit, mp.mp.prec + 2 * order + 20, [], None
        for value in first:
            self.append(value)

    def append(self, value):
        k = len(self)
        super().append(value)
        if self.low is None and value:
            self.low = mp.mag(value) + k * self.unit
        self.whole.append(
            to_fixed(value._mpf_, self.bits - self.low + k * self.unit) if self.low is not None else 0
        )

    def product(self, other: _Terms, k: int) -> mp.mpf:
        """The k-th coefficient of the product of two series."""
        total = sum(map(operator.mul, self.whole[: k + 1], other.whole[k::-1]))
        if not total:
            return mp.mpf(0)
        return mp.ldexp(mp.mpf(total), self.low + other.low - self.bits - other.bits - k * self.unit)


class Reference:
    """One problem; `solve(kind, value)` gives the state as mpmath numbers, to so many digits.

    Beyond the usual digits a problem's numbers are read exactly, as a certificate reads them.
    """

    def __init__(self, problem: Problem, digits: int = DIGITS):
        self.dps = mp.mp.dps = digits + GUARD
        self.order = digits * 3 // 2
        self.tolerance = mp.mpf(10) ** -digits
        # Time counts from z_end - window on: what came before is below e^-window times at most e^60.
        self.window = 68 + digits * mp.log(10)
        self.unit = 0  # about log2 of a step
        self.kind = problem.parameterization
        given = problem.exact_constants if digits > DIGITS else problem.constants
        numbers = {k: _exactly(v) for k, v in given._asdict().items()}
        self.__dict__.update(numbers)
        M, b, B, Q = self.n_classes, self.n_distinct_vocab, self.n_common_vocab, self.n_query_vocab
        self.rho = self.n_distinct / self.n_common
        line = 1 / b + 1 / B
        # d omega = lr_ov alpha / (b (e^z + M - 1)) dt, and the QK drive is pull mu_OV (1 - alpha) d omega
        self.pull = self.ratio * b * self.score_scale * (M - 1) / (M * Q)
        if self.kind.qk_factorized:
            nus = (mp.sqrt(Q / b + Q * M / B), mp.sqrt(Q / b))
            weights = (
                self.score_scale * (1 / (b * M) + 1 / B) / nus[0],
                self.score_scale * (1 - 1 / M) / b / nus[1],
            )
            amplitudes = [self.mu_qk_0 / (self.score_scale * line) * nu for nu in nus]
            self.modes = [
                (nu, w, a, mp.sqrt(self.imbalance_qk**2 + 4 * a * a))
                for nu, w, a in zip(nus, weights, amplitudes)
            ]
        else:
            self.speed = self.score_scale * line
        u = self.mu_ov_0
        self.rescaling_ov = (
            mp.sqrt(self.imbalance_ov**2 + 4 * b * u * u) if self.kind.ov_factorized else mp.mpf(1)
        )
        odds = self.rho * mp.exp(self.mu_qk_0)
        self.state0 = {
            "u": u,
            "R": self.rescaling_ov,
            "g": self.mu_qk_0,
            "q": 1 / (1 + odds),
            "modes": [(m[2], m[3]) for m in self.modes] if self.kind.qk_factorized else [],
            "t": mp.mpf(0),
        }

    def _series(self, state, timed):
        """Taylor coefficients in omega from a state, to the order."""
        M, b = self.n_classes, self.n_distinct_vocab
        c = 4 * b if self.kind.ov_factorized else mp.mpf(0)

        def terms(*first):
            return _Terms(self.unit, self.order, first)

        u, R, g, q = (terms(state[name]) for name in ("u", "R", "g", "q"))
        inv, inv_less = terms(1 / (1 - q[0])), terms(1 / (1 - q[0]) - 1)  # 1 / alpha, (1 - alpha) / alpha
        aq, ds, dg, dz = terms(), terms(), terms(), terms()  # alpha (1 - alpha), derivatives
        modes = [(terms(s), terms(r)) for s, r in state["modes"]]
        z = terms(u[0] * (1 - q[0]))
        E, pace, t = terms(mp.exp(z[0])), terms(mp.exp(z[0]) + M - 1), terms(state["t"])
        product = _Terms.product

        for k in range(self.order):
            ds.append(self.pull * product(u, q, k))
            if modes:
                slope = mp.mpf(0)
                for (nu, weight, _, _), (s, r) in zip(self.modes, modes):
                    ds_k = nu * product(r, ds, k)
                    dr_k = 4 * nu * product(s, ds, k)
                    s.append(ds_k / (k + 1))
                    r.append(dr_k / (k + 1))
                    slope += weight * ds_k
                dg.append(slope)
            else:
                dg.append(self.speed * ds[k])
            g.append(dg[k] / (k + 1))
            u.append(R[k] / (k + 1))
            R.append(c * u[k] / (k + 1))
            aq.append(q[k] - product(q, q, k))
            q.append(-product(aq, dg, k) / (k + 1))
            inv.append(-product(inv_less, dg, k) / (k + 1))
            inv_less.append(inv[k + 1])
            z.append(u[k + 1] - product(u, q, k + 1))
            if timed:
                dz.append((k + 1) * z[k + 1])
                E.append(product(E, dz, k) / (k + 1))
                t.append(b / self.lr_ov * product(inv, pace, k) / (k + 1))
                pace.append(E[k + 1])
        series = {"u": u, "R": R, "g": g, "q": q, "z": z, "modes": modes, "t": t if timed else [state["t"]]}
        watched = [u, R, q, *(s for m in modes for s in m)] + ([E, inv] if timed else [])
        return series, watched

    def _step(self, watched):
        """A step at which the last terms of every watched series are below the tolerance of its value."""
        steps = []
        for s in watched:
            size = abs(s[0]) or mp.mpf("1e-3") * abs(s[1])
            for k in range(max(1, len(s) - 3), len(s)):
                if size and s[k]:
                    steps.append((self.tolerance * size / abs(s[k])) ** (mp.mpf(1) / k))
        return min(steps) if steps else mp.mpf(1)

    def _adapted(self, state, timed):
        """The series from a state and their step, in a unit of about that step."""
        while True:
            series, watched = self._series(state, timed)
            h = self._step(watched)
            unit, self.unit = self.unit, mp.mag(h)
            if abs(self.unit - unit) <= 2:
                return series, h

    @staticmethod
    def _at(series, h):
        def value(s):
            return mp.polyval(s[::-1], h)

        out = {k: value(series[k]) for k in ("u", "R", "g", "q", "t")}
        out["modes"] = [(value(s), value(r)) for s, r in series["modes"]]
        return out

    def _measure(self, kind, state):
        """What the target is compared with: increasing along the flow."""
        if kind == "attention":
            return -mp.log(state["q"])
        if kind == "loss":
            return state["u"] * (1 - state["q"])
        return state["t"]

    def _goal(self, kind, value):
        value = _exactly(value)
        return {
            "attention": lambda: -mp.log(1 - value),
            "loss": lambda: mp.log((self.n_classes - 1) / mp.expm1(value)),
            "time": lambda: value,
            "log_time": lambda: mp.exp(value),
        }[kind]()

    def _walk(self, kind, goal, timed_from):
        """States, series and step of the step that contains the goal."""
        state = self.state0
        for _ in range(5000):
            timed = timed_from is not None and state["u"] * (1 - state["q"]) >= timed_from
            series, h = self._adapted(state, timed)
            if timed_from is not None and not timed:  # do not jump over the window's beginning
                while self._z(self._at(series, h)) > timed_from + 20:
                    h /= 2
            following = self._at(series, h)
            if self._measure(kind, following) >= goal:
                return state, series, h
            state = following
        raise RuntimeError("too many steps")

    @staticmethod
    def _z(state):
        return state["u"] * (1 - state["q"])

    def _find(self, kind, goal, series, h):
        """The omega within a step at which the increasing measure is `goal`: secant in log omega."""

        def f(x):
            return mp.log(self._measure(kind, self._at(series, mp.exp(x))) / goal)

        low, high = mp.log(h) - 2000, mp.log(h) + 1
        x = mp.log(h) - 1
        for _ in range(300):
            fx = f(x)
            if abs(fx) < self.tolerance * mp.mpf("1e-5"):
                break
            low, high = (x, high) if fx < 0 else (low, x)
            slope = (f(x + mp.mpf("1e-12")) - fx) * mp.mpf("1e12")
            new = x - fx / slope if slope > 0 else low
            x = new if low < new < high else (low + high) / 2
        return mp.exp(x)

    def solve(self, kind, value, nudge=0):
        """The state at a target; `nudge` changes the target relatively (log_time: absolutely)."""
        mp.mp.dps = self.dps
        key = (kind, _exactly(value))
        if getattr(self, "_last", (None,))[0] != key:
            goal = self._goal(kind, value)
            if kind in ("loss", "attention"):
                found = self._walk(kind, goal, None)
                z_end = self._z(self._at(found[1], self._find(kind, goal, *found[1:])))
            else:
                z_end = mp.log(goal) + mp.log(self.lr_ov / self.n_distinct_vocab) - 70
            z_0 = self._z(self.state0)
            start = z_0 if z_end - self.window < z_0 else z_end - self.window
            self._last = (key, self._walk(kind, goal, start))
        _, series, h = self._last[1]
        value = _exactly(value)
        goal = self._goal(kind, value + nudge if kind == "log_time" else value * (1 + nudge))
        x = self._find(kind, goal, series, h)
        return self.observed(self._at(series, x))

    def observed(self, state):
        """mu_ov, mu_qk, alpha, log_one_minus_alpha, log_loss, log_t of a state."""
        z = self._z(state)
        return {
            "mu_ov": state["u"],
            "mu_qk": state["g"],
            "alpha": 1 - state["q"],
            "log_one_minus_alpha": mp.log(state["q"]),
            "log_loss": mp.log(mp.log1p((self.n_classes - 1) * mp.exp(-z))),
            "log_t": mp.log(state["t"]) if state["t"] > 0 else -mp.inf,
        }
