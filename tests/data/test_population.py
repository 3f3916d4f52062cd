import itertools
import math

import pytest

from qkflow.data import count_sequences, population
from qkflow.setting import ArgumentError, OrthogonalSetting


@pytest.mark.parametrize(
    "setting",
    [
        OrthogonalSetting(3, 4, 2, 1, 5, 6),
        OrthogonalSetting(4, 5, 2, 3, 7, 3),
        OrthogonalSetting(2, 3, 3, 2, 2, 1),
    ],
)
def test_every_sequence_once(setting):
    m_classes, b, m, n, big_b, q = (
        setting.n_classes,
        setting.n_distinct_vocab,
        setting.n_distinct,
        setting.n_common,
        setting.n_common_vocab,
        setting.n_query_vocab,
    )
    expected = {
        (c, c * q + k, frozenset(c * b + d for d in distinct), frozenset(m_classes * b + d for d in common))
        for c in range(m_classes)
        for k in range(q)
        for distinct in itertools.combinations(range(b), m)
        for common in itertools.combinations(range(big_b), n)
    }
    sequences = population(setting)
    found = [
        (int(c), int(k), frozenset(t[:m].tolist()), frozenset(t[m:].tolist()))
        for c, k, t in zip(*sequences, strict=True)
    ]
    assert len(found) == len(expected) == count_sequences(setting)
    assert set(found) == expected


def test_infinite_common_vocabulary_has_no_common_columns():
    sequences = population(OrthogonalSetting(4, 5, 2, 3, math.inf, 3))
    assert sequences.tokens.shape == (120, 2)
    assert sequences.tokens.max() == 19


def test_the_count_is_exact_and_the_limit_named():
    setting = OrthogonalSetting(20, 50, 25, 50, 100_000, 50)
    count = 1000 * math.comb(50, 25) * math.comb(100_000, 50)
    assert count_sequences(setting) == count
    with pytest.raises(ArgumentError, match=f"at most 1000000 sequences, but this one has {count}"):
        population(setting)
