"""Fixed attention against 50-digit roots, other routes of the flow, and matrices trained with it."""

import functools
import math

import diffrax
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from qkflow.data import population
from qkflow.flow import derived, fixed
from qkflow.flow.fixed import FixedAttention, fixed_attention
from qkflow.models import aligned_start, cross_entropy, directions
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start

KINDS = ("CACO", "CAFO")
DIGITS = 50


def problem_of(kind, n_classes, vocab, lr_ov, mu_ov):
    return Problem(OrthogonalSetting(n_classes, vocab, 1), kind, LearningRates(lr_ov), Start(mu_ov))


# 50-digit roots


def root(kind, n_classes, vocab, lr_ov, mu_0, alpha, t):
    """z at t in mpmath, from the closed forms as the theory states them: with Ei itself, and no omega.

    Newton's method on the logarithm of both sides comes down from an upper bound, for that is convex.
    """
    z_0, wrong = alpha * mu_0, n_classes - 1
    if kind == "CACO":  # unknown: z - z_0
        goal = lr_ov * alpha**2 * t / vocab
        exponential = mp.log1p(goal * mp.exp(-z_0))

        def closed(y):
            return mp.exp(z_0) * mp.expm1(y) + wrong * y, mp.exp(z_0 + y) + wrong

    else:  # unknown: log(z / z_0)
        goal = 2 * lr_ov * alpha * t / mp.sqrt(vocab)
        z = mp.mpf(10) ** 30
        for _ in range(3):
            z = z_0 + mp.log1p(goal * z * mp.exp(-z_0))
        exponential = mp.log1p(mp.log1p(goal * z * mp.exp(-z_0)) / z_0)

        def closed(x):
            with mp.workdps(lost):
                z = z_0 * mp.exp(x)
                return mp.ei(z) - mp.ei(z_0) + wrong * x, mp.exp(z) + wrong

    unknown = min(goal / (mp.exp(z_0) + wrong), exponential)
    lost = DIGITS + max(
        0, int(z_0 / 2 - mp.log10(unknown))
    )  # what the difference of two Ei cancels, and more
    for _ in range(200):
        value, slope = closed(unknown)
        step = mp.log(value / goal) * value / (slope * unknown)
        unknown *= mp.exp(-step)
        if abs(step) < mp.mpf(10) ** (8 - DIGITS):
            return z_0 + unknown if kind == "CACO" else z_0 * mp.exp(unknown)
    raise RuntimeError("no root")


def truth(kind, n_classes, vocab, lr_ov, mu_0, alpha, t):
    """Every column; the incentives by differences of 18 digits' width, from their definitions alone."""

    def loss(z):
        return mp.log1p((n_classes - 1) * mp.exp(-z))

    def at(a):
        return root(kind, n_classes, vocab, lr_ov, mu_0, a, t)

    z, h = at(alpha), mp.mpf(10) ** -18
    by_z = (loss(z - h) - loss(z + h)) / (2 * h)  # -dL/dz
    by_alpha = z * mp.log(at(alpha * (1 + h)) / at(alpha * (1 - h))) / (2 * h * alpha)
    return FixedAttention(z / alpha, z, mp.log(loss(z)), loss(z), by_z * z / alpha, by_z * by_alpha)


def draw(rng, kind):
    def number(low, high):
        return float(np.exp(rng.uniform(math.log(low), math.log(high))))

    start = [number(1e-6, 10), number(1e-290, 1), number(1, 500), 0.0 if kind == "CACO" else 0.01]
    alpha = [1.0, float(rng.uniform(0.01, 1)), number(1e-4, 1)]
    log_t = [float(rng.uniform(-680, -60)), float(rng.uniform(-60, 60)), number(1, 1e6)]
    numbers = int(number(2, 1e6)), int(number(1, 1e4)), number(0.01, 10), start[rng.integers(4)]
    return numbers, alpha[rng.integers(3)], log_t[rng.integers(3)]


