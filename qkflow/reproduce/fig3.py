"""Figure 3: what sharper attention is worth to an OV circuit that learns while attention is held fixed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.data import population
from qkflow.flow.fixed import fixed_attention
from qkflow.models import aligned_start, cross_entropy
from qkflow.models.attention import Matrix, Product
from qkflow.reproduce.budget import folder, hurried, plus_minus, spread
from qkflow.reproduce.files import written
from qkflow.setting import ArgumentError, OrthogonalSetting, Parameterization, Problem
from qkflow.train.fixed_run import DIFFERENCE, FixedAttentionRun
from qkflow.train.lanes import Record, train_runs
from qkflow.train.loop import SMALL
from qkflow.trajectory import SCHEMA, provenance

ALPHAS = (0.2, 0.4, 0.6, 0.8, 1.0)
CIRCUITS = ("collapsed", "factorized")
PUBLISHED = {
    "collapsed": dict(zip(ALPHAS, (0.59803, 0.15818, 0.06447, 0.03459, 0.02155), strict=True)),
    "factorized": dict(zip(ALPHAS, (0.003792, 0.001479, 0.000892, 0.000633, 0.000486), strict=True)),
}
"""Final losses, 125,000 steps."""
QUICK = 20
"""The quick budget takes steps as many times as large, and as many times fewer: the same flow time."""
ORTHOGONAL = (
    Problem(SMALL, parameterization=Parameterization.CACO),
    Problem(SMALL, parameterization=Parameterization.CAFO),
)
"""Where the closed form holds: the small setting, collapsed from zero and factorized from mu_OV = .01."""
TIMES = np.geomspace(2.0, 300.0, 60)
STEP = 0.2
"""Step size of gradient descent there: its loss is off by about 1 % at the worst (order 1)."""


def run_of(circuit: str, alpha: float) -> FixedAttentionRun:
    """The published training of a circuit at an alpha; only the collapsed one has a bias."""
    return FixedAttentionRun(alpha, circuit == "factorized", bias=circuit == "collapsed")


@dataclasses.dataclass(frozen=True)
class Figure3:
    """The trainings of Figure 3, and the orthogonal setting beside them.

    Args:
        budget: "quick" or "full".
        seeds: how many.
        records: a record for every circuit and alpha.
        exact: for every circuit "alpha" (A,), "t" (P,), and (A, P) "loss" and "incentive" in closed form,
            "trained_loss" and "trained_incentive" of matrices in the orthogonal setting.
        files: what was written.
    """

    budget: str
    seeds: int
    records: Mapping[tuple[str, float], Record]
    exact: Mapping[str, Mapping[str, np.ndarray]]
    files: Sequence[str] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Circuit, alpha, the loss of the last epoch and both incentives at its end, and the published loss.

        The loss is the mean over the batches of the last epoch, each fresh when it was seen. `incentive` is
        -dL/dalpha at fixed weights, by automatic differentiation; `difference` the published quotient
        (L(alpha) - L(alpha + .005)) / .005 on the same sequences; `off` their largest relative difference.
        """
        rows = []
        for (circuit, alpha), record in self.records.items():
            columns = record.columns
            off = np.abs(columns["difference"] / columns["incentive"] - 1)[:, -1].max()
            rows.append(
                {
                    "circuit": circuit,
                    "alpha": alpha,
                    "loss": spread(columns["training_loss"][:, -1]),
                    "published": PUBLISHED[circuit][alpha],
                    "incentive": spread(columns["incentive"][:, -1]),
                    "difference": spread(columns["difference"][:, -1]),
                    "off": float(off),
                }
            )
        return rows

    def document(self) -> dict[str, Any]:
        """The strict-JSON document: final losses and incentives, curves, the orthogonal setting."""
        return {
            "schema": SCHEMA,
            "figure": "fig3",
            "budget": self.budget,
            "seeds": list(range(self.seeds)),
            "step_of_difference": DIFFERENCE,
            "runs": self.rows(),
            "curves": [
                {"circuit": circuit, "alpha": alpha, **{k: v.tolist() for k, v in _curve(record).items()}}
                for (circuit, alpha), record in self.records.items()
            ],
            "orthogonal": {
                circuit: {name: values.tolist() for name, values in columns.items()}
                for circuit, columns in self.exact.items()
            },
            **provenance(),
            "dtype": "float32",
        }

    def table(self) -> str:
        """Final losses beside the published ones, and the two routes to the incentive to sharpen."""
        lines = [f"budget {self.budget}, seeds: {self.seeds}; mean ± standard deviation over seeds"]
        if self.budget == "quick":
            lines.append(
                f"(steps {QUICK} times as large and {QUICK} times fewer: same flow time, more noise)"
            )
        lines.append(
            f"{'OV':<12}{'alpha':>6}{'final loss':>24}{'published':>11}{'mean / it':>11}"
            f"{'-dL/dalpha':>24}{'difference':>12}"
        )
        for row in self.rows():
            loss, slope = row["loss"], row["incentive"]
            lines.append(
                f"{row['circuit']:<12}{row['alpha']:6g}{_pm(loss):>24}{row['published']:11.6g}"
                f"{loss['mean'] / row['published']:11.3f}{_pm(slope):>24}{row['difference']['mean']:12.6g}"
            )
        lines += [
            "",
            "orthogonal setting (M=4, b=5, m=2, n=3): trained matrices off the closed form, relative",
        ]
        for circuit, columns in self.exact.items():
            loss, slope = (
                np.abs(columns[f"trained_{name}"] / columns[name] - 1).max() for name in ("loss", "incentive")
            )
            lines.append(f"{circuit:<12} loss {loss:.2%}, incentive {slope:.2%} (step {STEP:g})")
        return "\n".join([*lines, *(f"written: {path}" for path in self.files)])


