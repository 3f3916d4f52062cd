import numpy as np
import pytest

from qkflow.flow import derived
from qkflow.models import aligned_start, directions
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start
from qkflow.train import effective_rates, population_gradients

SETTINGS = [OrthogonalSetting(3, 4, 2, 1, 5, 6, 0.7), OrthogonalSetting(3, 4, 2, 1, np.inf, 6, 0.7)]


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_gradient_on_the_line_lies_on_the_line_with_the_derived_size(setting):
    problem = Problem(setting, "CACO", LearningRates(1.0, 1.0), Start(1.5, 0.8))
    layer, c = aligned_start(problem), problem.constants
    loss, gradient_qk, gradient_ov = population_gradients(setting, layer.qk.full(), layer.ov.full())
    qk, ov = directions(setting)
    # Rounding of means over hundreds of sequences.
    drives = derived.drive_qk(c, 1.5, 0.8), derived.drive_ov(c, 1.5, 0.8)
    assert np.asarray(gradient_qk) == pytest.approx(-float(drives[0]) * qk, rel=1e-12, abs=1e-15)
    assert np.asarray(gradient_ov) == pytest.approx(-float(drives[1]) * ov, rel=1e-12, abs=1e-15)
    assert np.log(loss) == pytest.approx(float(derived.log_loss(c, 1.5 * derived.alpha(c, 0.8))), rel=1e-13)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize(
    ("kind", "start"),
    [
        ("FAFO", Start(0.5, 0.4)),
        ("FAFO", Start(0.5, 0.4, 0.3, -0.7)),
        ("FACO", Start(0.5, -0.2, 0.0, 0.7)),
        ("CAFO", Start(0.5, 0.0, 0.3, 0.0)),
    ],
)
def test_factors_move_as_much_faster_as_the_theory_says(setting, kind, start):
    problem = Problem(setting, kind, start=start)
    c, rates = problem.constants, effective_rates(problem)
    expected = [1.0, 1.0, 1.0]
    if problem.parameterization.ov_factorized:
        expected[0] = float(derived.rescaling_ov(c, start.mu_ov))
    if problem.parameterization.qk_factorized:
        expected[1:] = [
            float(derived.rescaling_qk(c, start.mu_qk * nu / derived.line_gap(c)))
            for nu in derived.singular_values_qk(c)
        ]
    # A ratio of projections of gradients, each rounded at a few parts in 1e15.
    assert list(rates) == pytest.approx(expected, rel=1e-12)


def test_a_point_without_a_gradient_is_refused():
    with pytest.raises(ArgumentError, match="`mu_ov_0` must be positive"):
        effective_rates(Problem(SETTINGS[0], "CACO"))
