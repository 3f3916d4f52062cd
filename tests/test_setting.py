"""The setting refuses what has no meaning, in one sentence, and is a well-behaved pytree."""

import dataclasses
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Parameterization, Problem, Start


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"n_distinct": 7, "n_distinct_vocab": 5},
            "`n_distinct` must be at most `n_distinct_vocab` (5), but is 7",
        ),
        ({"n_common": 0}, "`n_common` must be a whole number of at least 1, but is 0"),
        ({"n_common": 9, "n_common_vocab": 8}, "`n_common` must be at most `n_common_vocab` (8), but is 9"),
        ({"n_classes": 1}, "`n_classes` must be a whole number of at least 2, but is 1"),
        ({"n_classes": 2.5}, "`n_classes` must be a whole number of at least 2, but is 2.5"),
        ({"n_query_vocab": math.nan}, "`n_query_vocab` must be a whole number of at least 1, but is nan"),
        ({"n_query_vocab": math.inf}, "`n_query_vocab` must be a whole number of at least 1, but is inf"),
        ({"n_common_vocab": math.nan}, "`n_common_vocab` must be a whole number of at least 1, or inf"),
        ({"score_scale": 0.0}, "`score_scale` must be positive and finite, but is 0"),
        ({"n_distinct": [70]}, "`n_distinct` must be at most `n_distinct_vocab` (50), but is 70"),
        ({"n_classes": None}, "`n_classes` must be a whole number of at least 2, but is None"),
        ({"n_classes": "four"}, "`n_classes` must be a whole number of at least 2, but is 'four'"),
    ],
)
def test_setting_refuses(changes, sentence):
    with pytest.raises(ArgumentError) as caught:
        OrthogonalSetting(**changes)
    assert sentence in str(caught.value)
    assert str(caught.value).count(". ") == 0


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["lr_ov", "ratio"])
def test_rates_refuse(name, value):
    with pytest.raises(ArgumentError, match=f"`{name}` must be positive and finite"):
        LearningRates(**{name: value})


def test_rates_refuse_one_wrong_number_of_many():
    with pytest.raises(ArgumentError, match=r"`ratio` must be positive and finite, but is -2\."):
        LearningRates(ratio=np.array([1.0, -2.0, 3.0]))


@pytest.mark.parametrize(
    ("kind", "start", "sentence"),
    [
        (
            "FACO",
            Start(0.0, 0.0),
            "`mu_qk_0` must be positive for the balanced factorized QK circuit of FACO",
        ),
        ("FAFO", Start(0.1, -0.1), "`mu_qk_0` must be positive"),
        (
            "CAFO",
            Start(0.0, 0.0),
            "`mu_ov_0` must be positive for the balanced factorized OV circuit of CAFO",
        ),
        ("CACO", Start(0.0, 0.0, imbalance_ov=0.1), "`imbalance_ov` must be 0 for the collapsed OV circuit"),
        ("CAFO", Start(0.1, 0.0, imbalance_qk=0.1), "`imbalance_qk` must be 0 for the collapsed QK circuit"),
        ("OVQK", None, "`parameterization` must be one of CACO, FACO, CAFO, FAFO, but is 'OVQK'"),
    ],
)
def test_problem_refuses(kind, start, sentence):
    with pytest.raises(ArgumentError) as caught:
        Problem(parameterization=kind, start=start)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"mu_ov": -1e-9}, {"mu_ov": math.nan}, {"mu_qk": math.inf}, {"mu_qk": -800}]
)
def test_start_refuses(changes):
    with pytest.raises(ArgumentError, match=f"`{next(iter(changes))}_0` must be"):
        Start(**changes)


def test_what_is_possible_is_accepted():
    Problem(parameterization="CACO", start=Start(0.0, -3.0))
    Problem(parameterization="FAFO", start=Start(0.0, -1.0, imbalance_ov=-0.1, imbalance_qk=0.1))
    OrthogonalSetting(n_classes=2.0, n_common=8, n_common_vocab=8)


def test_strings_are_exact_and_float64_sees_the_nearest_floats():
    setting = OrthogonalSetting(n_classes="20", n_common_vocab="inf", score_scale="1/3")
    problem = Problem(setting, "FAFO", LearningRates("0.1", 0.1), Start("1e-2", Fraction(1, 7)))
    exact, floats = problem.exact_constants, problem.constants
    assert (exact.n_classes, exact.n_common_vocab, exact.score_scale) == (20, math.inf, Fraction(1, 3))
    assert exact.lr_ov == Fraction(1, 10) != exact.ratio == Fraction(0.1)
    assert (floats.lr_ov, floats.ratio, floats.mu_ov_0, floats.mu_qk_0) == (0.1, 0.1, 0.01, 1 / 7)
    assert not any(isinstance(number, Fraction | str) for number in floats)
    assert problem.rates.lr_qk == 0.1 * 0.1
    assert all(isinstance(leaf, int | float) for leaf in jax.tree.leaves(problem))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("n_classes", "2.5", "`n_classes` must be a whole number, but is 2.5"),
        ("n_classes", "20.00000000000000000001", "`n_classes` must be a whole number, but is 20.0"),
        ("n_classes", "1/0", "`n_classes` must be a whole number of at least 2, but is '1/0'"),
        ("score_scale", "1e-400", "must be 0 or between 1e-300 and 1e300 in size, but is about 1e-400"),
        ("score_scale", "1e400", "but is about 1e400"),
        ("score_scale", "1e999999999", "`score_scale` must be positive and finite, but is inf"),
    ],
)
def test_strings_that_are_refused(name, text, sentence):
    with pytest.raises(ArgumentError) as caught:
        OrthogonalSetting(**{name: text})
    assert sentence in str(caught.value)


def test_an_array_is_no_exact_number():
    with pytest.raises(ArgumentError, match="`ratio` must be one number for a certificate"):
        _ = Problem(rates=LearningRates(ratio=np.array([1.0, 2.0]))).exact_constants


def test_immutable_and_hashable():
    problem = Problem(parameterization="FACO")
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.start = None
    assert hash(problem) == hash(Problem(parameterization=Parameterization.FACO))
    assert problem != Problem(parameterization="FAFO")


def test_copies_made_by_jax_are_not_checked():
    """Cotangents, placeholders and traced copies hold numbers that would be refused."""
    problem = Problem()
    zeros = jax.tree.map(lambda x: 0 * x - 1, problem)
    assert zeros.setting.n_classes == -1
    assert zeros.parameterization is Parameterization.CACO

    def total(p):
        s = dataclasses.replace(p.setting, n_distinct=p.setting.n_distinct_vocab + 1)
        return s.n_distinct * p.rates.lr_qk - p.start.mu_ov

    gradient = jax.grad(lambda p: jax.jit(total)(p))(jax.tree.map(float, problem))
    assert gradient.start.mu_ov == -1
    batch = jax.tree.map(lambda x: jnp.full(3, x, float), problem)
    assert jax.vmap(total)(batch).shape == (3,)


def test_flat_names_cover_every_number():
    problem = Problem()
    assert len(problem.constants) == len(jax.tree.leaves(problem)) == 13


def test_arrays_of_numbers_broadcast():
    OrthogonalSetting(n_distinct_vocab=np.array([50, 60]), n_distinct=6)
    Problem(parameterization="FAFO", start=Start(0.1, 0.1, imbalance_ov=np.array([0.0, 0.5])))
    with pytest.raises(ArgumentError, match=r"`n_distinct` must be at most `n_distinct_vocab`, but is 6\."):
        OrthogonalSetting(n_distinct_vocab=np.array([50, 5]), n_distinct=6)
