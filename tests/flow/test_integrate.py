"""Integration reaches the published end points, lands on its targets and says what it cannot do."""

import dataclasses

import diffrax
import jax
import numpy as np
import pytest

from qkflow.flow import derived
from qkflow.flow import integrate as module
from qkflow.flow.integrate import integrate
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start
from tests.published import END_POINTS


def at(ratio, **changes):
    return dataclasses.replace(Problem(**changes), rates=LearningRates(ratio=ratio))


@pytest.mark.parametrize("ratio", END_POINTS)
def test_published_end_points(ratio):
    """Nine digits: about 100 steps of relative error 1e-10 each, most of it forgotten on the way."""
    end = integrate(at(ratio), at_loss=1e-4)
    found = [end.mu_ov[0], end.mu_qk[0], end.alpha[0], end.t[0]]
    np.testing.assert_allclose(found, END_POINTS[ratio], rtol=1e-9)
    assert end.stats["steps"] > end.stats["rejected_steps"] > 0


def test_an_event_alone_would_be_too_coarse():
    """The end of the step after the crossing is far off, so landing on the loss is the polishing's work."""
    losses = [0.5, 1e-2, 1e-4, 1e-6]
    np.testing.assert_allclose(integrate(at(1.0), at_loss=losses).loss, losses, rtol=1e-13)


@pytest.mark.parametrize("kind", ["CACO", "FAFO"])
def test_questions_agree(kind):
    """The four questions, in the order asked, at a finite vocabulary, of two QK modes in FAFO."""
    problem = Problem(OrthogonalSetting(4, 5, 2, 3, 7, 3, 0.7), kind, LearningRates(2.0, 3.0))
    times = np.array([300.0, 0.0, 3.0, 30.0])
    by_time = integrate(problem, at_time=times)
    with np.errstate(divide="ignore"):
        log_times = np.log(times)
    for question in ({"at_log_time": log_times}, {"at_loss": by_time.loss}, {"at_attention": by_time.alpha}):
        other = integrate(problem, **question)
        np.testing.assert_allclose(other.mu_ov, by_time.mu_ov, rtol=2e-9)
        np.testing.assert_allclose(other.mu_qk, by_time.mu_qk, rtol=2e-9)
        np.testing.assert_allclose(other.t, times, rtol=2e-9)
        assert other.t[1] == 0.0
        assert other.log_t[1] == -np.inf
        assert other.mu_ov[1] == problem.start.mu_ov
        assert other.mu_qk[1] == pytest.approx(problem.start.mu_qk, abs=1e-17)


def test_long_horizon_keeps_the_loss_identity():
    end = integrate(at(1.0), at_log_time=1e4)
    assert end.log_loss[0] == pytest.approx(np.log(19.0) - end.z[0], rel=1e-14)
    assert 9.9e3 < end.mu_ov[0] < 1.01e4


def test_a_batch_is_its_members_and_nothing_recompiles():
    ratios = np.array([0.3, 3.0])
    batch = integrate(at(ratios), at_time=[1e3, 1e5])
    assert batch.mu_ov.shape == (2, 2)
    for k, ratio in enumerate(ratios):
        alone = integrate(at(ratio), at_time=[1e3, 1e5])
        np.testing.assert_allclose(batch.mu_ov[k], alone.mu_ov, rtol=1e-9)
    compiled = module._follow._cache_size()
    setting = OrthogonalSetting(7, 9, 3, 4, 11, 5, 0.2)
    other = Problem(setting, "CACO", LearningRates(0.1, 7.0), Start(1.0, -2.0))
    integrate(other, at_time=[0.1, 1e7], rtol=1e-8)
    assert module._follow._cache_size() == compiled


def test_other_solvers():
    loose = integrate(at(1.0), at_time=1e4, solver=diffrax.Tsit5(), rtol=1e-6)
    tight = integrate(at(1.0), at_time=1e4)
    assert loose.options["solver"] == "Tsit5"
    np.testing.assert_allclose(loose.mu_ov, tight.mu_ov, rtol=1e-5)
    assert abs(loose.mu_ov[0] / tight.mu_ov[0] - 1) > 1e-12
    with pytest.raises(ArgumentError, match="`solver` must have an error estimate, but is Euler"):
        integrate(at(1.0), at_time=1.0, solver=diffrax.Euler())


@pytest.mark.parametrize("rtol", [0.0, 1e-15, 0.1, np.nan])
def test_rtol_is_refused(rtol):
    with pytest.raises(ArgumentError, match="`rtol` must be between"):
        integrate(at(1.0), at_time=1.0, rtol=rtol)


def test_float32_refuses_what_it_cannot_carry():
    with jax.enable_x64(False), pytest.raises(ArgumentError, match="float32"):
        integrate(at(1.0), at_time=1.0)


def test_what_no_stepping_reaches_is_refused():
    with pytest.raises(ArgumentError, match="must be reached before log t"):
        integrate(at(1.0, setting=OrthogonalSetting(4, 5, 2, 3, 7, 3)), at_attention=[1 - 1e-12] * 4)
    with pytest.raises(ArgumentError, match="below 100000 with integrate"):
        integrate(at(1.0), at_log_time=2e5)


class Planted:
    """The derived field with kappa doubled."""

    def __getattr__(self, name):
        plain = getattr(derived, name)
        return (lambda *args: 2 * plain(*args)) if name == "drive_qk" else plain


def test_the_field_is_what_is_integrated():
    plain, planted = (integrate(at(1.0), at_time=1e6, field=f) for f in (derived, Planted()))
    double = integrate(at(2.0), at_time=1e6)
    assert planted.mu_qk[0] != pytest.approx(plain.mu_qk[0], rel=1e-3)
    assert planted.mu_qk[0] == pytest.approx(double.mu_qk[0], rel=1e-9)
