"""Where training starts: on the line of the reduced flow, at the identity, or at random."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from qkflow.models.attention import Attention, Matrix, Product
from qkflow.models.directions import directions, vocabularies
from qkflow.setting import Problem, require


def balance(sigma: np.ndarray, imbalance: float) -> tuple[np.ndarray, np.ndarray]:
    """Amplitudes a, v with a v = sigma and a^2 - v^2 = imbalance, without cancellation.

    >>> balance(np.array([2.0]), 3.0)
    (array([2.]), array([1.]))
    """
    large = np.sqrt((np.hypot(imbalance, 2 * sigma) + abs(imbalance)) / 2)
    small = np.divide(sigma, large, out=np.zeros_like(sigma), where=large > 0)
    return (large, small) if imbalance >= 0 else (small, large)


def _on_line(direction, scale, factorized: bool, rank: int, imbalance, hidden_width: int | None):
    """`scale` times the direction U S V^T, as it is or as U diag(a) O^T times O diag(v) V^T."""
    if not factorized:
        return Matrix(scale * direction)
    width = rank if hidden_width is None else hidden_width
    require("hidden_width", width, lambda x: x >= rank, f"at least {rank} for the aligned start")
    u, s, vt = np.linalg.svd(direction, full_matrices=False)
    a, v = balance(scale * s[:rank], imbalance)
    embed = np.eye(rank, width)
    return Product((u[:, :rank] * a) @ embed, embed.T @ (v[:, None] * vt[:rank]))


def aligned_start(problem: Problem, hidden_width: int | None = None) -> Attention:
    """The problem's own start: every mode on the line at `mu_ov` and `mu_qk`, with its imbalances.

    A factorized circuit has A = U diag(a) O^T and B = V diag(v) O^T from the singular value decomposition
    U S V^T of its direction, a v = sigma, a^2 - v^2 = lambda; W_OV has sigma = mu_OV sqrt(b), W_QK has
    sigma_i = mu_QK nu_i / (beta (1/b + 1/B)). A is W_O or W_K^T: lambda is positive where these are larger.

    Args:
        problem: setting, parameterization and start, concrete numbers.
        hidden_width: columns of A; by default the rank, M for QK and M - 1 for OV.

    Raises:
        ArgumentError: when the hidden width is smaller than the rank of a factorized circuit.
    """
    setting, start, kind = problem.setting, problem.start, problem.parameterization
    qk, ov = directions(setting)
    m_classes = int(setting.n_classes)
    gap = float(setting.score_scale) * (1 / setting.n_distinct_vocab + 1 / float(setting.n_common_vocab))
    return Attention(
        _on_line(qk, start.mu_qk / gap, kind.qk_factorized, m_classes, start.imbalance_qk, hidden_width),
        _on_line(ov, start.mu_ov, kind.ov_factorized, m_classes - 1, start.imbalance_ov, hidden_width),
    )


def _layer(problem: Problem, hidden_width: int | None, make: Callable[[int, int, int], Any]) -> Attention:
    """A layer of matrices `make(rows, columns, offset)`, offset naming the diagonal an identity has."""
    keys, queries = vocabularies(problem.setting)
    classes, kind = int(problem.setting.n_classes), problem.parameterization
    width = keys + queries if hidden_width is None else hidden_width
    if kind.qk_factorized:
        qk = Product(make(keys, width, 0), make(width, queries, -keys))
    else:
        qk = Matrix(make(keys, queries, -keys))
    if kind.ov_factorized:
        ov = Product(make(classes, width, 0), make(width, keys, 0))
    else:
        ov = Matrix(make(classes, keys, 0))
    return Attention(qk, ov)


def identity_start(problem: Problem, scale: float, hidden_width: int | None = None) -> Attention:
    """`scale` times the identity in every matrix, keys and then queries numbered through as one vocabulary.

    Key j is token j, query q is token K + q: W_K and W_V are the first K columns of scale I, W_Q the last
    M Q, W_O the first M rows. A key and a query are never the same token, so all scores start at zero, and
    a collapsed W_QK is zero.

    Args:
        problem: setting and parameterization; its `start` is not used.
        scale: what multiplies the identity.
        hidden_width: rows of W_K, W_Q and W_V; by default the size of the vocabulary, K + M Q.
    """
    return _layer(problem, hidden_width, lambda rows, columns, k: scale * np.eye(rows, columns, k))


def random_start(problem: Problem, scale: float, seed: int, hidden_width: int | None = None) -> Attention:
    """Independent entries, uniform between -scale and scale.

    Args:
        problem: setting and parameterization; its `start` is not used.
        scale: largest size of an entry.
        seed: of NumPy's default generator, so that the start is the same in every precision.
        hidden_width: rows of W_K, W_Q and W_V; by default the size of the vocabulary, K + M Q.
    """
    rng = np.random.default_rng(seed)
    return _layer(problem, hidden_width, lambda rows, columns, _: rng.uniform(-scale, scale, (rows, columns)))
