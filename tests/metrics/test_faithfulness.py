"""Comprehensiveness, sufficiency and relevance."""

import itertools

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(2)


class Bag:
    """A model on sequences of tokens: the share of each token, in order-dependent weights of its own."""

    def __init__(self, sequences):
        """Keep the sequences."""
        self.sequences, self.seen = sequences, []

    def __call__(self, kept):
        """Probability of class 0: .1 + .8 times the share of token 0, weighted by place; empty: .1."""
        self.seen.append([tuple(k) for k in kept])
        p = []
        for sequence, positions in zip(self.sequences, kept, strict=True):
            tokens = np.asarray(sequence)[positions]
            weights = 1.0 / (1 + np.arange(len(tokens)))
            p.append(0.1 + 0.8 * float((weights * (tokens == 0)).sum() / weights.sum() if len(tokens) else 0))
        return np.stack([p, 1 - np.array(p)], axis=1)


def test_a_model_that_reads_one_token():
    """k = 1 and that token first: comprehensiveness is f(x) - f(empty), sufficiency 0."""

    def reads(kept):
        return [[0.95, 0.05] if 2 in positions else [0.3, 0.7] for positions in kept]

    rows = [[0.1, 0.2, 0.6, 0.1], [0.0, 0.1, 0.9]]
    assert metrics.comprehensiveness(reads, rows, k=1) == pytest.approx(0.65)
    assert metrics.sufficiency(reads, rows, k=1) == 0


def test_against_a_plain_loop_with_shares_and_a_query():
    sequences = [RNG.integers(0, 3, size) for size in (1, 2, 7, 20, 41)]
    rows = [RNG.dirichlet(np.ones(len(s))) for s in sequences]
    queries = [len(s) - 1 for s in sequences]
    shares = (0.01, 0.05, 0.1, 0.2, 0.5)
    bag = Bag(sequences)
    without, only = [], []
    for share, (k, s) in itertools.product(shares, enumerate(sequences)):
        size, one = len(s), Bag([s])
        count = max(1, int(np.ceil(share * size - 1e-9)))
        best = sorted((j for j in range(size) if j != queries[k]), key=lambda j: (-rows[k][j], j))[:count]
        full = one([range(size)])[0]
        c = full.argmax()
        without.append(full[c] - one([[j for j in range(size) if j not in best]])[0][c])
        only.append(full[c] - one([sorted([*best, queries[k]])])[0][c])
    assert metrics.comprehensiveness(bag, rows, queries) == pytest.approx(np.mean(without))
    assert metrics.sufficiency(bag, rows, queries) == pytest.approx(np.mean(only))
    for kept in itertools.chain.from_iterable(bag.seen):
        assert list(kept) == sorted(set(kept))
    assert all(queries[i] in kept for call in bag.seen for i, kept in enumerate(call))


def test_ties_are_broken_by_position():
    assert metrics.order([0.25, 0.25, 0.25, 0.25], query=1).tolist() == [0, 2, 3]


def test_a_tenth_of_thirty_is_three():
    """.1 * 30 is 3.0000000000000004 in floating point."""
    bag = Bag([np.zeros(30, int)])
    metrics.sufficiency(bag, [np.full(30, 1 / 30)], shares=[0.1])
    assert len(bag.seen[1][0]) == 3


def ranks(row, chosen):
    pairs = [(row[i], row[j]) for i in np.flatnonzero(chosen) for j in np.flatnonzero(~chosen)]
    return np.mean([1.0 * (a > b) + 0.5 * (a == b) for a, b in pairs])


def test_auroc_against_counting_pairs_with_ties():
    rows = [np.round(RNG.dirichlet(np.ones(9)), 1) + 1e-9 for _ in range(30)]
    rows = [row / row.sum() for row in rows]
    relevant = [RNG.random(9) < 0.4 for _ in rows]
    kept = [(r, c) for r, c in zip(rows, relevant, strict=True) if 0 < c.sum() < 9]
    found = metrics.relevance_auroc(rows, relevant)
    assert found.values == pytest.approx([ranks(*pair) for pair in kept])
    assert found.excluded == 30 - len(kept)
    assert found.mean == pytest.approx(found.values.mean())


def test_average_precision_by_hand():
    rows = [[0.4, 0.3, 0.2, 0.1]]
    assert metrics.relevance_precision(rows, [[1, 0, 1, 0]]).mean == pytest.approx((1 + 2 / 3) / 2)
    assert metrics.relevance_precision([[0.25] * 4], [[1, 0, 1, 0]]).mean == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: metrics.sufficiency(p, [[0.5, 0.5]], k=0), "Argument `k` must be a whole number"),
        (lambda p: metrics.sufficiency(p, [[0.5, 0.5]], shares=[0]), "Argument `shares` must be above 0"),
        (lambda p: metrics.sufficiency(p, [[0.5, 0.5]], shares=[]), "Argument `shares` must hold at least 1"),
        (lambda p: metrics.sufficiency(p, [[0.5, 0.5]], [2]), "Argument `queries` must lie from 0 to 1"),
        (lambda p: metrics.sufficiency(p, [[0.5, 0.5]], [0, 1]), "Argument `queries` must hold 1 positions"),
        (lambda p: metrics.sufficiency(p, []), "Argument `attention` must hold at least 1 example"),
        (
            lambda p: metrics.sufficiency(lambda kept: [0.5], [[0.5, 0.5]]),
            "Argument `predict` must return shape",
        ),
        (lambda p: metrics.sufficiency(lambda kept: [[2.0, -1]], [[0.5, 0.5]]), "must return probabilities"),
        (lambda p: metrics.sufficiency(lambda kept: [[np.nan]], [[0.5, 0.5]]), "must return probabilities"),
        (lambda p: metrics.relevance_auroc([[0.5, 0.5]], [[1, 1]]), "Argument `relevant` must leave some"),
        (lambda p: metrics.relevance_auroc([[0.5, 0.5]], [[1]]), "Argument `relevant` must have shape (2,)"),
        (lambda p: metrics.relevance_auroc([[0.5, 0.5]], []), "Argument `relevant` must hold 1 examples"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ArgumentError) as error:
        call(Bag([[0, 1]]))
    assert words in str(error.value)
