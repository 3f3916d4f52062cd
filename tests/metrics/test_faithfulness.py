"""Comprehensiveness and sufficiency."""

import math
from fractions import Fraction

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(2)
LENGTHS = (1, 2, 7, 20, 41)
WIDTH = max(LENGTHS)
SEQUENCES = [RNG.integers(0, 3, size) for size in LENGTHS]
ROWS = [RNG.dirichlet(np.ones(size)) for size in LENGTHS]
QUERIES = [0, 1, 3, 0, 40]


def padded(rows):
    return np.stack([np.pad(row, (0, WIDTH - len(row))) for row in rows])


PADDED, REAL = padded(ROWS), padded([np.ones(size) for size in LENGTHS])


class Ordered:
    """A model that reads the order of the tokens; it keeps what it was asked."""

    def __init__(self, sequences):
        self.sequences, self.seen = sequences, []

    def one(self, tokens):
        """Class 0: .1 + .8 times the share of token 0, the earlier the heavier; .1 for no tokens."""
        weights = 1.0 / (1 + np.arange(len(tokens)))
        p = 0.1 + 0.8 * float((weights * (tokens == 0)).sum() / weights.sum() if len(tokens) else 0)
        return np.array([p, 1 - p])

    def __call__(self, kept):
        self.seen.append([positions.tolist() for positions in kept])
        pairs = zip(self.sequences, kept, strict=True)
        return [self.one(np.asarray(tokens)[positions]) for tokens, positions in pairs]


def reads(position, sure=(0.95, 0.05), empty=(0.3, 0.7)):
    return lambda kept: [sure if position in positions else empty for positions in kept]


def test_a_model_that_reads_one_token():
    """k = 1 and that token first: comprehensiveness is f(x) - f(empty), sufficiency 0."""
    rows = [[0.1, 0.2, 0.6, 0.1], [0.0, 0.1, 0.9, 0.0]]
    assert metrics.comprehensiveness(reads(2), rows, k=1) == pytest.approx(0.95 - 0.3)
    assert metrics.sufficiency(reads(2), rows, k=1) == 0
    # With attention elsewhere it is the other way round.
    elsewhere = [[0.1, 0.6, 0.2, 0.1]]
    assert metrics.comprehensiveness(reads(2), elsewhere, k=1) == 0
    assert metrics.sufficiency(reads(2), elsewhere, k=1) == pytest.approx(0.95 - 0.3)


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize("shares", [metrics.AOPC_SHARES, (0.1,), None])
def test_against_a_plain_loop(queries, shares):
    """Of lists of unequal length, deleted one token at a time, ranked by `sorted`, counted in fractions."""
    model, without, only = Ordered(SEQUENCES), [], []
    for n, (tokens, row) in enumerate(zip(SEQUENCES, ROWS, strict=True)):
        query = None if queries is None else queries[n]
        best = sorted((j for j in range(len(row)) if j != query), key=lambda j: (-row[j], j))
        full = model.one(tokens)
        c = int(full[1] > full[0])
        for share in shares or [None]:
            k = 3 if share is None else max(1, math.ceil(Fraction(str(share)) * len(row)))
            rest = [token for j, token in enumerate(tokens) if j not in best[:k]]
            top = [token for j, token in enumerate(tokens) if j in best[:k] or j == query]
            without.append(full[c] - model.one(np.array(rest))[c])
            only.append(full[c] - model.one(np.array(top))[c])
    how = {"k": 3} if shares is None else {"shares": shares}
    for metric, expected in ((metrics.comprehensiveness, without), (metrics.sufficiency, only)):
        assert metric(model, PADDED, queries, real=REAL, **how) == pytest.approx(np.mean(expected))


def test_what_the_model_is_asked():
    """Real tokens in their order, the query always; never padding."""
    model = Ordered(SEQUENCES)
    metrics.comprehensiveness(model, PADDED, QUERIES, real=REAL)
    metrics.sufficiency(model, PADDED, QUERIES, real=REAL)
    assert len(model.seen) == 2 * (1 + 5)
    for call in model.seen:
        for kept, query, size in zip(call, QUERIES, LENGTHS, strict=True):
            assert kept == sorted(set(kept))
            assert query in kept
            assert max(kept) < size
    assert model.seen[0] == [list(range(size)) for size in LENGTHS]


def test_without_a_query_all_may_go():
    model = Ordered([[0, 1]])
    metrics.comprehensiveness(model, [[0.5, 0.5]], k=5)
    assert model.seen[1] == [[]]


