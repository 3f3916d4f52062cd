"""Figure 2: where trained layers look and how sure they are, for every parameterization and QK rate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qkflow import metrics
from qkflow.data import TokenTask, sample_counts
from qkflow.reproduce.budget import folder, hurried, plus_minus, spread
from qkflow.reproduce.files import written
from qkflow.setting import Parameterization
from qkflow.train.checkpoint import described
from qkflow.train.lanes import Record, train_runs
from qkflow.train.token_run import TokenRun
from qkflow.trajectory import SCHEMA, provenance

CACO, FACO, CAFO, FAFO = Parameterization
LONG = TokenTask(length=128)
RUNS: Mapping[str, TokenRun] = {
    "FAFO_equal": TokenRun(FAFO, "uniform", "tiny", steps=275_250),
    "FACO_equal": TokenRun(FACO, "tiny", "tiny", steps=625_000),
    "CAFO_equal": TokenRun(CAFO, "tiny", "tiny", steps=1_000_000),
    "CACO_equal": TokenRun(CACO, "uniform", "uniform", steps=500_000),
    "FAFO_increased": TokenRun(FAFO, "tiny", "tiny", lr_qk=0.2, steps=100_000),
    "FAFO_increasing": TokenRun(FAFO, "tiny", "tiny", lr_qk=0.01, lr_qk_end=0.4, steps=200_000),
    "CACO_increased_T128": TokenRun(CACO, "uniform", "uniform", lr_qk=0.05, steps=200_000, task=LONG),
    "CACO_increasing_T128": TokenRun(
        CACO, "uniform", "uniform", lr_qk=0.01, lr_qk_end=0.1, steps=200_000, task=LONG
    ),
}
"""The published trainings."""
CONTROLS: Mapping[str, TokenRun] = {
    "FAFO_equal_tiny": TokenRun(FAFO, "tiny", "tiny", steps=1_000_000),
    "CACO_equal_tiny": TokenRun(CACO, "tiny", "tiny", steps=500_000),
    "CACO_equal_T128": TokenRun(CACO, "uniform", "uniform", steps=200_000, task=LONG),
}
"""What the published ones are to be compared with: the same but for one thing."""
COMMON_START = ("FACO_equal", "CACO_equal_tiny", "FAFO_equal_tiny", "CAFO_equal")
"""The four parameterizations at equal rates, all from the tiny start."""
FASTER = {
    "FAFO_increased": "FAFO_equal_tiny",
    "FAFO_increasing": "FAFO_equal_tiny",
    "CACO_increased_T128": "CACO_equal_T128",
    "CACO_increasing_T128": "CACO_equal_T128",
}
"""Runs with a faster QK, each with the one that differs from it in the QK rate alone."""
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "FAFO_equal": {"losses": [2.901, 1.310, 0.081, 0.009], "top": [0.1, 64.1, 35.7, 0, 0], "accuracy": 1.0},
    "FACO_equal": {
        "losses": [2.522, 1.030, 0.564, 0.376, 0.280, 0.222],
        "final": 0.001,
        "top": [0, 0, 0, 5.4, 94.6],
        "accuracy": 1.0,
    },
    "CACO_increased_T128": {"final": 0.006, "accuracy": 1.0},
    "CACO_increasing_T128": {"final": 0.007, "accuracy": 1.0},
}
"""What was published: mean losses of epochs 1-100, 101-200, ..., of the last one, and the row p > .8."""
EDGES = (0.2, 0.4, 0.6, 0.8)
SEQUENCES = 6400
BLOCK = 100
LOSSES = (0.3, 0.1, 0.03, 0.01)
"""At which attention is compared."""
MARGIN = 0.01
"""Accuracies that differ by less count as comparable."""
QUICK = 20
"""The quick budget takes steps as many times as large, and as many times fewer: the same flow time."""
_FRESH = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Figure2:
    """The trainings of Figure 2 and what is read off them.

    Args:
        budget: "quick" or "full".
        seeds: how many.
        records: a record for every run.
        mass: attention on distinct tokens of 6,400 fresh sequences, (seeds, sequences) for every run.
        probability: probability of the right class, likewise.
        files: what was written.
    """

    budget: str
    seeds: int
    records: Mapping[str, Record]
    mass: Mapping[str, np.ndarray]
    probability: Mapping[str, np.ndarray]
    files: Sequence[str] = ()

    def maps(self, name: str) -> np.ndarray:
        """DTAP maps of a run in percent, (seeds, probability bins from low to high, attention bins)."""
        pairs = zip(self.mass[name], self.probability[name], strict=True)
        return np.stack([metrics.dtap(mass, probability, EDGES) for mass, probability in pairs])

    def block_losses(self, name: str) -> np.ndarray:
        """Mean training loss of the epochs 1-100, 101-200, ...: (seeds, blocks), whole blocks only."""
        losses = self.records[name].columns["training_loss"]
        size = BLOCK if self.budget == "full" else BLOCK // QUICK
        blocks = losses.shape[1] // size
        return losses[:, : blocks * size].reshape(len(losses), blocks, size).mean(axis=2)

    def final(self, name: str) -> np.ndarray:
        """Mean training loss of the last epoch, (seeds,)."""
        return self.records[name].columns["training_loss"][:, -1]

    def attention_at(self, name: str, loss: float) -> np.ndarray:
        """Attention on distinct tokens at the first epoch with a fresh loss below `loss`, else NaN."""
        columns = self.records[name].columns
        below = columns["loss"] < loss
        at = columns["attention"][np.arange(len(below)), below.argmax(axis=1)]
        return np.where(below.any(axis=1), at, np.nan)

    def rows(self) -> list[dict[str, Any]]:
        """A row a run: what it was, accuracy, losses, the DTAP map, and what was published."""
        return [self._row(name) for name in self.records]

    def _row(self, name: str) -> dict[str, Any]:
        maps, columns = self.maps(name), self.records[name].columns
        return {
            "run": name,
            **described(self.records[name].run),
            "accuracy": spread(columns["accuracy"][:, -1]),
            "final_loss": spread(self.final(name)),
            "block_losses": spread(self.block_losses(name)),
            "attention": spread(self.mass[name].mean(axis=1)),
            "dtap": spread(maps),
            "published": dict(PUBLISHED.get(name, {})),
        }

    def comparisons(self) -> list[dict[str, Any]]:
        """Faster QK against its control, paired by seed: attention at equal loss, and accuracy at the end.

        Attention is compared at those of `LOSSES` that every seed of both reaches; one seed is no sample.
        """
        found = []
        if self.seeds < 2:
            return found
        for faster, control in FASTER.items():
            for loss in LOSSES:
                pair = self.attention_at(faster, loss), self.attention_at(control, loss)
                if not np.isnan(pair).any():
                    found.append(self._compared("attention", faster, control, loss, pair))
            ends = [self.records[name].columns["accuracy"][:, -1] for name in (faster, control)]
            found.append(self._compared("accuracy", faster, control, None, ends))
        return found

    def orders(self) -> list[dict[str, Any]]:
        """The four parameterizations from one start at equal rates: mean attention at equal loss."""
        return [
            {"loss": loss, **{name: spread(self.attention_at(name, loss)) for name in COMMON_START}}
            for loss in LOSSES
            if not any(np.isnan(self.attention_at(name, loss)).any() for name in COMMON_START)
        ]

    def _compared(self, quantity, faster, control, loss, pair) -> dict[str, Any]:
        result = metrics.paired(*pair, margin=MARGIN if quantity == "accuracy" else None)
        at = {} if loss is None else {"loss": loss}
        return {"quantity": quantity, "run": faster, "control": control, **at, **result._asdict()}

    def document(self) -> dict[str, Any]:
        """The strict-JSON document: every run, the comparisons, and how all was computed."""
        return {
            "schema": SCHEMA,
            "figure": "fig2",
            "budget": self.budget,
            "seeds": list(range(self.seeds)),
            "edges": list(EDGES),
            "sequences": SEQUENCES,
            "runs": self.rows(),
            "curves": {name: _curve(record, 60) for name, record in self.records.items()},
            "orders": self.orders(),
            "comparisons": self.comparisons(),
            **provenance(),
            "dtype": "float32",
        }

    def table(self) -> str:
        """Every run beside what was published, then attention at equal loss."""
        lines = [
            f"budget {self.budget}, seeds: {self.seeds}; mean ± standard deviation over seeds; [published]"
        ]
        if self.budget == "quick":
            lines.append(
                f"(steps {QUICK} times as large and {QUICK} times fewer: same flow time, more noise; "
                "compare --budget full with what was published)"
            )
        for name in self.records:
            lines += ["", *self._lines(name)]
        lines += [
            "",
            "attention on distinct tokens where the loss first falls below L (equal rates, tiny start)",
        ]
        lines.append(f"{'L':>8}" + "".join(name.rjust(20) for name in COMMON_START))
        for row in self.orders():
            cells = (plus_minus(row[name]["mean"], row[name]["sd"], 3) for name in COMMON_START)
            lines.append(f"{row['loss']:8g}" + "".join(cell.rjust(20) for cell in cells))
        if self.seeds > 1:
            lines += ["", "faster QK minus its control, paired by seed, 95 % interval"]
        for row in self.comparisons():
            at = f"at loss {row['loss']:g}" if "loss" in row else "at the end"
            change = f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]"
            verdict = ""
            if row["quantity"] == "accuracy":
                verdict = f"within {MARGIN:g}" if row["equivalent"] else f"not shown to be within {MARGIN:g}"
            pair = f"{row['run']} - {row['control']}"
            lines.append(f"{pair:<40}{row['quantity']:<10} {at:<14}{change:>26}  {verdict}".rstrip())
        return "\n".join([*lines, *(f"written: {path}" for path in self.files)])

    def _lines(self, name: str) -> list[str]:
        """A run in the table: its end, blocks of losses and the top row of its map."""
        row, run, published = self._row(name), self.records[name].run, PUBLISHED.get(name, {})
        rate = f"{run.lr_qk:g}" if run.lr_qk == run.lr_qk_end else f"{run.lr_qk:g} to {run.lr_qk_end:g}"
        heading = f"{name}: T {run.task.length}, QK {run.start_qk}, OV {run.start_ov}, rate QK {rate}"
        heading += f", OV {run.lr_ov:g}, {run.steps:,} steps"

        def line(label: str, value: Any, known: Any, digits: int) -> str:
            means, sds = (np.atleast_1d(np.array(value[key], dtype=object)) for key in ("mean", "sd"))
            cells = "  ".join(plus_minus(m, s, digits) for m, s in zip(means, sds, strict=True))
            shown = "" if known is None else "  [" + ", ".join(f"{x:g}" for x in np.atleast_1d(known)) + "]"
            return f"  {label:<24}{cells}{shown}"

        blocks = {key: np.asarray(value)[:6] for key, value in row["block_losses"].items()}
        top = {key: np.asarray(value)[-1] for key, value in row["dtap"].items()}
        return [
            heading,
            line("accuracy", row["accuracy"], published.get("accuracy"), 4),
            line("loss, epochs by 100", blocks, published.get("losses"), 4),
            line("loss of the last epoch", row["final_loss"], published.get("final"), 5),
            line("attention", row["attention"], None, 4),
            line("% with p > .8", top, published.get("top"), 1),
        ]


def _curve(record: Record, points: int) -> dict[str, Any]:
    """A record at about so many geometric epochs."""
    chosen = np.unique(np.rint(np.geomspace(1, len(record.steps), points)).astype(int)) - 1
    columns = {name: column[:, chosen].astype(float).tolist() for name, column in record.columns.items()}
    return {"steps": record.steps[chosen].tolist(), **columns}


@jax.jit
def _evaluate(run: TokenRun, params: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Attention on distinct tokens and probability of the right class of fresh sequences, each (N,)."""
    batch = sample_counts(key, run.task, SEQUENCES)
    attention, logits = run.outputs(params, batch)
    labels = jnp.asarray(run.task.labels)[batch.classes]
    probability = jnp.take_along_axis(jax.nn.softmax(logits), labels[:, None], axis=1)[:, 0]
    # A float32 sum of attention may exceed 1 by its rounding.
    return jnp.minimum(attention[:, run.task.n_common :].sum(axis=1), 1), probability


