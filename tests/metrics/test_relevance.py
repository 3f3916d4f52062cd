"""Whether attention ranks the relevant tokens first."""

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(6)
# Tenths, so that many weights are equal.
TENTHS = RNG.multinomial(10, np.full(9, 1 / 9), 60) / 10
RELEVANT = RNG.random((60, 9)) < 0.2
COUNTED = [(r, c) for r, c in zip(TENTHS, RELEVANT, strict=True) if 0 < c.sum() < 9]


def pair_count(row, chosen):
    pairs = [(a, b) for a in row[chosen] for b in row[~chosen]]
    return sum((a > b) + 0.5 * (a == b) for a, b in pairs) / len(pairs)


def area_under_recall(row, chosen):
    """Precision times the rise of recall, threshold by threshold down the distinct weights."""
    area = recall = 0.0
    for threshold in sorted(set(row), reverse=True):
        taken = row >= threshold
        now = (taken & chosen).sum() / chosen.sum()
        area += (now - recall) * (taken & chosen).sum() / taken.sum()
        recall = now
    return area


@pytest.mark.parametrize(
    ("metric", "route"),
    [(metrics.relevance_auroc, pair_count), (metrics.average_precision, area_under_recall)],
)
def test_against_another_route_with_ties(metric, route):
    found = metric(TENTHS, RELEVANT)
    assert found.values == pytest.approx([route(*pair) for pair in COUNTED])
    assert found.excluded == 60 - len(COUNTED) > 0
    assert found.mean == pytest.approx(found.values.mean())
    assert found.included.tolist() == [bool(0 < c.sum() < 9) for c in RELEVANT]


def test_by_hand():
    row, relevant = [[0.4, 0.3, 0.2, 0.1]], [[1, 0, 1, 0]]
    assert metrics.average_precision(row, relevant).mean == pytest.approx((1 + 2 / 3) / 2)
    assert metrics.relevance_auroc(row, relevant).mean == pytest.approx(3 / 4)
    assert metrics.average_precision(row, [[0, 0, 0, 1]]).mean == pytest.approx(1 / 4)
    assert metrics.relevance_auroc(row, [[0, 0, 0, 1]]).mean == 0


def test_uniform_attention_is_chance():
    uniform = np.full((60, 9), 1 / 9)
    assert (metrics.relevance_auroc(uniform, RELEVANT).values == 0.5).all()
    shares = [chosen.mean() for _, chosen in COUNTED]
    assert metrics.average_precision(uniform, RELEVANT).values == pytest.approx(shares)


def test_turning_the_ranking_round_turns_auroc_round():
    rows = RNG.dirichlet(np.ones(9), 60)
    reverse = (rows.max(axis=1, keepdims=True) - rows) / 9
    reverse += (1 - reverse.sum(axis=1, keepdims=True)) / 9
    one, other = (metrics.relevance_auroc(x, RELEVANT).values for x in (rows, reverse))
    assert one + other == pytest.approx(np.ones(len(one)))


def test_examples_all_relevant_or_not_at_all_are_excluded_and_counted():
    rows, relevant = np.full((3, 2), 0.5), [[1, 1], [0, 0], [0, 1]]
    for metric in (metrics.relevance_auroc, metrics.average_precision):
        found = metric(rows, relevant)
        assert (found.excluded, found.values.size, found.included.tolist()) == (2, 1, [False, False, True])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[0.5, 0.5]], [[1, 1]]), "`relevant` must leave some, not all"),
        (([[0.5, 0.5]], [[0, 0]]), "`relevant` must leave some, not all"),
        (([[0.5, 0.5, 0]], [[1, 1, 0]], [[1, 1, 0]]), "`relevant` must leave some, not all"),
        (([[0.5, 0.5]], [[1]]), "`relevant` must have shape (1, 2)"),
        (([[0.5, 0.5]], [[1, np.nan]]), "`relevant` must be true or false (1 or 0), but is nan."),
        (([[0.5, 0.5, 0]], [[1, 0, 1]], [[1, 1, 0]]), "`relevant` must be false on padding"),
        (([[0.5, 0.5], [1.0]], [[1, 0], [0]]), "`attention` must be one array of numbers"),
        (([[0.5, np.nan]], [[1, 0]]), "`attention` must be finite"),
        (([[0.5, 0.6]], [[1, 0]]), "`attention` must sum to 1"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    for metric in (metrics.relevance_auroc, metrics.average_precision):
        with pytest.raises(ArgumentError) as error:
            metric(*arguments)
        assert words in str(error.value)
