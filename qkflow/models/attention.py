"""One attention layer over one-hot tokens, each of its two circuits one matrix or a product of two."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import ArrayLike


class Matrix(nnx.Module):
    """A collapsed circuit: one matrix, trained as it is."""

    def __init__(self, matrix: ArrayLike):
        """Start from `matrix`, of shape (rows, columns)."""
        self.matrix = nnx.Param(jnp.asarray(matrix))

    def full(self) -> jax.Array:
        """The circuit's matrix, (rows, columns)."""
        return self.matrix[...]

    def columns(self, columns: ArrayLike) -> jax.Array:
        """Some of its columns, (rows, len(columns))."""
        return self.matrix[...][:, columns]

    def apply(self, vectors: jax.Array) -> jax.Array:
        """The circuit on vectors (N, columns): (N, rows)."""
        return vectors @ self.matrix[...].T

    def entries(self, rows: jax.Array, columns: jax.Array) -> jax.Array:
        """The entries at rows (N, L) and columns (N,)."""
        return self.matrix[...][rows, columns[:, None]]


class Product(nnx.Module):
    """A factorized circuit A B: W_K^T W_Q with A = W_K^T, B = W_Q, or W_O W_V with A = W_O, B = W_V."""

    def __init__(self, left: ArrayLike, right: ArrayLike):
        """Start from A = `left`, (rows, hidden width), and B = `right`, (hidden width, columns)."""
        self.left = nnx.Param(jnp.asarray(left))
        self.right = nnx.Param(jnp.asarray(right))

    def full(self) -> jax.Array:
        """The circuit's matrix A B, (rows, columns)."""
        return self.left[...] @ self.right[...]

    def columns(self, columns: ArrayLike) -> jax.Array:
        """Some of its columns, (rows, len(columns))."""
        return self.left[...] @ self.right[...][:, columns]

    def apply(self, vectors: jax.Array) -> jax.Array:
        """The circuit on vectors (N, columns): (N, rows)."""
        return (vectors @ self.right[...].T) @ self.left[...].T

    def entries(self, rows: jax.Array, columns: jax.Array) -> jax.Array:
        """The entries at rows (N, L) and columns (N,)."""
        left, right = self.left[...], self.right[...]
        if rows.size < left.shape[0] * right.shape[1]:  # a small batch needs few entries of a large product
            return jnp.einsum("nlh,nh->nl", left[rows], right.T[columns])
        return (left @ right)[rows, columns[:, None]]

    def conserved(self) -> jax.Array:
        """A^T A - B B^T, (hidden width, hidden width): the flow with one rate for both factors keeps it."""
        left, right = self.left[...], self.right[...]
        return left.T @ left - right @ right.T


Circuit = Matrix | Product


class Attention(nnx.Module):
    """Scores s_j = beta x_j^T W_QK x_q, attention a = softmax(s), logits = W_OV sum_j a_j x_j.

    The query selects and is not attended. Embeddings are one-hot, so products with them read off columns.

    Args:
        qk: the attention circuit, (keys, queries).
        ov: the output-value circuit, (classes, keys).
    """

    def __init__(self, qk: Circuit, ov: Circuit):
        """Join the two circuits."""
        self.qk = qk
        self.ov = ov

    def __call__(self, tokens, queries, score_scale, blanks: int = 0) -> tuple[jax.Array, jax.Array]:
        """Scores (N, L + blanks) and logits (N, classes) of N sequences.

        Args:
            tokens: integers (N, L), the columns at the L positions.
            queries: integers (N,).
            score_scale: beta.
            blanks: further positions whose score and value stay zero (tokens that never repeat).
        """
        scores = score_scale * self.qk.entries(tokens, queries)
        scores = jnp.pad(scores, ((0, 0), (0, blanks)))
        attention = jax.nn.softmax(scores)[:, : tokens.shape[1]]
        return scores, jnp.einsum("nl,nlm->nm", attention, self.ov.full().T[tokens])

    def on_counts(self, counts, members, queries, score_scale) -> tuple[jax.Array, jax.Array]:
        """Attention on every token (N, keys) and logits (N, classes) of N sequences given as bags of tokens.

        All positions with one token have one score, so it is computed once a token and counted as often as
        the token stands there: the same as on the sequences, at a cost that does not grow with their length.

        Args:
            counts: (N, keys), how often each token stands in the sequence; at least one somewhere.
            members: integers (N,), which of `queries` is the sequence's.
            queries: integers (Q,), all queries that occur, few.
            score_scale: beta.
        """
        scores = (score_scale * self.qk.columns(queries)).T[members]
        # Absent tokens must not decide the scale: the present ones could all underflow.
        present = counts > 0
        top = jnp.max(scores, axis=1, where=present, initial=-jnp.inf, keepdims=True)
        weights = counts * jnp.exp(jnp.where(present, scores - jax.lax.stop_gradient(top), 0))
        attention = weights / weights.sum(axis=1, keepdims=True)
        return attention, self.ov.apply(attention)


def cross_entropy(logits: jax.Array, classes: jax.Array) -> jax.Array:
    """-log softmax(logits)[class] of each row, exact to rounding also where it is tiny.

    Args:
        logits: (N, classes).
        classes: integers (N,).

    >>> logits = jnp.array([[0.0, 0.0, 60.0]])
    >>> bool(jnp.isclose(cross_entropy(logits, jnp.array([2]))[0], 2 * jnp.exp(-60.0), rtol=1e-4, atol=0))
    True
    """
    gaps = logits - jnp.take_along_axis(logits, classes[:, None], axis=1)
    others = jnp.where(jnp.arange(logits.shape[1]) == classes[:, None], -jnp.inf, gaps)
    return jnp.logaddexp(0.0, jax.nn.logsumexp(others, axis=1))


def attention_mass(scores: jax.Array, n_distinct: int) -> tuple[jax.Array, jax.Array]:
    """Mean attention on the first `n_distinct` positions, alpha, and log(1 - alpha), of (N, L) scores."""
    total = jax.nn.logsumexp(scores, axis=1)
    distinct = jnp.exp(jax.nn.logsumexp(scores[:, :n_distinct], axis=1) - total)
    log_common = jax.nn.logsumexp(scores[:, n_distinct:], axis=1) - total
    return distinct.mean(), jax.nn.logsumexp(log_common) - jnp.log(scores.shape[0])
