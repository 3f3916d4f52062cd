"""Heads and layers, sharpness, and the balanced state."""

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(1)
HEADS = RNG.dirichlet(np.ones(6), (5, 3))
LAYERS = [RNG.dirichlet(np.ones(6), (5, 6)) for _ in range(3)]


def test_duplicating_heads_changes_no_mean_and_no_maximum():
    twice = np.concatenate([HEADS, HEADS], axis=1)
    for how in ("mean", "max"):
        assert np.allclose(metrics.merge_heads(twice, how), metrics.merge_heads(HEADS, how), rtol=1e-14)
        assert metrics.merge_heads(HEADS, how).sum(axis=1) == pytest.approx(np.ones(5))
    assert (metrics.merge_heads(HEADS, 1) == HEADS[:, 1]).all()


@pytest.mark.parametrize("residual", [1.0, 0.5, 0.1])
def test_rollout_against_paths(residual):
    """Rows sum to 1, and an entry is the sum over all paths through the layers, the first one last."""
    found = metrics.rollout(LAYERS, residual)
    assert found.sum(axis=-1) == pytest.approx(np.ones((5, 6)))
    a, b, c = (residual * layer[0] + (1 - residual) * np.eye(6) for layer in LAYERS)
    paths = sum(c[4, i] * b[i, j] * a[j, 2] for i in range(6) for j in range(6))
    assert found[0, 4, 2] == pytest.approx(paths)


def test_with_one_layer_all_coincide():
    one = LAYERS[:1]
    assert np.allclose(metrics.rollout(one, 1.0), one[0], rtol=1e-14)
    assert np.allclose(metrics.layer_mean(one), one[0], rtol=1e-14)


def test_sharpness_from_one_token_to_uniform():
    """k equal tokens of T: entropy log k / log T, k effective tokens."""
    for k in range(1, 7):
        row = np.concatenate([np.full(k, 1 / k), np.zeros(6 - k)])
        entropy, tokens = metrics.sharpness(row)
        assert float(tokens) == pytest.approx(k)
        assert float(entropy) == pytest.approx(np.log(k) / np.log(6), abs=1e-15)
    assert metrics.sharpness([[1.0]]).entropy.tolist() == [0.0]


def test_imbalance_is_conserved_by_small_steps_and_zero_when_balanced():
    """Its numerator moves at second order of the step: a tenth of the step, a hundredth of the change."""
    a, b = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 5))
    target = RNG.normal(size=(4, 5))

    def moved(step):
        gradient = a @ b - target
        after = a - step * gradient @ b.T, b - step * a.T @ gradient
        return np.linalg.norm((after[0].T @ after[0] - after[1] @ after[1].T) - (a.T @ a - b @ b.T))

    assert moved(1e-2) / moved(1e-3) == pytest.approx(100, rel=1e-6)
    u, s, v = np.linalg.svd(target, full_matrices=False)
    assert float(metrics.imbalance(u * np.sqrt(s), np.sqrt(s)[:, None] * v)) < 1e-14
    stacked = metrics.imbalance(np.stack([a, 2 * a]), np.stack([b, b]))
    assert stacked[0] == pytest.approx(float(metrics.imbalance(a, b)))
    assert stacked[1] != pytest.approx(stacked[0])
    assert float(metrics.imbalance(0 * a, 0 * b)) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.merge_heads(HEADS, "median"), "Argument `heads` must be mean, max or 0 to 2"),
        (lambda: metrics.merge_heads(HEADS, 3), "Argument `heads` must be mean, max or 0 to 2, but is 3."),
        (lambda: metrics.rollout(LAYERS, 0.0), "Argument `residual` must be above 0"),
        (lambda: metrics.rollout([], 1.0), "Argument `layers` must hold at least 1"),
        (lambda: metrics.layer_mean([]), "Argument `layers` must hold at least 1"),
        (lambda: metrics.rollout([2 * LAYERS[0]], 1.0), "Argument `attention` must sum to 1"),
        (
            lambda: metrics.imbalance(np.ones((2, 3)), np.ones((2, 3))),
            "Argument `right` must have as many rows",
        ),
        (
            lambda: metrics.imbalance(np.ones((2, 3)) * np.inf, np.ones((3, 3))),
            "Argument `left` must be finite",
        ),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ArgumentError) as error:
        call()
    assert words in str(error.value)
