"""The balanced state of two factors."""

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(5)
A, B = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 5))


def test_the_definition_entry_by_entry():
    one = [[sum(A[k, i] * A[k, j] for k in range(4)) for j in range(3)] for i in range(3)]
    other = [[sum(B[i, k] * B[j, k] for k in range(5)) for j in range(3)] for i in range(3)]

    def norm(x):
        return np.sqrt(np.sum(np.square(x)))

    expected = norm(np.subtract(one, other)) / (norm(one) + norm(other))
    assert float(metrics.imbalance(A, B)) == pytest.approx(expected)


def test_balanced_one_sided_and_nothing():
    u, s, v = np.linalg.svd(A @ B, full_matrices=False)
    rotation = np.linalg.qr(RNG.normal(size=(4, 4)))[0]
    left, right = u * np.sqrt(s) @ rotation, rotation.T @ (np.sqrt(s)[:, None] * v)
    assert left @ right == pytest.approx(A @ B)
    assert float(metrics.imbalance(left, right)) < 1e-14
    assert float(metrics.imbalance(A, 0 * B)) == pytest.approx(1, rel=1e-14, abs=0)
    assert float(metrics.imbalance(0 * A, 0 * B)) == 0


def test_it_is_relative_at_any_scale():
    """Also at one whose squares underflow."""
    for scale in (1e-6, 1e-200, 1e200):
        assert float(metrics.imbalance(scale * A, scale * B)) == pytest.approx(float(metrics.imbalance(A, B)))


def test_leading_axes_are_runs_of_their_own():
    lefts, rights = RNG.normal(size=(2, 6, 4, 3)), RNG.normal(size=(2, 6, 3, 5))
    found = metrics.imbalance(lefts, rights)
    assert found.shape == (2, 6)
    for index in np.ndindex(2, 6):
        assert found[index] == pytest.approx(float(metrics.imbalance(lefts[index], rights[index])))


def test_descent_conserves_the_difference_to_second_order():
    """A tenth of the step is a hundredth of the change."""
    target = RNG.normal(size=(4, 5))

    def moved(step):
        gradient = A @ B - target
        after = A - step * gradient @ B.T, B - step * A.T @ gradient
        change = (after[0].T @ after[0] - after[1] @ after[1].T) - (A.T @ A - B @ B.T)
        return np.linalg.norm(change)

    assert moved(1e-2) / moved(1e-3) == pytest.approx(100, rel=1e-6)


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), "Argument `right` must have the leading axes of `left`"),
        (np.ones((2, 2, 3)), np.ones((1, 3, 2)), "Argument `right` must have the leading axes of `left`"),
        (np.ones(3), np.ones(3), "Argument `right` must have the leading axes of `left`"),
        (np.ones((4, 0)), np.ones((0, 5)), "as many rows as that has columns, none of them 0"),
        (np.ones((0, 3)), np.ones((3, 2)), "as many rows as that has columns, none of them 0"),
        (np.full((2, 3), 1j), np.ones((3, 3)), "Argument `left` must be one array of numbers"),
        (np.full((2, 3), np.inf), np.ones((3, 3)), "Argument `left` must be finite"),
        (np.ones((2, 3)), np.full((3, 3), np.nan), "Argument `right` must be finite"),
    ],
)
def test_bad_arguments_are_named(left, right, words):
    with pytest.raises(ArgumentError) as error:
        metrics.imbalance(left, right)
    assert words in str(error.value)
