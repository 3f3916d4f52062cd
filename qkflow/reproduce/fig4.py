"""Figure 4: the scalar equations for five ratios, from the exact solution."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from qkflow.flow.exact import solve_exact
from qkflow.reproduce.files import written
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem
from qkflow.trajectory import SCHEMA, Trajectory, describe, provenance

RATIOS = (0.01, 0.1, 1.0, 10.0, 100.0)
LOSSES = np.geomspace(1.0, 1e-4, 50)
SETTING = OrthogonalSetting(n_classes=20, n_distinct_vocab=50, n_distinct=5, n_common=50)
PUBLISHED = {
    0.01: {"tau": 2.55e6, "mu_ov": 81.669, "mu_qk": 0.559, "alpha": 0.149},
    0.1: {"tau": 4.9e6, "mu_ov": 42.282, "mu_qk": 1.395, "alpha": 0.287},
}
"""End points that the paper's simulation printed, as far as it did; tau = t min(eta_OV, eta_QK)."""
COLUMNS = ("tau", "mu_ov", "mu_qk", "alpha", "t")


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """A published figure, computed again.

    Args:
        figure: its name, "fig4".
        by_time: a trajectory for every ratio, from the start to the last loss.
        by_loss: the same ratios at the stopping losses.
        files: what was written.
    """

    figure: str
    by_time: Sequence[Trajectory]
    by_loss: Sequence[Trajectory]
    files: Sequence[str] = ()

    def end_points(self) -> list[dict[str, float]]:
        """Ratio, tau, mu_OV, mu_QK, alpha and t where the loss reaches its last value, a row a ratio."""
        return [_end(trajectory) for trajectory in self.by_loss]

    def document(self) -> dict[str, Any]:
        """The strict-JSON document: the setting, the end points and the published ones."""
        setting = describe(self.by_loss[0].problem)
        del setting["ratio"]
        return {
            "schema": SCHEMA,
            "figure": self.figure,
            "setting": setting,
            "end_points": self.end_points(),
            "published": [{"ratio": ratio, **row} for ratio, row in PUBLISHED.items()],
            "seeds": [],
            **provenance(),
        }

    def table(self) -> str:
        """The end points, and below a ratio's those that were published."""
        lines = [f"end points at loss {LOSSES[-1]:g}, exact; published ones in brackets"]
        lines.append("".join(name.rjust(19) for name in ("ratio", *COLUMNS)))
        for row in self.end_points():
            lines.append(f"{row['ratio']:19g}" + "".join(f"{row[name]:19.12g}" for name in COLUMNS))
            if row["ratio"] in PUBLISHED:
                published = PUBLISHED[row["ratio"]]
                shown = (f"[{published[name]:g}]" if name in published else "" for name in COLUMNS)
                lines.append(" " * 19 + "".join(cell.rjust(19) for cell in shown))
        return "\n".join([*(line.rstrip() for line in lines), *(f"written: {path}" for path in self.files)])


def _end(trajectory: Trajectory) -> dict[str, float]:
    rates = trajectory.problem.rates
    columns = {name: float(getattr(trajectory, name)[-1]) for name in COLUMNS[1:]}
    return {
        "ratio": float(rates.ratio),
        "tau": columns["t"] * float(min(rates.lr_ov, rates.lr_qk)),
        **columns,
    }


def figure4(out: str | None = None) -> Reproduction:
    """Solve M = 20, b = 50, m = 5, n = 50, eta_OV = 1 from zero for five ratios until the loss is 1e-4.

    The first row of the figure shows mu_OV, mu_QK, loss and alpha against log10(1 + tau), its second mu_OV,
    mu_QK and alpha where the loss first falls below L, for 50 log-spaced L.

    Args:
        out: folder for fig4.png, fig4.svg and fig4.json; `None` writes nothing.

    Raises:
        ArgumentError: for float32.
    """
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError("Reproducing a figure needs float64: set jax_enable_x64 first.")
    problems = [Problem(SETTING, rates=LearningRates(ratio=ratio)) for ratio in RATIOS]
    by_loss = [solve_exact(problem, at_loss=LOSSES) for problem in problems]
    by_time = [
        solve_exact(problem, at_time=np.concatenate([[0.0], np.geomspace(1.0, stops.t[-1], 200)]))
        for problem, stops in zip(problems, by_loss, strict=True)
    ]
    result = Reproduction("fig4", by_time, by_loss)
    if out is None:
        return result
    # Drawing is imported where it is used: solving does without matplotlib.
    from qkflow import plots

    drawn = {"fig4": plots.time_and_loss(by_time, by_loss)}
    return dataclasses.replace(result, files=written(out, "fig4", result.document(), drawn))
