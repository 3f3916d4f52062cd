"""Fresh random sequences of a setting, for stochastic training."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from qkflow.data.sequences import Sequences
from qkflow.setting import OrthogonalSetting


def sample(key: jax.Array, setting: OrthogonalSetting, batch_size: int) -> Sequences:
    """Independent sequences: uniform class, query and tokens, tokens without replacement in a sequence.

    Args:
        key: a PRNG key.
        setting: concrete counts (they are shapes).
        batch_size: N.

    Returns:
        int32 arrays of N sequences.

    >>> sample(jax.random.key(0), OrthogonalSetting(4, 5, 2, 3, 7, 3), 32).tokens.shape
    (32, 5)
    """
    m_classes, b, q = int(setting.n_classes), int(setting.n_distinct_vocab), int(setting.n_query_vocab)
    common_vocab = 0 if setting.n_common_vocab == math.inf else int(setting.n_common_vocab)
    # One draw for everything: the places of the largest of independent uniform numbers are a uniform subset.
    uniform = jax.random.uniform(key, (batch_size, 2 + b + common_vocab))
    classes = (uniform[:, 0] * m_classes).astype(jnp.int32)
    queries = classes * q + (uniform[:, 1] * q).astype(jnp.int32)
    distinct = jax.lax.top_k(uniform[:, 2 : 2 + b], int(setting.n_distinct))[1]
    tokens = classes[:, None] * b + distinct
    if common_vocab:
        common = jax.lax.top_k(uniform[:, 2 + b :], int(setting.n_common))[1]
        tokens = jnp.concatenate([tokens, m_classes * b + common], axis=1)
    return Sequences(classes, queries, tokens)
