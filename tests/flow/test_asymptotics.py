"""The bounds hold for all t, and their constants are the ones that are stated."""

import math

import mpmath
import numpy as np
import pytest

from qkflow.flow.asymptotics import _least_slope, growth_bounds
from qkflow.flow.exact import solve_exact
from qkflow.setting import LearningRates, OrthogonalSetting, Parameterization, Problem, Start

LOG_T = np.concatenate([[-math.inf], np.linspace(-8.0, 40.0, 25), [100.0, 690.0, 2e3, 1e4]])
SETTINGS = 60


def random_problem(random, kind: Parameterization, common: float = math.inf) -> Problem:
    def whole(low, high):
        return round(math.exp(random.uniform(math.log(low), math.log(high))))

    b = whole(1, 1e4)
    setting = OrthogonalSetting(
        n_classes=whole(2, 1e6),
        n_distinct_vocab=b,
        n_distinct=whole(1, b),
        n_common=whole(1, 1e4) if common == math.inf else whole(1, common),
        n_common_vocab=common,
        n_query_vocab=whole(1, 1e4),
        score_scale=math.exp(random.uniform(-3.0, 1.0)),
    )
    ratio = math.exp(random.uniform(math.log(1e-6), math.log(1e6)))
    ov, qk = np.exp(random.uniform(math.log(1e-6), math.log(10.0), 2))
    zero = random.random(2) < 0.3
    start = Start(
        mu_ov=0.0 if zero[0] and not kind.ov_factorized else ov,
        mu_qk=0.0 if zero[1] and not kind.qk_factorized else qk,
    )
    return Problem(setting, kind, LearningRates(math.exp(random.uniform(-3, 3)), ratio), start)


@pytest.mark.parametrize("kind", list(Parameterization))
def test_no_bound_is_violated(kind):
    """On the exact trajectory: 1e-9 is ten times its stated accuracy; the bounds are touched at t = 0."""
    random = np.random.default_rng(7)
    seen = set()
    for _ in range(SETTINGS):
        problem = random_problem(random, kind)
        exact = solve_exact(problem, at_log_time=LOG_T)
        for bound in growth_bounds(problem, LOG_T, exact.mu_ov).values():
            if bound.value is not None:
                seen.add(bound.name)
                excess = bound.excess(getattr(exact, bound.quantity))
                assert excess.max() <= 1e-9, (bound.name, problem)
        for bound in growth_bounds(problem, LOG_T).values():
            if bound.value is not None:
                assert bound.excess(getattr(exact, bound.quantity)).max() <= 1e-9, (bound.name, problem)
    assert len(seen) == {"CACO": 5, "FACO": 7, "CAFO": 5, "FAFO": 7}[kind.value]


def test_a_violation_is_seen():
    problem = Problem()
    exact = solve_exact(problem, at_log_time=LOG_T)
    bound = growth_bounds(problem, LOG_T, exact.mu_ov)["qk_above_linear"]
    assert bound.value is not None
    assert bound.excess(1.001 * bound.value).max() > 1e-4
    assert np.isnan(bound.excess(np.full(LOG_T.shape, np.nan))).all()


