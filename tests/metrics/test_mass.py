"""Attention mass, DTAP maps, AC and ACMC."""

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(0)
ROWS = RNG.dirichlet(np.ones(7), 40)
RELEVANT = RNG.random((40, 7)) < 0.4
MASS, PROBABILITY = RNG.random(300), RNG.random(300)


def test_uniform_attention_gives_the_share_of_relevant_tokens():
    rows = np.full((40, 7), 1 / 7)
    found = metrics.attention_mass(rows, RELEVANT)
    counts = RELEVANT.sum(axis=1)
    assert found.values == pytest.approx(counts[counts > 0] / 7)


def test_against_a_plain_loop():
    found = metrics.attention_mass(ROWS, RELEVANT)
    sums = [sum(row[chosen]) for row, chosen in zip(ROWS, RELEVANT, strict=True) if chosen.any()]
    assert found.values == pytest.approx(sums)


def test_rows_of_half_precision_are_rows_all_the_same():
    """A thousandth in float16 is .00100040: of a thousand, half is half and all is all."""
    rows = np.full((2, 1000), np.float16(0.001))
    relevant = np.ones((2, 1000))
    relevant[0, 500:] = 0
    found = metrics.attention_mass(rows, relevant)
    assert found.values.dtype == np.float64
    assert found.values == pytest.approx([0.5, 1], rel=1e-14, abs=0)
    assert (found.values <= 1).all()


def test_the_layout_in_memory_changes_nothing_and_no_mass_exceeds_1():
    """All but a token without attention is all: summed in another order it could be 1 and some 1e-15."""
    rows = RNG.dirichlet(np.ones(200), 30)
    rows[:, 7] = 0
    rows /= rows.sum(axis=1, keepdims=True)
    relevant = np.arange(200) != np.full((30, 1), 7)
    for row_order in "CF":
        for relevant_order in "CF":
            found = metrics.attention_mass(
                np.array(rows, order=row_order), np.array(relevant, order=relevant_order)
            )
            assert (found.values == 1).all()
    assert metrics.dtap(found.values, found.values)[-1, -1] == 100


def test_examples_without_relevant_tokens_are_excluded_and_counted():
    relevant = RELEVANT.copy()
    relevant[[3, 8]] = False
    found = metrics.attention_mass(ROWS, relevant)
    empty = int((~relevant.any(axis=1)).sum())
    assert found.excluded == empty >= 2
    assert len(found.values) == 40 - empty == found.included.sum()
    assert found.included.tolist() == relevant.any(axis=1).tolist()


def test_the_map_against_a_plain_loop():
    """Bins (lo, hi], the first with 0: also for values on the edges."""
    mass = np.concatenate([MASS, [0, 0.2, 0.4, 0.6, 0.8, 1]])
    probability = np.concatenate([PROBABILITY, [0.2, 0, 0.8, 0.4, 1, 0.6]])
    edges = [0, 0.2, 0.4, 0.6, 0.8, 1]
    expected = np.zeros((5, 5))
    for a, p in zip(mass, probability, strict=True):
        row = next(k for k in range(5) if p <= edges[k + 1])
        column = next(k for k in range(5) if a <= edges[k + 1])
        expected[row, column] += 100 / len(mass)
    assert metrics.dtap(mass, probability) == pytest.approx(expected)
    assert metrics.dtap(mass, probability).sum() == pytest.approx(100)


def test_acmc_is_a_block_of_the_map_and_at_most_ac():
    map_ = metrics.dtap(MASS, PROBABILITY)
    assert metrics.acmc(MASS, PROBABILITY, 0.6, 0.4) == pytest.approx(map_[2:, 3:].sum() / 100)
    assert metrics.attention_confidence(MASS, 0.6) == pytest.approx(map_[:, 3:].sum() / 100)
    for theta in np.linspace(0, 1, 11):
        assert metrics.acmc(MASS, PROBABILITY, theta, 0.3) <= metrics.attention_confidence(MASS, theta)
        assert metrics.acmc(MASS, 1 + 0 * MASS, theta, 0.3) == metrics.attention_confidence(MASS, theta)


def test_thresholds_are_to_be_exceeded():
    mass, probability = [0.5, 0.5, 0.75, 0.75], [0.75, 0.5, 0.75, 0.5]
    assert metrics.attention_confidence(mass, 0.5) == 0.5
    assert metrics.acmc(mass, probability, 0.5, 0.25) == 0.5
    assert metrics.acmc(mass, probability, 0.25, 0.5) == 0.5
    assert metrics.acmc(mass, probability, 0.5, 0.5) == 0.25
    assert metrics.attention_confidence(mass, 1) == metrics.acmc(mass, probability, 1, 1) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.attention_mass(2 * ROWS, RELEVANT), "Argument `attention` must sum to 1"),
        (lambda: metrics.attention_mass(ROWS * np.nan, RELEVANT), "Argument `attention` must be finite"),
        (
            lambda: metrics.attention_mass(ROWS, RELEVANT[:, :3]),
            "Argument `relevant` must have shape (40, 7)",
        ),
        (lambda: metrics.attention_mass(ROWS, RELEVANT & False), "Argument `relevant` must name a token"),
        (lambda: metrics.attention_mass(ROWS, RELEVANT, RELEVANT), "Argument `attention` must be exactly 0"),
        (
            lambda: metrics.attention_mass(ROWS, RELEVANT * np.nan),
            "Argument `relevant` must be true or false",
        ),
        (lambda: metrics.attention_mass(ROWS[0], RELEVANT[0]), "Argument `attention` must have shape (N, L)"),
        (
            lambda: metrics.attention_mass([[1, 0]], [[1, 1]], [[1, 0]]),
            "Argument `relevant` must be false on",
        ),
        (lambda: metrics.dtap(MASS, PROBABILITY[:3]), "Argument `probability` must have shape (300,)"),
        (lambda: metrics.dtap(MASS, PROBABILITY, [0.5, 0.5]), "Argument `edges` must increase strictly"),
        (lambda: metrics.dtap(MASS, PROBABILITY, [0.5, 1.0]), "Argument `edges` must increase strictly"),
        (lambda: metrics.dtap(MASS, PROBABILITY, [0.6, 0.2]), "Argument `edges` must increase strictly"),
        (lambda: metrics.dtap(MASS, PROBABILITY, [np.nan]), "Argument `edges` must increase strictly"),
        (lambda: metrics.dtap(MASS, PROBABILITY, 0.5), "Argument `edges` must increase strictly"),
        (lambda: metrics.dtap(MASS + 1, PROBABILITY), "Argument `mass` must be between 0 and 1"),
        (lambda: metrics.dtap(MASS * np.nan, PROBABILITY), "Argument `mass` must be between 0 and 1"),
        (lambda: metrics.dtap([], []), "Argument `mass` must have shape (N,)"),
        (lambda: metrics.attention_confidence(MASS, 1.5), "Argument `theta` must be between 0 and 1"),
        (lambda: metrics.attention_confidence(MASS, np.nan), "Argument `theta` must be between 0 and 1"),
        (lambda: metrics.attention_confidence(MASS, MASS), "Argument `theta` must be one number"),
        (lambda: metrics.acmc(MASS, PROBABILITY[1:], 0.5, 0.5), "Argument `probability` must have shape"),
        (lambda: metrics.acmc(MASS, PROBABILITY, 0.5, -1), "Argument `pi` must be between 0 and 1"),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ArgumentError) as error:
        call()
    assert words in str(error.value)
