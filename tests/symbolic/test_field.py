"""The printed functions against the derived expressions, evaluated with thousands of digits."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import sympy as sp

from qkflow.flow import derived
from qkflow.setting import Constants, OrthogonalSetting, Problem
from qkflow.symbolic import derive
from qkflow.symbolic.symbols import CONSTANTS, eta_OV, eta_QK, mu_QK, nu_1, nu_2, r

EPS = np.finfo(float).eps
DIGITS = 4500  # e^-1e4 next to 1 takes 4,343; the expressions are evaluated as they stand

PROBLEMS = [
    Constants(20, 50, 5, 50, math.inf, 50, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0),
    Constants(2, 3, 1, 10_000, 10_007, 7, 0.3, 0.5, 1e-6, 0.0, 0.0, 0.7, -1.3),
    Constants(1_000_000, 10_000, 9_999, 1, 13, 2, 1.7, 3.0, 1e6, 0.0, 0.0, -0.2, 1e-9),
]
GAPS = [-650.0, -40.0, -1e-6, 0.0, 0.3, 40.0, 650.0]
LEADS = [0.0, 1e-6, 1.0, 45.0, 1e4]
STATES = np.array(list(itertools.product(LEADS, GAPS)))


@functools.cache
def compiled(expression):
    expression = expression.subs(eta_QK, r * eta_OV)
    if expression != derive().loss:
        expression = derive().explicit(expression)
    if expression.has(mu_QK):
        # What is left of 1 - alpha in the end must not come from a difference.
        expression = sp.factor(expression)
    symbols = sorted(expression.free_symbols, key=str)
    return symbols, sp.lambdify(symbols, expression, "mpmath")


def evaluate(expression, c, **arguments):
    """A derived expression at one point, to `DIGITS` digits."""
    values = {symbol.name: getattr(c, name) for symbol, name in CONSTANTS.items()} | arguments
    symbols, function = compiled(expression)
    return function(*(mpmath.mpf(values[symbol.name]) for symbol in symbols))


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(DIGITS):
        yield


def agree(value, expected, scale):
    """Relative agreement to some roundings of what goes into exponentials, which is of size `scale`."""
    tolerance = 8 * EPS * (1 + scale)
    error = abs(mpmath.mpf(float(value)) - expected)
    assert error <= tolerance * abs(expected), (float(value), mpmath.nstr(expected, 20))


@pytest.mark.parametrize("c", PROBLEMS, ids=["paper", "few", "many"])
@pytest.mark.parametrize("name", ["drive_ov", "drive_qk", "time_density"])
def test_rates(name, c):
    d = derive()
    expression = {"drive_ov": d.drive_ov, "drive_qk": d.drive_qk, "time_density": 1 / d.drive_ov}[name]
    sign = -1 if name == "time_density" else 1
    for u, g in STATES:
        exact = evaluate(expression, c, mu_OV=u, mu_QK=g)
        # The scale brings the result to order one, whatever the state, except against a vanishing attention,
        # where it would leave the range of floats by itself.
        scale = float(-sign * mpmath.nint(mpmath.log(exact))) if exact and g > -650 else 3.0
        value = getattr(derived, name)(c, u, g, scale)
        exponents = abs(g) + abs(scale) + u + math.log(max(c.n_classes, c.n_common))
        agree(value, exact * mpmath.exp(sign * scale), exponents)


@pytest.mark.parametrize("c", PROBLEMS, ids=["paper", "few", "many"])
def test_observables(c):
    d = derive()
    for g in GAPS:
        odds = math.log(c.n_distinct / c.n_common)
        assert float(derived.log_odds(c, g)) == pytest.approx(g + odds, rel=4 * EPS, abs=4 * EPS)
        near, far = evaluate(d.attention, c, mu_QK=g), evaluate(1 - d.attention, c, mu_QK=g)
        agree(derived.alpha(c, g), near, abs(g) + abs(odds))
        # Where 1 - alpha is next to 1 its log is -alpha; what is under the range of floats is 0.
        error = abs(mpmath.mpf(float(derived.log_one_minus_alpha(c, g))) - mpmath.log(far))
        assert error <= 8 * EPS * (1 + abs(g)) * abs(mpmath.log(far)) + 1e-300
    for lead in [0.0, 1e-6, 1.0, 36.0, 60.0, 745.0, 1e4]:
        error = abs(mpmath.mpf(float(derived.log_loss(c, lead))) - mpmath.log(evaluate(d.loss, c, z=lead)))
        # The log of a loss near 1 is small: absolute there, relative where it is large.
        assert error <= 8 * EPS * max(1, lead)


@pytest.mark.parametrize("c", PROBLEMS, ids=["paper", "few", "many"])
def test_constants(c):
    d = derive()
    for name in ("separation", "kappa", "line_gap"):
        agree(getattr(derived, name)(c), evaluate(getattr(d, name), c), 1)
    for value, expression in zip(derived.singular_values_qk(c), d.singular_values_qk):
        agree(value, evaluate(expression, c), 1)
    for u in (1e-6, 1.0, 1e4):
        agree(derived.rescaling_ov(c, u), evaluate(d.rescaling_ov, c, mu_OV=u), 1)
        agree(derived.rescaling_qk(c, u), evaluate(d.rescaling_qk, c, sigma=u), 1)
        gap = d.gap.subs({nu_1: d.singular_values_qk[0], nu_2: d.singular_values_qk[1]})
        agree(derived.gap(c, u, 3 * u), evaluate(gap, c, sigma_1=u, sigma_2=3 * u), 1)


def _calls(c, u, g):
    return {
        "log_odds": derived.log_odds(c, g),
        "alpha": derived.alpha(c, g),
        "log_one_minus_alpha": derived.log_one_minus_alpha(c, g),
        "log_loss": derived.log_loss(c, u * derived.alpha(c, g)),
        "drive_ov": derived.drive_ov(c, u, g),
        "drive_qk": derived.drive_qk(c, u, g),
        "time_density": derived.time_density(c, u, g, 50.0),
        "separation": derived.separation(c),
        "kappa": derived.kappa(c),
        "line_gap": derived.line_gap(c),
        "rescaling_ov": derived.rescaling_ov(c, u + 1),
        "rescaling_qk": derived.rescaling_qk(c, u + 1),
        "singular_values_qk": jnp.stack(derived.singular_values_qk(c)),
        "gap": derived.gap(c, u + 1, u + 2),
    }


@jax.jit
@functools.partial(jax.grad, argnums=(0, 1, 2))
def _gradient(c, u, g):
    # Of the sum, which is quicker to compile: what is not finite anywhere is not finite in it.
    return sum(jnp.sum(x) for x in _calls(c, u, g).values())


@pytest.mark.parametrize("state", [(0.0, 0.0), (12.0, 5.0), (700.0, 700.0), (0.0, -600.0)], ids=str)
@pytest.mark.parametrize("c", PROBLEMS, ids=["paper", "few", "many"])
def test_gradients_are_finite(c, state):
    gradient = _gradient(jax.tree.map(float, c), *state)
    assert all(np.isfinite(x) for x in jax.tree.leaves(gradient))
    if math.isinf(c.n_common_vocab):
        assert gradient[0].n_common_vocab == 0


def test_arrays_and_numbers():
    c = Problem().constants
    many = jax.vmap(_calls)(
        jax.tree.map(lambda x: jnp.full(3, float(x)), c), jnp.arange(3.0), jnp.arange(3.0)
    )
    for i in range(3):
        for name, value in _calls(c, i, i).items():
            np.testing.assert_allclose(many[name][i], value, rtol=8 * EPS)


def test_the_paper_s_constant():
    c = Problem(OrthogonalSetting(n_classes=20, n_distinct_vocab=50)).constants
    assert float(derived.kappa(c)) == pytest.approx(1 / (20 * 50**2), rel=4 * EPS)