def test_a_query_that_is_attended_most_is_no_top_token():
    model = Ordered([[0, 1, 2]])
    metrics.comprehensiveness(model, [[0.2, 0.1, 0.7]], [2], k=1)
    metrics.sufficiency(model, [[0.2, 0.1, 0.7]], [2], k=1)
    assert [model.seen[1], model.seen[3]] == [[[1, 2]], [[0, 2]]]


def test_ties_are_broken_by_position():
    model = Ordered([np.zeros(40, int)])
    metrics.sufficiency(model, [np.full(40, 1 / 40)], k=7)
    assert model.seen[1] == [list(range(7))]


@pytest.mark.parametrize(("share", "size", "k"), [(0.1, 30, 3), (0.07, 100, 7), (0.1, 31, 4), (0.01, 5, 1)])
def test_shares_are_rounded_up_and_no_further(share, size, k):
    """.1 * 30 is 3.0000000000000004 in floating point, .07 * 100 is 7.000000000000001."""
    model = Ordered([np.zeros(size, int)])
    metrics.sufficiency(model, [np.full(size, 1 / size)], shares=[share])
    assert len(model.seen[1][0]) == k


def test_the_class_is_that_predicted_on_the_full_input():
    """Where the smaller probability rises as the token goes, both may be negative or positive, never |.|."""
    sure_of_1 = reads(0, sure=(0.2, 0.8), empty=(0.9, 0.1))
    assert metrics.comprehensiveness(sure_of_1, [[0.9, 0.1]], k=1) == pytest.approx(0.7)
    less_sure = reads(0, sure=(0.6, 0.4), empty=(0.9, 0.1))
    assert metrics.comprehensiveness(less_sure, [[0.9, 0.1]], k=1) == pytest.approx(-0.3)


ROW = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((ROW,), {"k": 0}, "`k` must be a whole number of at least 1, but is 0."),
        ((ROW,), {"k": 1.5}, "`k` must be a whole number of at least 1, but is 1.5."),
        ((ROW,), {"k": np.inf}, "`k` must be a whole number of at least 1, but is inf."),
        ((ROW,), {"k": [1, 2]}, "`k` must be one number"),
        ((ROW,), {"shares": [0]}, "`shares` must be above 0"),
        ((ROW,), {"shares": [np.nan]}, "`shares` must be above 0"),
        ((ROW,), {"shares": [50]}, "`shares` must be above 0 and at most 1, but is 50."),
        ((ROW,), {"shares": []}, "`shares` must hold 1 share or more"),
        ((ROW, [2]), {}, "`queries` must be whole numbers from 0 to 1, but is 2."),
        ((ROW, [0.5]), {}, "`queries` must be whole numbers from 0 to 1, but is 0.5."),
        ((ROW, [-1]), {}, "`queries` must be whole numbers from 0 to 1, but is -1."),
        ((ROW, [0, 1]), {}, "`queries` must have shape (1,), but has (2,)."),
        (([[1.0, 0.0]], [1]), {"real": [[1, 0]]}, "`queries` must name real tokens"),
        ((ROW,), {"real": [[1, 0]]}, "`attention` must be exactly 0 on padding"),
        (([],), {}, "`attention` must have shape (N, L)"),
        (([[0.5, 0.4]],), {}, "`attention` must sum to 1"),
        (([[0.5, np.nan]],), {}, "`attention` must be finite"),
    ],
)
def test_bad_arguments_are_named(arguments, options, words):
    for metric in (metrics.comprehensiveness, metrics.sufficiency):
        with pytest.raises(ArgumentError) as error:
            metric(Ordered([[0, 1]]), *arguments, **options)
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda kept: [0.5], "must return shape (1, classes), but returned (1,)."),
        (lambda kept: [[0.5, 0.5]] * 2, "must return shape (1, classes), but returned (2, 2)."),
        (lambda kept: [[2.0, -1.0]], "must return probabilities"),
        (lambda kept: [[np.nan, 1.0]], "must return probabilities"),
        (lambda kept: [[0.9, 0.9]], "must return probabilities"),
        (lambda kept: [np.full(1 + len(kept[0]), 1 / (1 + len(kept[0])))], "must return the same classes"),
        (lambda kept: [["yes"]], "must be one array of numbers"),
    ],
)
def test_predictions_that_are_none_are_refused(predict, words):
    with pytest.raises(ArgumentError) as error:
        metrics.sufficiency(predict, ROW, k=1)
    assert words in str(error.value)
