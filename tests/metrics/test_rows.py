"""Heads and layers."""

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(1)
HEADS = RNG.dirichlet(np.ones(6), (5, 3))
MAPS = RNG.dirichlet(np.ones(6), (4, 5, 6))
"""Four layers of five examples."""


def test_duplicating_heads_changes_no_mean_and_no_maximum():
    twice = np.concatenate([HEADS, HEADS], axis=1)
    for how in ("mean", "max"):
        assert np.allclose(
            metrics.merge_heads(twice, how), metrics.merge_heads(HEADS, how), rtol=1e-14, atol=0
        )


def test_heads_against_a_plain_loop():
    for n, heads in enumerate(HEADS):
        assert metrics.merge_heads(HEADS)[n] == pytest.approx(sum(heads) / 3)
        largest = [max(column) for column in zip(*heads, strict=True)]
        assert metrics.merge_heads(HEADS, "max")[n] == pytest.approx(np.array(largest) / sum(largest))
    assert (metrics.merge_heads(HEADS, 1) == HEADS[:, 1]).all()


@pytest.mark.parametrize("heads", ["mean", "max", 0])
def test_maps_are_merged_query_by_query(heads):
    maps = RNG.dirichlet(np.ones(6), (5, 3, 6))
    found = metrics.merge_heads(maps, heads)
    assert found.shape == (5, 6, 6)
    for query in range(6):
        assert found[:, query] == pytest.approx(metrics.merge_heads(maps[:, :, query], heads))


@pytest.mark.parametrize("residual", [1.0, 0.5, 0.1])
def test_rollout_against_paths(residual):
    """Rows sum to 1, and an entry is the sum over all paths through the layers, the first one last."""
    found = metrics.rollout(MAPS[:3], residual)
    assert found.sum(axis=-1) == pytest.approx(np.ones((5, 6)), rel=1e-14, abs=0)
    a, b, c = (residual * layer[0] + (1 - residual) * np.eye(6) for layer in MAPS[:3])
    paths = sum(c[4, i] * b[i, j] * a[j, 2] for i in range(6) for j in range(6))
    assert found[0, 4, 2] == pytest.approx(paths)


def test_rollout_normalises_rows_of_half_precision():
    """The rounding of four layers does not add up: rows sum to 1 in float64."""
    found = metrics.rollout(MAPS.astype(np.float16), 0.5)
    assert found.dtype == np.float64
    assert found.sum(axis=-1) == pytest.approx(np.ones((5, 6)), rel=1e-14, abs=0)
    assert found == pytest.approx(metrics.rollout(MAPS, 0.5), abs=1e-3)


def test_the_mean_over_layers_against_a_plain_loop():
    assert metrics.layer_mean(MAPS) == pytest.approx(sum(MAPS) / 4)


def test_with_one_layer_all_coincide():
    assert np.allclose(metrics.rollout(MAPS[:1], 1.0), MAPS[0], rtol=1e-14, atol=0)
    assert (metrics.layer_mean(MAPS[:1]) == MAPS[0]).all()


NOT_ZERO = np.ones((5, 6), dtype=bool)
NOT_ZERO[2, 4] = False


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.merge_heads(HEADS, "median"), "`heads` must be mean, max or 0 to 2"),
        (lambda: metrics.merge_heads(HEADS, 3), "`heads` must be mean, max or 0 to 2, but is 3."),
        (lambda: metrics.merge_heads(HEADS, np.array([0, 1])), "`heads` must be mean, max or 0 to 2"),
        (lambda: metrics.merge_heads(HEADS, True), "`heads` must be mean, max or 0 to 2, but is True."),
        (lambda: metrics.merge_heads(HEADS[:, 0]), "`attention` must have shape (N, H, L)"),
        (lambda: metrics.merge_heads(HEADS[:0]), "`attention` must have shape (N, H, L)"),
        (lambda: metrics.merge_heads(HEADS[..., None]), "`attention` must have shape (N, H, L, L)"),
        (lambda: metrics.merge_heads([[[1.0], [0.5, 0.5]]]), "`attention` must be one array of numbers"),
        (lambda: metrics.merge_heads(HEADS, real=NOT_ZERO), "`attention` must be exactly 0 on padding"),
        (lambda: metrics.merge_heads(HEADS, real=NOT_ZERO[0]), "`real` must have shape (5, 6)"),
        (lambda: metrics.merge_heads(HEADS, real=2 * NOT_ZERO), "`real` must be true or false"),
        (lambda: metrics.rollout(MAPS, 0.0), "`residual` must be above 0"),
        (lambda: metrics.rollout(MAPS, np.nan), "`residual` must be above 0"),
        (lambda: metrics.rollout(MAPS, [0.5, 1.0]), "`residual` must be one number"),
        (lambda: metrics.rollout([], 1.0), "`layers` must have shape (depth, N, L, L)"),
        (lambda: metrics.rollout(MAPS[0], 1.0), "`layers` must have shape (depth, N, L, L)"),
        (lambda: metrics.rollout(MAPS[..., :3, :], 1.0), "`layers` must have shape (N, L, L)"),
        (lambda: metrics.rollout([MAPS[0], MAPS[1, :2]], 1.0), "`layers` must be one array of numbers"),
        (lambda: metrics.rollout(MAPS, 1.0, NOT_ZERO), "`layers` must be exactly 0 on padding"),
        (lambda: metrics.layer_mean([]), "`layers` must have shape (depth, N, L, L)"),
        (lambda: metrics.layer_mean(-MAPS), "`layers` must be finite and not negative"),
        (lambda: metrics.layer_mean(2 * MAPS), "`layers` must sum to 1 in every row, but a sum is 2."),
    ],
)
def test_bad_arguments_are_named(call, words):
    with pytest.raises(ArgumentError) as error:
        call()
    assert words in str(error.value)
