"""Paired comparison and equivalence."""

import numpy as np
import pytest
from scipy import stats

from qkflow.metrics import paired
from qkflow.setting import ArgumentError

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("shift", [-0.3, 0.0, 0.02, 0.5])
def test_against_scipy(shift):
    one = RNG.normal(size=12)
    other = one - shift + 0.1 * RNG.normal(size=12)
    found, t = paired(one, other, margin=0.1), stats.ttest_rel(one, other)
    interval = t.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    assert found.p == pytest.approx(t.pvalue)
    lower = stats.ttest_1samp(one - other, -0.1, alternative="greater").pvalue
    upper = stats.ttest_1samp(one - other, 0.1, alternative="less").pvalue
    assert found.p_equivalent == pytest.approx(max(lower, upper))
    inner = t.confidence_interval(0.90)
    assert found.equivalent == (inner.low > -0.1 and inner.high < 0.1)


def test_no_difference_found_is_no_equivalence():
    found = paired([0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0], margin=0.1)
    assert found.p > 0.5
    assert found.equivalent is False


def test_without_scatter_the_difference_is_exact():
    same = paired([1.0] * 5, [1.0] * 5, margin=0.01)
    assert same == (0, 0, 0, 1, 0, True)
    apart = paired([1.0] * 5, [0.5] * 5, margin=0.01)
    assert apart == (0.5, 0.5, 0.5, 0, 1, False)
    assert paired([1.0, 2.0], [0.5, 1.0]).equivalent is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0], [1.0]), "must hold the same 2 or more seeds"),
        (([1.0, 2.0], [1.0, 2.0, 3.0]), "must hold the same 2 or more seeds"),
        (([1.0, np.nan], [1.0, 2.0]), "Argument `one` must be finite"),
        (([1.0, 2.0], [1.0, 2.0], 0.0), "Argument `margin` must be positive"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ArgumentError) as error:
        paired(*arguments)
    assert words in str(error.value)
