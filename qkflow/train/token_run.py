"""A training on the token task: what is trained, from where, and how fast."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.data import TokenCounts, TokenTask, sample_counts
from qkflow.models import Attention, Matrix, Product, cross_entropy
from qkflow.setting import ArgumentError, Number, Parameterization, pytree, require

STARTS = ("uniform", "tiny")
TINY = 1e-6
MEASURED = 1600
"""Fresh sequences behind a row of the record."""


@dataclasses.dataclass(frozen=True)
class TokenRun:
    """One training of a layer on the token task, a JAX pytree whose leaves are its rates and its steps.

    Every matrix is V x V. The "uniform" start has independent entries between -1/sqrt(V) and 1/sqrt(V), the
    "tiny" one is 1e-6 times the identity. The rate of QK goes linearly from `lr_qk` to `lr_qk_end`.

    Args:
        parameterization: which circuits are factorized.
        start_qk: "uniform" or "tiny", for W_QK, or W_K and W_Q.
        start_ov: the same for W_OV, or W_O and W_V.
        lr_ov: learning rate of OV.
        lr_qk: learning rate of QK at the first step.
        lr_qk_end: that after the last step; by default `lr_qk`.
        steps: number of steps.
        batch_size: sequences in a step.
        task: where sequences come from.

    Raises:
        ArgumentError: for numbers or names out of range.
    """

    parameterization: Parameterization
    start_qk: str
    start_ov: str
    lr_qk: Number = 0.01
    lr_qk_end: Number | None = None
    lr_ov: Number = 0.01
    steps: Number = 250_000
    batch_size: int = 32
    task: TokenTask = dataclasses.field(default_factory=TokenTask)

    def __post_init__(self):
        """Check everything."""
        try:
            object.__setattr__(self, "parameterization", Parameterization(self.parameterization))
        except ValueError:
            names = ", ".join(p.value for p in Parameterization)
            wrong = f"must be one of {names}, but is {self.parameterization!r}"
            raise ArgumentError(f"Argument `parameterization` {wrong}.") from None
        if self.lr_qk_end is None:
            object.__setattr__(self, "lr_qk_end", self.lr_qk)
        for name in ("start_qk", "start_ov"):
            if getattr(self, name) not in STARTS:
                raise ArgumentError(
                    f"Argument `{name}` must be 'uniform' or 'tiny', but is {getattr(self, name)!r}."
                )
        for name in ("lr_ov", "lr_qk", "lr_qk_end"):
            require(name, getattr(self, name), lambda x: (x >= 0) & np.isfinite(x), "finite and not negative")
        for name in ("steps", "batch_size"):
            whole = "a whole number of at least 1"
            require(name, getattr(self, name), lambda x: (x >= 1) & (x == np.floor(x)), whole)

    def start(self, seed: int) -> dict[str, Any]:
        """The matrices at the start, float64, from NumPy's default generator, by circuit and name."""
        rng, v = np.random.default_rng(seed), self.task.n_tokens

        def matrix(start: str) -> np.ndarray:
            return TINY * np.eye(v) if start == "tiny" else rng.uniform(-1, 1, (v, v)) / np.sqrt(v)

        def matrices(factorized: bool, start: str) -> dict[str, np.ndarray]:
            return {name: matrix(start) for name in (("left", "right") if factorized else ("matrix",))}

        kind = self.parameterization
        return {
            "qk": matrices(kind.qk_factorized, self.start_qk),
            "ov": matrices(kind.ov_factorized, self.start_ov),
        }

    def rates(self) -> tuple[Any, Any]:
        """The learning rates of OV and of QK, the latter a function of the number of steps done."""
        return self.lr_ov, lambda count: self.lr_qk + (self.lr_qk_end - self.lr_qk) * count / self.steps

    def draw(self, key: jax.Array, batches: int) -> TokenCounts:
        """Fresh sequences for several steps, every array with a leading axis of them."""
        flat = sample_counts(key, self.task, batches * self.batch_size)
        return jax.tree.map(lambda x: x.reshape(batches, self.batch_size, *x.shape[1:]), flat)

    def outputs(self, params: Any, batch: TokenCounts) -> tuple[jax.Array, jax.Array]:
        """Attention on every token (N, V) and logits (N, V)."""
        layer = Attention(**{name: circuit(matrices) for name, matrices in params.items()})
        return layer.on_counts(batch.counts, batch.classes, self.task.queries, self.task.score_scale)

    def loss(self, params: Any, batch: TokenCounts) -> jax.Array:
        """The mean cross-entropy of a batch."""
        _, logits = self.outputs(params, batch)
        return cross_entropy(logits, jnp.asarray(self.task.labels)[batch.classes]).mean()

    def measure(self, params: Any, key: jax.Array) -> dict[str, jax.Array]:
        """Means over fresh sequences: loss, accuracy, attention on distinct tokens."""
        batch = sample_counts(key, self.task, MEASURED)
        attention, logits = self.outputs(params, batch)
        labels = jnp.asarray(self.task.labels)[batch.classes]
        return {
            "loss": cross_entropy(logits, labels).mean(),
            "accuracy": (logits.argmax(axis=1) == labels).astype(logits.dtype).mean(),
            "attention": attention[:, self.task.n_common :].sum(axis=1).mean(),
        }


pytree(TokenRun, static=("parameterization", "batch_size", "task"), forgotten=("start_qk", "start_ov"))


def circuit(matrices: Any) -> Matrix | Product:
    """The circuit of its matrices by name: `matrix`, or `left` and `right`."""
    return Matrix(**matrices) if "matrix" in matrices else Product(**matrices)
