"""What the reduced flow speaks of, read off the real matrices."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from qkflow.data import Sequences
from qkflow.models import Attention, Product, attention_mass, cross_entropy, modes
from qkflow.setting import OrthogonalSetting


class Lines(NamedTuple):
    """The directions of `qkflow.models.directions`, QK (keys, queries) and OV (classes, keys)."""

    qk: Any
    ov: Any


def projection(matrix: jax.Array, direction: jax.Array) -> jax.Array:
    """The coefficient of `matrix` along `direction`, <W, D> / <D, D>."""
    return jnp.vdot(direction, matrix) / jnp.vdot(direction, direction)


def _relative(part: jax.Array, size: jax.Array) -> jax.Array:
    return jnp.linalg.norm(part) / jnp.where(size > 0, size, 1.0)


def counts_only(setting: OrthogonalSetting) -> OrthogonalSetting:
    """The setting's counts, which are shapes, with score scale 1: compiled code is shared where they agree.

    >>> counts_only(OrthogonalSetting(4, 5, 2, 3, 7.0, 3, score_scale=0.5)).n_common_vocab
    7
    """
    counts = {f.name: getattr(setting, f.name) for f in dataclasses.fields(setting)}
    counts = {name: value if value == math.inf else int(value) for name, value in counts.items()}
    return OrthogonalSetting(**counts | {"score_scale": 1.0})


def inside_ov(ov: jax.Array, setting: OrthogonalSetting) -> jax.Array:
    """U U^T W V V^T for the OV direction U S V^T: class means, which sum to 0 over labels and over classes.

    Args:
        ov: (classes, keys).
        setting: concrete counts.
    """
    m_classes, b = setting.n_classes, setting.n_distinct_vocab
    means = ov[:, : m_classes * b].reshape(m_classes, m_classes, b).mean(2)
    means = means - means.mean(0)
    spread = jnp.repeat(means - means.mean(1, keepdims=True), b, axis=1)
    return jnp.pad(spread, ((0, 0), (0, ov.shape[1] - m_classes * b)))


def inside_qk(qk: jax.Array, setting: OrthogonalSetting) -> jax.Array:
    """The same for the QK direction: means over keys and queries of a class, and over the common keys.

    With common keys (B finite) every column of the direction sums to 0, and so does what is inside.

    Args:
        qk: (keys, queries).
        setting: concrete counts.
    """
    m_classes, b, q = setting.n_classes, setting.n_distinct_vocab, setting.n_query_vocab
    distinct = qk[: m_classes * b].reshape(m_classes, b, m_classes, q).mean((1, 3))
    block = jnp.repeat(jnp.repeat(distinct, b, axis=0), q, axis=1)
    if setting.n_common_vocab == math.inf:
        return block
    common = qk[m_classes * b :].reshape(-1, m_classes, q).mean((0, 2))
    block = jnp.concatenate([block, jnp.tile(jnp.repeat(common, q), (qk.shape[0] - m_classes * b, 1))])
    return block - block.mean(0)


def forward(model: Attention, batch: Sequences, setting: OrthogonalSetting, score_scale):
    """Scores (N, m + n) and logits (N, M) of a batch; an infinite common vocabulary gives blank positions."""
    blanks = int(setting.n_common) if setting.n_common_vocab == math.inf else 0
    return model(batch.tokens, batch.queries, score_scale, blanks)


def mean_loss(model: Attention, batch: Sequences, setting: OrthogonalSetting, score_scale) -> jax.Array:
    """The mean cross-entropy of a batch."""
    return cross_entropy(forward(model, batch, setting, score_scale)[1], batch.classes).mean()


def observe(
    model: Attention,
    initial: Attention,
    batch: Sequences,
    lines: Lines,
    setting: OrthogonalSetting,
    score_scale,
) -> dict[str, jax.Array]:
    """The columns of a training record, scalars.

    Args:
        model: the layer now.
        initial: the layer at the start.
        batch: the sequences over which loss and attention are averaged.
        lines: the directions of the setting.
        setting: concrete counts.
        score_scale: beta.

    Returns:
        mu_ov, mu_qk: coefficients along the lines, the latter as the gap beta (mean entry of a class's
            distinct tokens against its own queries - mean entry of the common tokens, 0 where B is infinite).
        alpha, log_one_minus_alpha: mean attention mass on distinct tokens, log of the mean mass on the rest.
        log_loss: log of the mean cross-entropy.
        residual_ov, residual_qk: Frobenius norm of what is off the line over that of the matrix; 0 for a
            zero matrix.
        residual_qk_modes: the same off the plane of the two modes (factorized QK, finite B).
        outside_ov, outside_qk: the same outside the singular spaces of the direction, its row and column
            space: what class means of the entries leave, and more (`inside_ov`, `inside_qk`).
        conserved_ov, conserved_qk: Frobenius norm of the change of A^T A - B B^T since the start over the
            norms of A^T A and B B^T together (factorized circuits only).
    """
    scores, logits = forward(model, batch, setting, score_scale)
    alpha, log_one_minus_alpha = attention_mass(scores, int(setting.n_distinct))
    qk, ov = model.qk.full(), model.ov.full()
    along_qk, along_ov = projection(qk, lines.qk), projection(ov, lines.ov)
    columns = {
        "mu_ov": along_ov,
        "mu_qk": along_qk * score_scale * (1 / setting.n_distinct_vocab + 1 / setting.n_common_vocab),
        "alpha": alpha,
        "log_one_minus_alpha": log_one_minus_alpha,
        "log_loss": jnp.log(cross_entropy(logits, batch.classes).mean()),
        "residual_ov": _relative(ov - along_ov * lines.ov, jnp.linalg.norm(ov)),
        "residual_qk": _relative(qk - along_qk * lines.qk, jnp.linalg.norm(qk)),
        "outside_ov": _relative(ov - inside_ov(ov, setting), jnp.linalg.norm(ov)),
        "outside_qk": _relative(qk - inside_qk(qk, setting), jnp.linalg.norm(qk)),
    }
    if isinstance(model.qk, Product) and setting.n_common_vocab != math.inf:
        off_plane = qk - sum(projection(qk, mode) * mode for mode in modes(lines.qk))
        columns["residual_qk_modes"] = _relative(off_plane, jnp.linalg.norm(qk))
    for name in ("ov", "qk"):
        now, start = getattr(model, name), getattr(initial, name)
        if isinstance(now, Product):
            left, right = now.left[...], now.right[...]
            size = jnp.linalg.norm(left.T @ left) + jnp.linalg.norm(right @ right.T)
            columns[f"conserved_{name}"] = _relative(now.conserved() - start.conserved(), size)
    return columns