def _pm(value: Mapping[str, float]) -> str:
    return plus_minus(value["mean"], value["sd"], 6)


def _curve(record: Record) -> dict[str, np.ndarray]:
    """A record at about 40 geometric epochs."""
    chosen = np.unique(np.rint(np.geomspace(1, len(record.steps), 40)).astype(int)) - 1
    columns = {name: column[:, chosen].astype(float) for name, column in record.columns.items()}
    return {"steps": record.steps[chosen], **columns}


def orthogonal(problem: Problem) -> dict[str, np.ndarray]:
    """The closed form in the orthogonal setting, and gradient descent on the OV matrices beside it.

    Returns:
        "alpha" (A,), "t" (P,), and (A, P): "loss", "incentive" (-dL/dalpha at fixed weights), and both as
        `trained_...`, over every sequence of the setting, attention alpha / m on each distinct position and
        (1 - alpha) / n on each common one.
    """
    setting = problem.setting
    steps = np.unique(np.rint(TIMES / STEP).astype(int))
    times = steps * STEP
    closed = fixed_attention(problem, np.array(ALPHAS), at_time=times)
    trained = [_descend(setting, problem, alpha, steps) for alpha in ALPHAS]
    return {
        "alpha": np.array(ALPHAS),
        "t": times,
        "loss": np.asarray(closed.loss),
        "incentive": np.asarray(closed.partial_incentive),
        "trained_loss": np.stack([loss for loss, _ in trained]),
        "trained_incentive": np.stack([slope for _, slope in trained]),
    }


def _descend(setting: OrthogonalSetting, problem: Problem, alpha: float, steps: np.ndarray):
    """Loss and -dL/dalpha of gradient descent on the OV matrices at the steps, each (P,)."""
    classes, _, tokens = population(setting)
    m, n = int(setting.n_distinct), int(setting.n_common)
    ov = aligned_start(problem).ov
    keys = ov.full().shape[1]
    one_hot = np.eye(keys)[tokens]
    shares = one_hot[:, :m].sum(axis=1) / m, one_hot[:, m:].sum(axis=1) / n
    rows = np.concatenate([classes[:, None], *shares], axis=1)
    unique, counts = np.unique(rows, axis=0, return_counts=True)
    d, c = np.split(unique[:, 1:], 2, axis=1)
    data = unique[:, 0].astype(int), d, c, counts / counts.sum()
    factors = {"left": ov.left[...], "right": ov.right[...]} if isinstance(ov, Product) else None
    matrices = factors or {"matrix": ov.full()}
    columns = _scan(matrices, alpha, np.diff(steps, prepend=0), data, float(problem.rates.lr_ov))
    return [np.asarray(column) for column in columns]


@jax.jit
def _scan(matrices, alpha, gaps, data, rate):
    classes, d, c, weights = (jnp.asarray(x) for x in data)

    def loss(matrices, alpha):
        circuit = Product(**matrices) if "left" in matrices else Matrix(**matrices)
        return weights @ cross_entropy(circuit.apply(alpha * d + (1 - alpha) * c), classes)

    def step(_, matrices):
        return jax.tree.map(lambda w, g: w - STEP * rate * g, matrices, jax.grad(loss)(matrices, alpha))

    def stop(matrices, gap):
        matrices = jax.lax.fori_loop(0, gap, step, matrices)
        value, slope = jax.value_and_grad(loss, argnums=1)(matrices, alpha)
        return matrices, (value, -slope)

    return jax.lax.scan(stop, matrices, gaps)[1]


def figure3(out: str | None, budget: str, seeds: int, progress: Callable[[int, int], Any] | None) -> Figure3:
    """Train both circuits at five alphas, and draw L and -dL/dalpha beside the orthogonal closed form.

    Args:
        out: folder for fig3.* and the trainings, in fig3-BUDGET; `None` writes nothing.
        budget: "quick" or "full".
        seeds: how many.
        progress: called with (steps done, steps in all).

    Raises:
        ArgumentError: for a folder that holds other trainings, or float32.
    """
    if not jax.config.read("jax_enable_x64"):
        raise ArgumentError("Reproducing a figure needs float64: set jax_enable_x64 first.")
    factor = QUICK if budget == "quick" else 1
    names = {f"{c}_{a:g}": (c, a) for c in CIRCUITS for a in ALPHAS}
    runs = {name: hurried(run_of(*key), factor) for name, key in names.items()}
    trained = train_runs(runs, seeds=seeds, folder=folder(out, f"fig3-{budget}"), progress=progress)
    records = {key: trained[name] for name, key in names.items()}
    exact = {c: orthogonal(problem) for c, problem in zip(CIRCUITS, ORTHOGONAL, strict=True)}
    result = Figure3(budget, seeds, records, exact)
    if out is None:
        return result
    from qkflow import plots

    curves = {c: {a: _curve(records[c, a]) for a in ALPHAS} for c in CIRCUITS}
    return dataclasses.replace(
        result, files=written(out, "fig3", result.document(), {"fig3": plots.fixed_attention(curves, exact)})
    )