def largest_error(kind, numbers, alpha, log_t, found):
    """Relative, over max(1, condition number in log t / max(1, |log t|)); what underflows stays tiny."""
    mp.mp.dps = DIGITS
    exactly = [mp.mpf(number) for number in (*numbers, alpha)]
    nudge = mp.mpf(10) ** -9
    here, moved = (truth(kind, *exactly, mp.exp(log_t + n * max(1, abs(log_t)))) for n in (0, nudge))
    worst = 0.0
    for got, true, other in zip(found, here, moved):
        got = mp.mpf(float(got[0, 0]))
        if abs(true) < 1e-290:  # e^-z underflows before M - 1 and mu_OV multiply it
            assert abs(got) < 1e-289
            continue
        condition = abs(other / true - 1) / nudge
        worst = max(worst, float(abs(got / true - 1) / max(1, condition)))
    return worst


@pytest.mark.parametrize("kind", KINDS)
def test_accuracy_over_the_full_ranges(kind):
    # 6,000 settings gave 1.9e-13, which is the exponent of a start of 1e-287 times the last digit.
    rng = np.random.default_rng(0)
    for _ in range(40):
        numbers, alpha, log_t = draw(rng, kind)
        found = fixed_attention(problem_of(kind, *numbers), alpha, at_log_time=log_t)
        assert largest_error(kind, numbers, alpha, log_t, found) < 3e-13, (numbers, alpha, log_t)


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_ten_tolerances_is_seen_in_each_column(kind):
    numbers = (20, 50, 400.0, 0.3)
    found = fixed_attention(problem_of(kind, *numbers), 0.4, at_log_time=1.0)
    assert largest_error(kind, numbers, 0.4, 1.0, found) < 3e-13
    for name, column in found._asdict().items():
        wrong = found._replace(**{name: column * (1 + 3e-12)})
        assert largest_error(kind, numbers, 0.4, 1.0, wrong) > 3e-13, name


def test_lambert_w():
    """From zero, collapsed: z = (T+1)/(M-1) - W(e^((T+1)/(M-1)) / (M-1))."""
    mp.mp.dps = DIGITS
    for n_classes, alpha, t in [(2, 1.0, 3.0), (4, 0.3, 1e-8), (20, 0.7, 1e4), (1000, 0.05, 1e7)]:
        scaled = (mp.mpf(0.7) * mp.mpf(alpha) ** 2 * mp.mpf(t) / 50 + 1) / (n_classes - 1)
        z = scaled - mp.lambertw(mp.exp(scaled) / (n_classes - 1))
        found = fixed_attention(problem_of("CACO", n_classes, 50, 0.7, 0.0), alpha, at_time=t)
        assert math.isclose(found.z[0, 0], z, rel_tol=1e-15), n_classes


def test_ends():
    alphas = np.array([0.1, 1.0])
    for kind in KINDS:
        problem = Problem(parameterization=kind)
        c = problem.constants
        by_log = fixed_attention(problem, alphas, at_log_time=[-math.inf, -1e6, 1e6])
        late = FixedAttention(*(column[:, 2:] for column in by_log))
        np.testing.assert_array_equal(by_log.mu_ov[:, :2], np.full((2, 2), c.mu_ov_0))
        np.testing.assert_allclose(by_log.total_incentive[:, :2], by_log.partial_incentive[:, :2], rtol=1e-15)
        np.testing.assert_array_equal(
            fixed_attention(problem, alphas, at_time=0.0).mu_ov, np.full((2, 1), c.mu_ov_0)
        )

        pace = 2 * np.log(alphas) - math.log(50)
        if kind == "CAFO":
            pace = np.log(2 * alphas / math.sqrt(50)) + np.log(late.z[:, 0])
        # z - log t tends to it as 1/z, of which 1e6 leaves 1e-6
        np.testing.assert_allclose(late.z[:, 0], 1e6 + pace, rtol=0, atol=2e-6)
        np.testing.assert_allclose(late.log_loss, math.log(19) - late.z, rtol=1e-15)
        assert not np.any([late.loss, late.partial_incentive, late.total_incentive])


