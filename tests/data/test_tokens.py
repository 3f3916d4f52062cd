"""The token task: its numbers, and counts drawn directly against sequences drawn token by token."""

import jax
import numpy as np
import pytest
from scipy import stats

from qkflow.data import TokenTask, count_tokens, sample_counts, sample_tokens
from qkflow.data.tokens import alias_table
from qkflow.setting import ArgumentError

SMALL = TokenTask(3, (1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 3.0), (0.2, 1.0, 4.0), length=9)
N = 200_000


def test_the_published_task():
    task = TokenTask()
    assert (task.n_tokens, task.n_common, task.n_context) == (50, 10, 62)
    assert task.labels.tolist() == [1, 2, 3, 4]
    assert task.queries.tolist() == [5, 6, 7, 8]
    assert task.probabilities[:10] == pytest.approx(np.full(10, 1 / 15.5))
    assert task.probabilities[10:] == pytest.approx(np.arange(1, 11) / 155)


@pytest.mark.parametrize("size", [1, 2, 5, 62, 63])
def test_an_alias_table_has_the_probabilities_it_was_made_of(size):
    """Summed exactly over all words: each column's own part and what it gives its alias."""
    mass = np.random.default_rng(size).dirichlet(np.full(size, 0.3))
    bits = int(size).bit_length()
    table = alias_table(mass, bits).astype(np.int64)
    unit = 2 ** (32 - bits)
    own, alias = table >> bits, table & (2**bits - 1)
    found = np.bincount(np.arange(2**bits), own, 2**bits) + np.bincount(alias, unit - own, 2**bits)
    # Every column is off by at most one unit of 2^-32, and 2^bits columns may point to one.
    assert np.abs(found / 2.0**32 - np.pad(mass, (0, 2**bits - size))).max() <= 2.0 ** (bits - 32)
    assert found.sum() == 2**32


@pytest.mark.parametrize("task", [TokenTask(), SMALL, TokenTask(query_attended=False)])
def test_a_drawn_bag_is_whole_and_of_its_class(task):
    classes, counts = (np.asarray(x) for x in sample_counts(jax.random.key(1), task, 2000))
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == task.n_context + task.query_attended).all()
    blocks = counts[:, task.n_common :].reshape(2000, task.n_classes, -1).sum(axis=2)
    blocks[np.arange(2000), classes] = 0
    assert not blocks.any()
    if task.query_attended:
        assert (counts[np.arange(2000), task.queries[classes]] >= 1).all()


def moments(task, counts):
    """Frequencies of every count of every token of class 0, (V, T): all that one token's law is."""
    return np.stack([np.bincount(column, minlength=task.length) for column in counts.T])


@pytest.mark.parametrize("route", ["counts", "tokens"])
def test_both_samplers_follow_the_multinomial(route):
    """Chi-square of every token's counts against the exact binomial, and all pair covariances.

    p-values are compared with 1e-6 over the 16 tokens: a true sampler fails once in 60,000 keys.
    """
    key = jax.random.key(2)
    if route == "counts":
        classes, counts = sample_counts(key, SMALL, N)
    else:
        classes, counts = count_tokens(SMALL, sample_tokens(key, SMALL, N))
    classes, counts = np.asarray(classes), np.asarray(counts)
    # 5 standard deviations of the share of a class
    assert np.abs(np.bincount(classes) / N - 1 / 3).max() < 5 * np.sqrt(2 / 9 / N)
    mine = counts[classes == 0].copy()
    mine[:, SMALL.queries[0]] -= 1
    p = np.concatenate([SMALL.probabilities, np.zeros(6)])
    n = SMALL.n_context
    for token, frequencies in enumerate(moments(SMALL, mine)):
        expected = stats.binom.pmf(np.arange(SMALL.length), n, p[token]) * len(mine)
        kept = expected > 5
        rest = frequencies[~kept].sum(), expected[~kept].sum()
        if kept.sum() > 1:
            found, wanted = np.append(frequencies[kept], rest[0]), np.append(expected[kept], rest[1])
            statistic = ((found - wanted) ** 2 / np.maximum(wanted, 1e-300))[wanted > 0].sum()
            assert stats.chi2.sf(statistic, (wanted > 0).sum() - 1) > 1e-6, token
        else:
            assert frequencies[0] == len(mine)
    covariance = np.cov(mine.T)
    exact = n * (np.diag(p) - np.outer(p, p))
    # The error of a covariance is at most about sqrt(2 var var / N); six of them.
    bound = 6 * np.sqrt(2 * np.outer(exact.diagonal(), exact.diagonal()) / len(mine))
    assert (np.abs(covariance - exact) <= bound + 1e-12).all()


def test_a_wrong_weight_would_be_seen():
    """The same chi-square with one weight 3 % off: the test above can fail."""
    wrong = TokenTask(3, SMALL.common_weights, (0.2, 1.0, 4.12), length=9)
    classes, counts = (np.asarray(x) for x in sample_counts(jax.random.key(2), wrong, N))
    frequencies = moments(SMALL, counts[classes == 0])[9]
    expected = stats.binom.pmf(np.arange(9), 7, SMALL.probabilities[-1]) * frequencies.sum()
    kept = expected > 5
    statistic = ((frequencies - expected) ** 2 / np.maximum(expected, 1e-300))[kept].sum()
    assert stats.chi2.sf(statistic, kept.sum() - 1) < 1e-6


def test_balanced_classes_and_equal_keys():
    classes, counts = sample_counts(jax.random.key(3), SMALL, 9, balanced=True)
    assert classes.tolist() == [0, 1, 2] * 3
    again = sample_counts(jax.random.key(3), SMALL, 9, balanced=True)
    assert (again.counts == counts).all()
    assert (sample_counts(jax.random.key(4), SMALL, 9).counts != counts).any()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_classes": 1}, "Argument `n_classes` must be a whole number >= 2, but is 1"),
        ({"n_classes": 2.5}, "Argument `n_classes` must be a whole number"),
        ({"length": 2}, "Argument `length` must be a whole number from 3 to 257, but is 2"),
        ({"length": 258}, "Argument `length` must be"),
        ({"common_weights": (1.0,) * 8}, "Argument `common_weights` must hold at least 9 weights"),
        ({"common_weights": (1.0,) * 9 + (0.0,)}, "Argument `common_weights` must be positive"),
        ({"distinct_weights": ()}, "Argument `distinct_weights` must hold at least 1 weight"),
        ({"distinct_weights": (1.0, float("nan"))}, "Argument `distinct_weights` must be positive"),
    ],
)
def test_bad_numbers_are_named(arguments, words):
    with pytest.raises(ArgumentError) as error:
        TokenTask(**arguments)
    assert words in str(error.value)
