"""Appending padding changes nothing, whatever the metric, and padding is never counted."""

import numpy as np
import pytest

from qkflow import metrics

RNG = np.random.default_rng(7)
ROWS = RNG.dirichlet(np.ones(7), 40)
ROWS[:, 2] = ROWS[:, 4] = ROWS[:, [2, 4]].mean(axis=1)
ROWS[20:, [0, 1, 5, 6]] = 0
ROWS /= ROWS.sum(axis=1, keepdims=True)
"""With ties, and with real tokens that get as little as padding."""
RELEVANT = RNG.random((40, 7)) < 0.4
REAL = np.ones((40, 7), dtype=bool)
BEHIND, BEFORE, INSIDE = ([*range(7)], [*range(3, 10)], [0, 1, 3, 4, 6, 8, 9])


def spread(values, places):
    """The same tokens among three of padding."""
    wide = np.zeros((*values.shape[:-1], 10), dtype=values.dtype)
    wide[..., places] = values
    return wide


def same(one, other):
    # Zeros may change the order of a sum, and so its last digits.
    np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("places", [BEHIND, BEFORE, INSIDE])
@pytest.mark.parametrize(
    "metric", [metrics.attention_mass, metrics.relevance_auroc, metrics.average_precision]
)
def test_of_relevant_tokens(metric, places):
    found = metric(spread(ROWS, places), spread(RELEVANT, places), spread(REAL, places))
    for one, other in zip(found, metric(ROWS, RELEVANT), strict=True):
        same(one, other)


@pytest.mark.parametrize("places", [BEHIND, BEFORE, INSIDE])
def test_of_sharpness(places):
    found = metrics.sharpness(spread(ROWS, places), spread(REAL, places))
    for one, other in zip(found, metrics.sharpness(ROWS), strict=True):
        same(one, other)


@pytest.mark.parametrize("places", [BEHIND, BEFORE, INSIDE])
@pytest.mark.parametrize("metric", [metrics.comprehensiveness, metrics.sufficiency])
@pytest.mark.parametrize("k", [None, 3])
def test_of_faithfulness(metric, places, k):
    ids = RNG.integers(0, 5, (40, 7))

    def model(tokens):
        def predict(kept):
            read = [tokens[n][positions] for n, positions in enumerate(kept)]
            first = [1 / (2 + sum((1 + j) * t for j, t in enumerate(one))) for one in read]
            return np.stack([first, 1 - np.array(first)], axis=1)

        return predict

    queries = RNG.integers(0, 7, 40)
    padded = model(spread(ids, places)), spread(ROWS, places), np.array(places)[queries]
    found = metric(*padded, real=spread(REAL, places), k=k)
    assert found == metric(model(ids), ROWS, queries, k=k)


@pytest.mark.parametrize("places", [BEHIND, BEFORE, INSIDE])
@pytest.mark.parametrize("filling", [0.0, 0.1, np.nan])
def test_of_heads_and_layers(places, filling):
    """What padding queries attend to, be it nothing, everything or NaN, is not read."""
    maps = RNG.dirichlet(np.ones(7), (3, 40, 2, 7))
    wide = np.full((3, 40, 2, 10, 10), filling)
    wide[..., places, :] = spread(maps, places)
    real = spread(REAL, places)

    def merged(maps, real):
        return np.stack([metrics.merge_heads(layer, "max", real) for layer in maps])

    one, other = merged(wide, real), merged(maps, None)
    for found, expected in (
        (one, other),
        (metrics.rollout(one, 0.5, real), metrics.rollout(other, 0.5)),
        (metrics.layer_mean(one, real), metrics.layer_mean(other)),
    ):
        same(found[..., places, :], spread(expected, places))
        same(found.sum(axis=-1), 1)
    rows = metrics.merge_heads(wide[0][:, :, places[3]], real=real)
    same(rows, spread(metrics.merge_heads(maps[0][:, :, 3]), places))