# Other routes


def test_the_derived_field_integrated_at_fixed_attention():
    """diffrax, 12 digits a step; an error of 1e-6 in the field is seen."""
    setting, rates, start = OrthogonalSetting(7, 6, 2, 5), LearningRates(0.7), Start(0.2, -0.4)
    c, times = Problem(setting, "CACO", rates, start).constants, np.array([1e-2, 1.0, 10.0, 1e3, 1e5])
    scale = np.array([1, 1 + 1e-6])

    def field(s, mu, _):  # in s = log(1 + t); rows: collapsed, factorized
        rate = jnp.stack([jnp.ones(2), derived.rescaling_ov(c, mu[1])])
        return scale * jnp.exp(s) * rate * derived.drive_ov(c, mu, c.mu_qk_0)

    saved = diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Dopri8(),
        0.0,
        math.log1p(times[-1]),
        1e-3,
        jnp.full((2, 2), c.mu_ov_0),
        saveat=diffrax.SaveAt(ts=jnp.log1p(times)),
        stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-14, step_ts=jnp.log1p(times)),
    ).ys
    alpha = derived.alpha(c, c.mu_qk_0)
    for row, kind in enumerate(KINDS):
        found = fixed_attention(Problem(setting, kind, rates, start), alpha, at_time=times).mu_ov[0]
        np.testing.assert_allclose(found, saved[:, row, 0], rtol=1e-10)
        assert np.max(np.abs(found / saved[:, row, 1] - 1)) > 1e-8


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind):
    """The total incentive is the derivative of the loss by alpha: implicit differentiation, another route."""
    times = np.array([-math.inf, -690.0, -3.0, 3.0, 12.0, 600.0])

    def columns(alpha, mu_ov):
        return jnp.stack(fixed_attention(traced(kind, 5.0, 7.0, 0.7, mu_ov), alpha, at_log_time=times))[:, 0]

    backward, forward = jax.jit(jax.jacrev(columns, argnums=(0, 1))), jax.jit(jax.jacfwd(columns))
    for mu_ov in (0.0 if kind == "CACO" else 1e-100, 0.5, 30.0):
        for alpha in (0.03, 1.0):
            found = FixedAttention(*columns(alpha, mu_ov))
            by_alpha, by_start = backward(alpha, mu_ov)
            # at log t = 600 the last digit of z is worth 1e-13 of the loss
            incentive = -FixedAttention(*by_alpha).log_loss * found.loss
            np.testing.assert_allclose(incentive, found.total_incentive, rtol=5e-12)
            assert np.isfinite(by_alpha).all()
            assert np.isfinite(by_start).all()
            if mu_ov > 1e-3:  # else products with a loss of e^-600 underflow, as documented
                np.testing.assert_allclose(by_alpha, forward(alpha, mu_ov), rtol=1e-11, atol=1e-306)

    # Every number of the problem moves at once, along a direction, against a central difference.
    def moved(s):
        problem = traced(kind, 5.0 * (1 + s), 7.0 * (1 - s), 0.7 * (1 + 2 * s), 0.5 * (1 - 3 * s))
        return jnp.stack(fixed_attention(problem, 0.3, at_time=20.0 * (1 + s)))[:, 0, 0]

    # 1e-5 squared, times third derivatives of up to 100, is lost, and less to rounding.
    slopes = jax.jvp(moved, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(slopes, (moved(1e-5) - moved(-1e-5)) / 2e-5, rtol=0, atol=1e-8)


def traced(kind, n_classes, vocab, lr_ov, mu_ov):
    """A problem of numbers that need not be whole, as JAX makes them."""
    plain = problem_of(kind, 5, 7, 0.7, 0.5)
    leaves, structure = jax.tree.flatten(plain)
    names = [path[-1].name for path, _ in jax.tree.leaves_with_path(plain)]
    new = {"n_classes": n_classes, "n_distinct_vocab": vocab, "lr_ov": lr_ov, "mu_ov": mu_ov}
    return jax.tree.unflatten(structure, [new.get(n, old) for n, old in zip(names, leaves)])


# Real matrices

SMALL = OrthogonalSetting(3, 4, 2, 1, 5, 1)


@jax.jit
def trained(factors, alpha, step_size, steps):
    """Gradient descent on W_OV, or W_O and W_V, over every sequence of SMALL with the attention fixed.

    Returns:
        mu_OV read off the matrix, the loss, -dL/dalpha at these weights, -dL/dalpha through all steps.
    """
    data = population(SMALL)
    m, n = int(SMALL.n_distinct), int(SMALL.n_common)
    line = directions(SMALL)[1]

    def loss(factors, alpha):
        attention = jnp.concatenate([jnp.full(m, alpha / m), jnp.full(n, (1 - alpha) / n)])
        w_ov = functools.reduce(jnp.matmul, factors)
        logits = jnp.einsum("l,nlm->nm", attention, w_ov.T[data.tokens])
        return cross_entropy(logits, data.classes).mean()

    def descended(alpha):
        def step(_, factors):
            return jax.tree.map(lambda w, g: w - step_size * g, factors, jax.grad(loss)(factors, alpha))

        factors_end = jax.lax.fori_loop(0, steps, step, factors)
        return loss(factors_end, alpha), factors_end

    value, by_training, end = jax.jvp(descended, (alpha,), (1.0,), has_aux=True)
    w_ov = functools.reduce(jnp.matmul, end)
    mu_ov = (w_ov * line).sum() / (line * line).sum()
    off = jnp.abs(w_ov - mu_ov * line).max()
    return jnp.stack([mu_ov, value, -jax.grad(loss, 1)(end, alpha), -by_training]), off


def errors_of_training(kind, alpha, trained_alpha, end=60.0):
    """Of mu_OV, loss and both incentives, after 100, 200 and 400 steps to the same time."""
    problem = Problem(SMALL, kind, LearningRates(1.0), Start(0.3 if kind == "CAFO" else 0.0))
    ov = aligned_start(problem).ov
    factors = (ov.left[...], ov.right[...]) if kind == "CAFO" else (ov.matrix[...],)
    found = fixed_attention(problem, alpha, at_time=end)
    names = ("mu_ov", "loss", "partial_incentive", "total_incentive")
    closed = np.array([getattr(found, name)[0, 0] for name in names])
    errors = []
    for steps in (100, 200, 400):
        columns, off = trained(factors, trained_alpha, end / steps, steps)
        assert off < 1e-13  # on the line, common columns at 0
        errors.append(columns / closed - 1)
    return np.array(errors)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.3, 0.9])
