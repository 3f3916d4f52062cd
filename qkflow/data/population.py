"""Every sequence of a setting, for training on the population itself."""

from __future__ import annotations

import itertools
import math

import numpy as np

from qkflow.data.sequences import Sequences
from qkflow.setting import ArgumentError, OrthogonalSetting

MAX_SEQUENCES = 1_000_000


def count_sequences(setting: OrthogonalSetting) -> int:
    """The number M Q C(b, m) C(B, n) of different sequences, exactly; C(B, n) is 1 where B is infinite.

    >>> count_sequences(OrthogonalSetting(4, 5, 2, 3, 7, 3))
    4200
    """
    common = 1
    if setting.n_common_vocab != math.inf:
        common = math.comb(int(setting.n_common_vocab), int(setting.n_common))
    distinct = math.comb(int(setting.n_distinct_vocab), int(setting.n_distinct))
    return int(setting.n_classes) * int(setting.n_query_vocab) * distinct * common


def _subsets(n: int, k: int) -> np.ndarray:
    return np.array(list(itertools.combinations(range(n), k)), dtype=np.int32)


def population(setting: OrthogonalSetting) -> Sequences:
    """Every (class, query, m-subset of the class's distinct tokens, n-subset of the common tokens), once.

    Returns:
        int32 arrays of N = `count_sequences(setting)` sequences, all equally likely.

    Raises:
        ArgumentError: when there are more than `MAX_SEQUENCES` of them.

    >>> population(OrthogonalSetting(4, 5, 2, 3, 7, 3)).tokens.shape
    (4200, 5)
    """
    count = count_sequences(setting)
    if count > MAX_SEQUENCES:
        raise ArgumentError(
            f"Training on the population needs a setting of at most {MAX_SEQUENCES} sequences, "
            f"but this one has {count}."
        )
    m_classes, b, q = int(setting.n_classes), int(setting.n_distinct_vocab), int(setting.n_query_vocab)
    distinct = _subsets(b, int(setting.n_distinct))
    common = np.zeros((1, 0), np.int32)
    if setting.n_common_vocab != math.inf:
        common = m_classes * b + _subsets(int(setting.n_common_vocab), int(setting.n_common))
    shape = (m_classes, q, len(distinct), len(common))
    classes, queries, d, k = (i.ravel().astype(np.int32) for i in np.indices(shape))
    tokens = np.concatenate([classes[:, None] * b + distinct[d], common[k]], axis=1, dtype=np.int32)
    return Sequences(classes, classes * q + queries, tokens)
