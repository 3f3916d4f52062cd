"""Fresh random sequences of a setting, for stochastic training."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from qkflow.data.sequences import Sequences
from qkflow.setting import OrthogonalSetting


def _draw(key: jax.Array, batch_size: int, vocabulary: int, drawn: int) -> jax.Array:
    """Uniform subsets: the places of the largest of independent uniform numbers."""
    return jax.lax.top_k(jax.random.uniform(key, (batch_size, vocabulary)), drawn)[1]


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
    pair_key, distinct_key, common_key = jax.random.split(key, 3)
    pairs = jax.random.randint(pair_key, (batch_size,), 0, m_classes * q, dtype=jnp.int32)
    classes = pairs // q
    tokens = classes[:, None] * b + _draw(distinct_key, batch_size, b, int(setting.n_distinct))
    if setting.n_common_vocab != math.inf:
        common = _draw(common_key, batch_size, int(setting.n_common_vocab), int(setting.n_common))
        tokens = jnp.concatenate([tokens, m_classes * b + common], axis=1)
    return Sequences(classes, pairs, tokens)