def test_training_tends_to_the_closed_form_with_order_one(kind, alpha):
    errors = errors_of_training(kind, alpha, alpha)
    # The next term of the error is of the order of the step, here a few percent of the first.
    np.testing.assert_allclose(np.log2(errors[1] / errors[2]), 1.0, atol=0.05)
    assert np.abs(errors[2]).max() < 0.03


def test_training_with_another_attention_does_not():
    errors = errors_of_training("CAFO", 0.3, 0.303)
    assert np.abs(np.log2(np.abs(errors[1] / errors[2])) - 1).max() > 0.2


# Shapes, compilation, refusals


def test_shapes_and_order():
    setting = OrthogonalSetting(n_classes=np.array([[5], [20]]))
    problem = Problem(setting, "CAFO", LearningRates(np.array([0.1, 1.0, 10.0])))
    alphas, times = [0.9, 0.2], [1e3, 1.0, 1e5, 0.0]
    found = fixed_attention(problem, alphas, at_time=times)
    one = fixed_attention(problem_of("CAFO", 20, 50, 0.1, 0.01), 0.2, at_log_time=math.log(1e5))
    for column, single in zip(found, one):
        assert column.shape == (2, 3, 2, 4)
        assert column.dtype == jnp.float64
        np.testing.assert_allclose(column[1, 0, 1, 2], single[0, 0], rtol=1e-13)
    np.testing.assert_allclose(
        found.loss, np.log1p((setting.n_classes[..., None, None] - 1) * np.exp(-found.z))
    )


