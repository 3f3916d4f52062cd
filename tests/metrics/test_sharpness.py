"""Entropy and effective number of tokens."""

import math

import numpy as np
import pytest

from qkflow import metrics
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(4)


def test_equal_weight_on_some_tokens():
    """k equal tokens of T: entropy log k / log T, k effective tokens."""
    rows = [np.concatenate([np.full(k, 1 / k), np.zeros(6 - k)]) for k in range(1, 7)]
    entropy, tokens = metrics.sharpness(rows)
    assert tokens == pytest.approx(np.arange(1, 7))
    assert entropy == pytest.approx(np.log(np.arange(1, 7)) / np.log(6), abs=1e-15)


def test_against_a_plain_loop():
    rows = RNG.dirichlet(np.full(9, 0.3), 50)
    entropy, tokens = metrics.sharpness(rows)
    for row, one, other in zip(rows, entropy, tokens, strict=True):
        nats = -sum(a * math.log(a) for a in row if a > 0)
        assert (one, other) == pytest.approx((nats / math.log(9), math.exp(nats)))


def test_the_length_is_that_of_the_real_tokens():
    """Uniform attention is as diffuse as can be at any length; a single token is as sharp as can be."""
    entropy, tokens = metrics.sharpness([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]], [[1, 1, 0], [1, 0, 0]])
    assert entropy.tolist() == pytest.approx([1, 0])
    assert tokens.tolist() == pytest.approx([2, 1])


def test_rows_of_half_precision_are_rows_all_the_same():
    """A thousandth in float16 is .00100040."""
    entropy, tokens = metrics.sharpness(np.full((1, 1000), np.float16(0.001)))
    assert (entropy[0], tokens[0]) == pytest.approx((1, 1000), rel=1e-12)


@pytest.mark.parametrize("rows", [[0.5, 0.5], [[0.5, 0.6]], [[np.nan, 1.0]], [[1.5, -0.5]], [[]]])
def test_rows_that_are_no_attention_are_refused(rows):
    with pytest.raises(ArgumentError, match="Argument `attention` must"):
        metrics.sharpness(rows)