def test_the_bounds_are_the_stated_formulas():
    """In plain arithmetic, where nothing overflows."""
    c = Problem(OrthogonalSetting(4, 5, 2, 3, math.inf, 3), "FAFO", LearningRates(0.7, 2.0), Start(0.3, 0.4))
    m_classes, b, q, eta, r, u0, g0 = 4, 5, 3, 0.7, 2.0, 0.3, 0.4
    t, u = 20.0, 1.5
    rho = 2 / 3
    rho0 = rho * math.exp(g0)
    a0 = rho0 / (1 + rho0)
    k = r * b * (m_classes - 1) / (m_classes * q * b)
    a = 2 * math.sqrt(b * q)
    x = k / (2 * math.sqrt(b)) * (u - u0)

    def big_l(y):
        return math.log(y) + math.log(math.log(y)) + math.log(math.e / (math.e - 1))

    d = (1 - a0) * u0 + 1 / (a0 * k / (2 * math.sqrt(b)) * a * g0)
    expected = {
        "ov_below": math.log(math.exp(u0) + 2 * math.sqrt(b) * u0 * a0 * eta * t / (b * m_classes)),
        "ov_above_balanced": big_l(math.exp(a0 * u0) / (a0 * u0) + 2 * eta * t / math.sqrt(b)) / a0,
        "ov_above_balanced_saturated": big_l(math.exp(u0) / u0 + math.exp(d) * 2 * eta * t / math.sqrt(b)),
        "qk_above_root": -2 + math.sqrt((g0 + 2) ** 2 + 4 * a * x / rho),
        "qk_above_saturated": big_l(math.exp(g0) / g0 + a * x / rho),
        "qk_above_exponential": g0 * math.exp(a * x / (1 + rho)),
    }
    bounds = growth_bounds(c, math.log(t), u)
    for name, value in expected.items():
        assert bounds[name].value == pytest.approx(value, rel=1e-13), name
    assert bounds["ov_above"].value is None
    assert bounds["qk_above_linear"].value is None

    collapsed = Problem(c.setting, "CACO", c.rates, Start(0.3, 0.4))
    x = k / 2 * (u**2 - u0**2)
    d = (1 - a0) * u0 + 1 / (2 * math.sqrt(rho0 * k / 2))
    expected = {
        "ov_below": math.log(math.exp(u0) + a0 * eta * t / (b * m_classes)),
        "ov_above": math.log(math.exp(a0 * u0) + a0 * eta * t / b) / a0,
        "ov_above_saturated": math.log(math.exp(u0) + math.exp(d) * eta * t / b),
        "qk_above_linear": g0 + x / (1 + rho0),
        "qk_above_log": g0 + math.log(1 + x / rho0),
    }
    bounds = growth_bounds(collapsed, math.log(t), u)
    for name, value in expected.items():
        assert bounds[name].value == pytest.approx(value, rel=1e-13), name


@pytest.mark.parametrize(("g0", "rho"), [(1e-6, 0.1), (0.01, 2 / 3), (0.4, 1e-4), (3.0, 10.0), (2.0, 1e4)])
def test_the_least_slope_is_least(g0, rho):
    """Against 30 digits of Ei on a fine grid: no secant is flatter, and one is as flat."""
    grid = g0 + np.geomspace(1e-7, 60.0, 4000)
    with mpmath.workdps(30):
        first = mpmath.log(g0) + rho * mpmath.ei(g0)
        slopes = [float((mpmath.log(g) + rho * mpmath.ei(g) - first) / (mpmath.mpf(g) - g0)) for g in grid]
    least = _least_slope(g0, rho)
    assert least <= min(slopes) * (1 + 1e-12)
    assert least == pytest.approx(min(slopes), rel=1e-4)


def test_scope():
    imbalanced = Problem(parameterization="FAFO", start=Start(0.1, 0.1, 0.5, 0.5))
    names = [name for name, bound in growth_bounds(imbalanced, 1.0, 1.0).items() if bound.value is not None]
    assert names == ["ov_below"]
    two_modes = Problem(OrthogonalSetting(4, 5, 2, 3, 7, 3), "FACO")
    names = [name for name, bound in growth_bounds(two_modes, 1.0, 1.0).items() if bound.value is not None]
    assert names == ["ov_below", "ov_above"]
    with pytest.raises(ValueError, match="needs a collapsed OV circuit"):
        growth_bounds(imbalanced, 1.0)["ov_above"].excess(1.0)


def test_collapsed_finite_vocabulary_and_score_scale():
    """There only kappa and the score gap change; the bounds keep holding."""
    random = np.random.default_rng(8)
    for _ in range(20):
        problem = random_problem(random, Parameterization.CACO, common=float(round(random.uniform(1, 40))))
        exact = solve_exact(problem, at_log_time=LOG_T)
        for bound in growth_bounds(problem, LOG_T, exact.mu_ov).values():
            if bound.value is not None:
                assert bound.excess(getattr(exact, bound.quantity)).max() <= 1e-9, (bound.name, problem)
