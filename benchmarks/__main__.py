"""1,000 ratios from .01 to 100, the paper's setting, CACO from zero, to t = 1e6: every route in one run.

Times are medians of repeated runs in one process; what counts are their ratios. Compilation is timed
apart. Errors are the largest relative error of mu_OV and mu_QK over a sample of the ratios against
45-digit arithmetic (tests/reference.py, which shares no code with the package).
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np
from scipy.integrate import odeint, solve_ivp

import qkflow
from qkflow.trajectory import provenance
from tests.reference import Reference

M, B_DISTINCT, M_DISTINCT, N_COMMON, Q = 20, 50, 5, 50, 50
END = 1e6
RATIOS = np.geomspace(0.01, 100.0, 1000)
SAMPLE = np.linspace(0, len(RATIOS) - 1, 9).astype(int)
RK4_STEP = 100.0  # the error is of order step^4; at 200 it passes 1e-9
RK4_SAMPLE = SAMPLE[::2]


def velocity(ratio: float) -> Callable:
    """The right-hand side in plain `math`, as a user of SciPy would write it."""
    kappa = 1.0 / (M * Q * B_DISTINCT)

    def rhs(_, state):
        mu_ov, mu_qk = state
        odds = M_DISTINCT * math.exp(mu_qk)
        alpha = odds / (odds + N_COMMON)
        common = alpha / (math.exp(alpha * mu_ov) + M - 1)
        return common / B_DISTINCT, ratio * kappa * (M - 1) * (1.0 - alpha) * mu_ov * common

    return rhs


def scipy_loop(method: str) -> Callable[[], np.ndarray]:
    def run():
        ends = []
        for ratio in RATIOS:
            solution = solve_ivp(velocity(ratio), (0.0, END), (0.0, 0.0), method, rtol=1e-10, atol=1e-12)
            ends.append(solution.y[:, -1])
        return np.array(ends)

    return run


def odeint_loop() -> np.ndarray:
    ends = []
    for ratio in RATIOS:
        states = odeint(
            velocity(ratio), (0.0, 0.0), (0.0, END), tfirst=True, rtol=1e-10, atol=1e-12, mxstep=10_000
        )
        ends.append(states[-1])
    return np.array(ends)


def rk4_loop() -> np.ndarray:
    """Fixed steps in t on NumPy arrays of two numbers, the published way; a few ratios only."""
    ends = []
    for ratio in RATIOS[RK4_SAMPLE]:
        state, h = np.zeros(2), RK4_STEP

        def rhs(y, ratio=ratio):
            odds = M_DISTINCT * np.exp(y[1])
            alpha = odds / (odds + N_COMMON)
            common = alpha / (np.exp(alpha * y[0]) + M - 1)
            gain = ratio * (M - 1) * (1.0 - alpha) * y[0] / (M * Q * B_DISTINCT)
            return np.array([common / B_DISTINCT, gain * common])

        for _ in range(int(END / h)):
            k1 = rhs(state)
            k2 = rhs(state + h / 2 * k1)
            k3 = rhs(state + h / 2 * k2)
            k4 = rhs(state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        ends.append(state)
    return np.array(ends)


def qkflow_route(method: str) -> Callable[[], np.ndarray]:
    problem = qkflow.Problem(rates=qkflow.LearningRates(ratio=RATIOS))

    def run():
        state = qkflow.solve(problem, method=method, at_time=END)
        return np.stack([state.mu_ov[:, 0], state.mu_qk[:, 0]], axis=1)

    return run


def reference(ratio: float) -> list[float]:
    """mu_OV and mu_QK at the end, in 45-digit arithmetic."""
    problem = qkflow.Problem(rates=qkflow.LearningRates(ratio=float(ratio)))
    state = Reference(problem).solve("log_time", math.log(END))
    return [float(state["mu_ov"]), float(state["mu_qk"])]


def timed(run: Callable[[], np.ndarray], repeats: int) -> tuple[np.ndarray, float]:
    seconds, ends = [], np.empty(0)
    for _ in range(repeats):
        start = time.perf_counter()
        ends = run()
        seconds.append(time.perf_counter() - start)
    return ends, statistics.median(seconds)


def main() -> None:
    """Run every route and print the table."""
    jax.config.update("jax_enable_x64", True)
    print(__doc__)
    print(json.dumps(provenance()), end="\n\n")
    truth = np.array([reference(ratio) for ratio in RATIOS[SAMPLE]])

    def error(ends, expected):
        return float(np.max(np.abs(ends / expected - 1.0)))

    rows = []
    for method in ("exact", "integrate"):
        run = qkflow_route(method)
        _, first = timed(run, 1)
        ends, seconds = timed(run, 21)
        rows.append(
            (f"qkflow {method}", seconds, error(ends[SAMPLE], truth), f"compile {first - seconds:.1f} s")
        )
    loops = {m: scipy_loop(m) for m in ("LSODA", "DOP853")} | {"odeint": odeint_loop}
    for name, run in loops.items():
        ends, seconds = timed(run, 3)
        rows.append((f"scipy {name} loop", seconds, error(ends[SAMPLE], truth), "rtol 1e-10, atol 1e-12"))
    ends, seconds = timed(rk4_loop, 1)
    share = len(RATIOS) / len(RK4_SAMPLE)
    note = f"step {RK4_STEP:g}; {len(RK4_SAMPLE)} ratios timed, scaled to {len(RATIOS):,}"
    rows.append(("numpy RK4 loop", seconds * share, error(ends, truth[::2]), note))

    base = next(seconds for name, seconds, *_ in rows if "LSODA" in name)
    print(f"{'route':<20}{'time [ms]':>14}{'LSODA / it':>12}{'error':>10}  note")
    for name, seconds, worst, note in rows:
        print(f"{name:<20}{seconds * 1e3:>14.2f}{base / seconds:>12.4g}{worst:>10.1e}  {note}")


if __name__ == "__main__":
    main()
