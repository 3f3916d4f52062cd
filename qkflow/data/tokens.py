"""Random sequences of the token task: as counts of tokens, drawn directly, or token by token.

Without positions a sequence is a bag of tokens, and its counts are all that a layer sees. Counts of n
independent tokens in cells of probabilities p_1, p_2, ... are a chain of binomials: the first cell holds
Binomial(n, p_1), the second Binomial(what is left, p_2 / (1 - p_1)), and so on. Each binomial is one
lookup in an alias table (Walker 1977): 32 random bits name a column and decide between it and its alias.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from qkflow.data.token_task import TokenTask


class TokenCounts(NamedTuple):
    """N sequences as bags of tokens.

    Args:
        classes: int32 (N,).
        counts: int32 (N, V), how often each token stands at a position that is attended.
    """

    classes: Any
    counts: Any


class Tokens(NamedTuple):
    """N sequences token by token.

    Args:
        classes: int32 (N,).
        queries: int32 (N,), the query's token.
        tokens: int32 (N, L), the positions attended: the context and, where it is attended, the query last.
    """

    classes: Any
    queries: Any
    tokens: Any


def _binomials(n: int, p: float) -> np.ndarray:
    """The probabilities of Binomial(k, p) for k = 0 .. n, float64 (n + 1, n + 1)."""
    k, x = np.ogrid[: n + 1, : n + 1]
    rest = np.maximum(k - x, 0)
    log_p = gammaln(k + 1) - gammaln(x + 1) - gammaln(rest + 1) + xlogy(x, p) + xlog1py(rest, -p)
    mass = np.where(x <= k, np.exp(log_p), 0.0)
    return mass / mass.sum(axis=1, keepdims=True)


def alias_table(mass: np.ndarray, bits: int) -> np.ndarray:
    """Walker's table of a distribution over at most 2^bits outcomes, its two halves packed in one word.

    Args:
        mass: probabilities, (outcomes,).
        bits: of the column's number.

    Returns:
        uint32 (2^bits,): the chance of the column in the upper 32 - bits bits, in units of 2^(bits - 32),
        and its alias in the lower ones. A probability is off by at most 2^-32 a column.

    >>> table = alias_table(np.array([0.25, 0.75]), 1)
    >>> (table >> 1).tolist(), (table & 1).tolist()  # column 0: itself half of the time, else 1
    ([1073741824, 2147483647], [1, 1])
    """
    columns, unit = 2**bits, 2 ** (32 - bits)
    share = np.zeros(columns)
    share[: len(mass)] = mass * columns
    chance, alias = np.ones(columns), np.arange(columns, dtype=np.uint32)
    poor = [int(i) for i in np.flatnonzero(share < 1)]
    rich = [int(i) for i in np.flatnonzero(share >= 1)]
    while poor and rich:
        low, high = poor.pop(), rich.pop()
        chance[low], alias[low] = share[low], high
        share[high] -= 1 - share[low]
        (poor if share[high] < 1 else rich).append(high)
    # A full column is its own alias, so that it may lose the one unit that does not fit.
    units = np.minimum(np.rint(chance * unit), unit - 1).astype(np.uint32)
    return units << np.uint32(bits) | alias


@functools.lru_cache
def _tables(task: TokenTask) -> tuple[np.ndarray, int]:
    """The alias tables of every cell but the last and every number of tokens left, flat, and their bits."""
    n, p = task.n_context, task.probabilities
    bits = int(n).bit_length()
    tails = np.cumsum(p[::-1])[::-1]
    tables = [[alias_table(row, bits) for row in _binomials(n, x / t)] for x, t in zip(p[:-1], tails[:-1])]
    return np.array(tables).reshape(len(p) - 1, -1), bits


def sample_counts(key: jax.Array, task: TokenTask, n_sequences: int, balanced: bool = False) -> TokenCounts:
    """Independent sequences as counts, one random word a cell instead of one a token.

    Args:
        key: a PRNG key.
        task: concrete numbers.
        n_sequences: N.
        balanced: the classes in turn, 0, 1, ..., M - 1, 0, ..., instead of at random.

    >>> sample_counts(jax.random.key(0), TokenTask(), 32).counts.sum(axis=1).tolist() == [63] * 32
    True
    """
    tables, bits = _tables(task)
    of_class, of_cells = jax.random.split(key)
    if balanced:
        classes = jnp.arange(n_sequences, dtype=jnp.int32) % task.n_classes
    else:
        classes = jax.random.randint(of_class, (n_sequences,), 0, task.n_classes, dtype=jnp.int32)
    words = jax.random.bits(of_cells, (len(tables), n_sequences), "uint32")
    low = jnp.uint32(2 ** (32 - bits) - 1)
    left = jnp.full(n_sequences, task.n_context, jnp.int32)
    cells = []
    for table, word in zip(tables, words, strict=True):
        column = (word >> (32 - bits)).astype(jnp.int32)
        entry = jnp.asarray(table)[left * 2**bits + column]
        own = (word & low) < (entry >> bits)
        count = jnp.where(own, column, (entry & jnp.uint32(2**bits - 1)).astype(jnp.int32))
        cells.append(count)
        left = left - count
    cells = jnp.stack([*cells, left], axis=1)
    member = jax.nn.one_hot(classes, task.n_classes, dtype=jnp.int32)
    common, distinct = cells[:, : task.n_common], cells[:, task.n_common :]
    if task.query_attended:
        first = int(task.queries[0])
        after = task.n_common - first - task.n_classes
        common = common + jnp.pad(member, ((0, 0), (first, after)))
    own = (member[:, :, None] * distinct[:, None, :]).reshape(n_sequences, -1)
    return TokenCounts(classes, jnp.concatenate([common, own], axis=1))


def sample_tokens(key: jax.Array, task: TokenTask, n_sequences: int) -> Tokens:
    """Independent sequences token by token, with `jax.random.categorical`: slow and simple.

    Args:
        key: a PRNG key.
        task: concrete numbers.
        n_sequences: N.

    >>> sample_tokens(jax.random.key(0), TokenTask(), 32).tokens.shape
    (32, 63)
    """
    of_class, of_cells = jax.random.split(key)
    classes = jax.random.randint(of_class, (n_sequences,), 0, task.n_classes, dtype=jnp.int32)
    log_p = jnp.log(task.probabilities)
    cells = jax.random.categorical(of_cells, log_p, shape=(n_sequences, task.n_context)).astype(jnp.int32)
    own = cells + classes[:, None] * len(task.distinct_weights)
    tokens = jnp.where(cells < task.n_common, cells, own)
    queries = jnp.asarray(task.queries, jnp.int32)[classes]
    if task.query_attended:
        tokens = jnp.concatenate([tokens, queries[:, None]], axis=1)
    return Tokens(classes, queries, tokens)


def count_tokens(task: TokenTask, tokens: Tokens) -> TokenCounts:
    """The same sequences as bags.

    >>> tokens = sample_tokens(jax.random.key(0), TokenTask(), 5)
    >>> count_tokens(TokenTask(), tokens).counts.shape
    (5, 50)
    """
    counts = jax.vmap(functools.partial(jnp.bincount, length=task.n_tokens))(tokens.tokens)
    return TokenCounts(tokens.classes, counts.astype(jnp.int32))
