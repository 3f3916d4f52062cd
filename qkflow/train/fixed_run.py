"""A training of the OV circuit alone, while attention is held fixed: the paper's Figure 3."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qkflow.data import TokenCounts, TokenTask, sample_counts
from qkflow.models import cross_entropy
from qkflow.setting import Number, pytree, require

DIFFERENCE = 0.005
"""The published change of alpha in a finite difference."""
MEASURED = 3200
"""Fresh sequences behind a row of the record."""


@dataclasses.dataclass(frozen=True)
class FixedAttentionRun:
    """OV learns with the mass alpha spread evenly over distinct positions and 1 - alpha over common ones.

    logits = W_OV (alpha d + (1 - alpha) c) + bias, where d and c are the shares of every token among the
    distinct and among the common positions of a sequence; where it has none of a kind, the other kind has
    all of the mass.
    Every entry starts uniform between -1/sqrt(V) and 1/sqrt(V). A JAX pytree whose leaves are its numbers.

    Args:
        alpha: attention on distinct positions, between 0 and 1.
        factorized: whether W_OV = W_O W_V.
        bias: whether a bias is added to the logits.
        lr_ov: learning rate.
        steps: number of steps.
        per_class: sequences of each class in a step.
        task: where sequences come from.

    Raises:
        ArgumentError: for numbers out of range.
    """

    alpha: Number
    factorized: bool
    bias: bool = False
    lr_ov: Number = 0.01
    steps: Number = 125_000
    per_class: int = 32
    task: TokenTask = dataclasses.field(default_factory=TokenTask)

    def __post_init__(self):
        """Check every number."""
        require("alpha", self.alpha, lambda x: (x >= 0) & (x <= 1), "between 0 and 1")
        require("lr_ov", self.lr_ov, lambda x: (x >= 0) & np.isfinite(x), "finite and not negative")
        for name in ("steps", "per_class"):
            whole = "a whole number of at least 1"
            require(name, getattr(self, name), lambda x: (x >= 1) & (x == np.floor(x)), whole)

    def start(self, seed: int) -> dict[str, Any]:
        """The matrices and the bias, float64, from NumPy's default generator."""
        rng, v = np.random.default_rng(seed), self.task.n_tokens
        shapes = dict.fromkeys(("left", "right") if self.factorized else ("matrix",), (v, v))
        if self.bias:
            shapes |= {"bias": (v,)}
        return {"ov": {name: rng.uniform(-1, 1, shape) / np.sqrt(v) for name, shape in shapes.items()}}

    def rates(self) -> tuple[Any, Any]:
        """The learning rate of OV; QK is not there."""
        return self.lr_ov, 0.0

    def draw(self, key: jax.Array, batches: int) -> TokenCounts:
        """Fresh sequences for several steps, N / M of each class, arrays with a leading axis of steps."""
        size = self.per_class * self.task.n_classes
        flat = sample_counts(key, self.task, batches * size, balanced=True)
        return jax.tree.map(lambda x: x.reshape(batches, size, *x.shape[1:]), flat)

    def shares(self, counts: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """d and c, (N, V): the share of every token among the distinct and among the common positions."""
        off = jnp.asarray(self.task.distinct)
        sides = [jnp.where(side, counts, 0).astype(dtype) for side in (off, ~off)]
        totals = [side.sum(axis=1, keepdims=True) for side in sides]
        d, c = (side / jnp.maximum(total, 1) for side, total in zip(sides, totals, strict=True))
        return jnp.where(totals[0] > 0, d, c), jnp.where(totals[1] > 0, c, d)

    def loss(self, params: Any, batch: TokenCounts, alpha: Any = None) -> jax.Array:
        """The mean cross-entropy of a batch, at another alpha where one is given."""
        matrices = params["ov"]
        # A batch has more sequences than the circuit is wide: its one matrix is the cheaper way.
        ov = matrices["left"] @ matrices["right"] if self.factorized else matrices["matrix"]
        d, c = self.shares(batch.counts, ov.dtype)
        logits = (c + (self.alpha if alpha is None else alpha) * (d - c)) @ ov.T + matrices.get("bias", 0)
        return cross_entropy(logits, jnp.asarray(self.task.labels)[batch.classes]).mean()

    def measure(self, params: Any, key: jax.Array) -> dict[str, jax.Array]:
        """On fresh sequences, at fixed weights: L, -dL/d alpha exactly, and (L(alpha) - L(alpha + h)) / h."""
        batch = sample_counts(key, self.task, MEASURED, balanced=True)
        loss, slope = jax.value_and_grad(lambda alpha: self.loss(params, batch, alpha))(self.alpha)
        beyond = self.loss(params, batch, self.alpha + DIFFERENCE)
        return {"loss": loss, "incentive": -slope, "difference": (loss - beyond) / DIFFERENCE}


pytree(FixedAttentionRun, static=("factorized", "bias", "per_class", "task"))
