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
    assert paired([0.5] * 5, [0.0] * 5, margin=0.5)[4:] == (1, False)
    # The mean of three times .1 is not .1.
    tenths = paired([0.1] * 3, [0.0] * 3, margin=0.2)
    assert tenths[1:] == (tenths.difference, tenths.difference, 0, 0, True)
    assert paired([1.0, 2.0], [0.5, 1.0]).equivalent is None


def test_the_interval_covers_the_truth_and_the_tests_err_as_often_as_they_say():
    """4,000 comparisons of 5 seeds. Binomial, 5 deviations of sqrt(.05 * .95 / 4000) = .0034 are allowed."""
    one, other = RNG.normal(size=(2, 4000, 5))
    found = [paired(a, b, margin=0.5) for a, b in zip(one, other, strict=True)]
    covered = np.mean([low <= 0 <= high for _, low, high, *_ in found])
    assert covered == pytest.approx(0.95, abs=0.0175)
    assert np.mean([result.p < 0.05 for result in found]) == pytest.approx(0.05, abs=0.0175)
    # At a true difference of the margin itself, equivalence is wrong, and claimed at most that often.
    wrong = np.mean(
        [bool(paired(a + 0.5, b, margin=0.5).equivalent) for a, b in zip(one, other, strict=True)]
    )
    assert wrong < 0.05 + 0.0175


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_unit_changes_only_the_unit(scale):
    """Also where the squares of the differences underflow or overflow: no scatter is taken for none."""
    one, other = RNG.normal(size=(2, 6))
    plain, found = paired(one, other, margin=0.5), paired(scale * one, scale * other, margin=0.5 * scale)
    assert [x / scale for x in found[:3]] == pytest.approx(plain[:3])
    assert found[3:] == pytest.approx(plain[3:])


def test_turning_the_pairs_round_turns_the_signs_round():
    one, other = RNG.normal(size=(2, 9))
    there, back = paired(one, other, margin=0.4), paired(other, one, margin=0.4)
    assert (there.difference, there.low, there.high) == pytest.approx(
        (-back.difference, -back.high, -back.low)
    )
    assert there[3:] == pytest.approx(back[3:])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1.0], [1.0]), "must hold the same 2 or more seeds"),
        (([1.0, 2.0], [1.0, 2.0, 3.0]), "must hold the same 2 or more seeds"),
        (([1.0, np.nan], [1.0, 2.0]), "Argument `one` must be finite"),
        (([[1.0, 2.0]], [[1.0, 2.0]]), "must hold the same 2 or more seeds"),
        (([1.0, 2.0], [1.0, "x"]), "Argument `other` must be one array of numbers"),
        (([1.0, 2.0], [1.0, 2.0], np.nan), "Argument `margin` must be positive"),
        (([1.0, 2.0], [1.0, 2.0], [0.1, 0.2]), "Argument `margin` must be one number"),
        (([1.0, 2.0], [1.0, 2.0], 0.0), "Argument `margin` must be positive"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ArgumentError) as error:
        paired(*arguments)
    assert words in str(error.value)
