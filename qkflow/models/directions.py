"""The matrix directions along which the symmetric flow moves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qkflow.setting import OrthogonalSetting


def vocabularies(setting: OrthogonalSetting) -> tuple[int, int]:
    """The numbers of keys and of queries that have columns: M b + B (M b where B is infinite) and M Q.

    >>> vocabularies(OrthogonalSetting(4, 5, 2, 3, 7, 3))
    (27, 12)
    """
    m_classes = int(setting.n_classes)
    common = 0 if setting.n_common_vocab == math.inf else int(setting.n_common_vocab)
    return m_classes * int(setting.n_distinct_vocab) + common, m_classes * int(setting.n_query_vocab)


def directions(setting: OrthogonalSetting) -> tuple[np.ndarray, np.ndarray]:
    """The lines on which the collapsed circuits move.

    Returns:
        The QK direction, (keys, queries), 1/b at a class's distinct tokens against its own queries, -1/B
        at common tokens: on the line, W_QK is mu_QK / (beta (1/b + 1/B)) times it. The OV direction,
        (classes, keys), sum_c (e_c - 1/M) 1_{D_c}^T: W_OV is mu_OV times it. Both float64.

    >>> qk, ov = directions(OrthogonalSetting(4, 5, 2, 3, 7, 3))
    >>> qk.shape, ov.shape
    ((27, 12), (4, 27))
    """
    m_classes, b, q = int(setting.n_classes), int(setting.n_distinct_vocab), int(setting.n_query_vocab)
    keys, queries = vocabularies(setting)
    distinct = m_classes * b
    qk, ov = np.zeros((keys, queries)), np.zeros((m_classes, keys))
    qk[:distinct] = np.kron(np.eye(m_classes), np.full((b, q), 1 / b))
    qk[distinct:] = -1 / float(setting.n_common_vocab)
    ov[:, :distinct] = np.kron(np.eye(m_classes) - 1 / m_classes, np.ones((1, b)))
    return qk, ov


def modes(direction: Any) -> tuple[Any, Any]:
    """The two singular modes of the QK direction, which a factorized circuit scales separately.

    Args:
        direction: the QK direction, a NumPy or JAX array (keys, queries).

    Returns:
        The part that is the same for every query (singular value nu_1, once) and the rest (nu_2, M - 1
        times); they are orthogonal and sum to the direction.
    """
    shared = direction.mean(axis=1, keepdims=True) + 0 * direction
    return shared, direction - shared