def _seen(record: Record, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """What every seed's layer does with fresh sequences of its own: mass and probability, (seeds, N)."""
    pairs = []
    for seed in range(seeds):
        params = jax.tree.map(lambda x, seed=seed: x[seed], record.params)
        pairs.append(_evaluate(record.run, params, jax.random.fold_in(jax.random.key(seed), _FRESH)))
    mass, probability = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    return mass, probability


def figure2(out: str | None, budget: str, seeds: int, progress: Callable[[int, int], Any] | None) -> Figure2:
    """Train every run of Figure 2 and its controls, and draw their DTAP maps and how attention sharpened.

    Args:
        out: folder for fig2.*, fig2_sharpening.*, and the trainings, in fig2-BUDGET; `None` writes nothing.
        budget: "quick" or "full".
        seeds: how many.
        progress: called with (steps done, steps in all).

    Raises:
        ArgumentError: for a folder that holds other trainings.
    """
    factor = QUICK if budget == "quick" else 1
    runs = {name: hurried(run, factor) for name, run in {**RUNS, **CONTROLS}.items()}
    records = train_runs(runs, seeds=seeds, folder=folder(out, f"fig2-{budget}"), progress=progress)
    seen = {name: _seen(record, seeds) for name, record in records.items()}
    mass, probability = ({name: pair[k] for name, pair in seen.items()} for k in (0, 1))
    result = Figure2(budget, seeds, records, mass, probability)
    if out is None:
        return result
    from qkflow import plots

    top = {name: row["top"] for name, row in PUBLISHED.items() if "top" in row}
    figures = {
        "fig2": plots.dtap_maps({name: result.maps(name) for name in records}, EDGES, top),
        "fig2_sharpening": plots.sharpening({name: _curve(record, 300) for name, record in records.items()}),
    }
    return dataclasses.replace(result, files=written(out, "fig2", result.document(), figures))