def test_nothing_compiles_when_a_number_changes():
    fixed_attention(Problem(), 0.5, at_time=2.0)
    before = fixed._solve._cache_size()
    for setting in (OrthogonalSetting(), OrthogonalSetting(4, 5, 2, 3, 7, 3)):
        for alpha, rate, time in (
            (1, 1, 3),
            (0.25, 2.5, 0.5),
            (np.float32(0.5), np.float32(3), np.int32(1)),
        ):
            problem = Problem(setting, "FACO", LearningRates(rate), Start(float(time), 0.5))
            fixed_attention(problem, alpha, at_time=time)
    assert fixed._solve._cache_size() == before
    fixed_attention(problem, np.full(5, 0.1), at_time=1.0)  # another shape does compile: the count counts
    assert fixed._solve._cache_size() == before + 1


def test_inside_jit_and_vmap():
    plain = fixed_attention(Problem(), [0.2, 0.6], at_log_time=5.0)
    mapped = jax.jit(jax.vmap(lambda p, a: fixed_attention(p, a, at_log_time=5.0), in_axes=(None, 0)))
    for column, same in zip(plain, mapped(Problem(), jnp.array([0.2, 0.6]))):
        np.testing.assert_allclose(column[:, 0], same[:, 0, 0], rtol=1e-14)


@pytest.mark.parametrize(
    ("alpha", "target", "words"),
    [
        (0.0, {"at_time": 1.0}, "Argument `alpha` must be above 0 and at most 1, but is 0."),
        ([0.5, 1.1], {"at_time": 1.0}, "but is 1.1."),
        (math.nan, {"at_time": 1.0}, "but is nan."),
        ([[0.5]], {"at_time": 1.0}, "`alpha` must be a number or one row of numbers, but has 2 axes."),
        (0.5, {"at_time": -1.0}, "`at_time` must be finite and at least 0, but is -1."),
        (0.5, {"at_log_time": math.inf}, "`at_log_time` must be a number below infinity"),
        (0.5, {}, "Exactly one of `at_time`, `at_log_time` must be given, but 0 are."),
        (0.5, {"at_time": 1.0, "at_log_time": 0.0}, "but 2 are."),
    ],
)
def test_questions_without_an_answer(alpha, target, words):
    with pytest.raises(ArgumentError) as caught:
        fixed_attention(Problem(), alpha, **target)
    assert words in str(caught.value)


def test_starts_without_a_closed_form():
    imbalanced = Problem(parameterization="CAFO", start=Start(0.1, 0.0, 0.3))
    with pytest.raises(ArgumentError, match=r"`imbalance_ov` must be 0.*but is 0.3\."):
        fixed_attention(imbalanced, 0.5, at_time=1.0)
    unchecked = jax.tree.map(lambda leaf: leaf, Problem(parameterization="CAFO"))
    object.__setattr__(unchecked.start, "mu_ov", 0.0)
    with pytest.raises(ArgumentError, match=r"`mu_ov_0` must be positive .* but is 0\."):
        fixed_attention(unchecked, 0.5, at_time=1.0)
    with pytest.raises(FloatingPointError, match="beyond the range of float64"):
        fixed_attention(problem_of("CAFO", 20, 50, 1.0, 1e-290), 1e-20, at_log_time=1e4)


def test_float32_is_refused():
    with jax.enable_x64(False), pytest.raises(ArgumentError, match="jax_enable_x64"):
        fixed_attention(Problem(), 0.5, at_time=1.0)
