"""The exact solution against 45-digit arithmetic, published numbers and planted errors."""

import functools
import math
import types

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from qkflow.flow import derived, exact
from qkflow.flow.exact import solve_exact
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Parameterization, Problem, Start
from tests.published import END_POINTS
from tests.reference import Reference

ALL = list(Parameterization)
COLUMNS = ("log_t", "mu_ov", "mu_qk", "alpha", "log_one_minus_alpha", "log_loss")
KINDS = ("loss", "log_time", "attention")


# Accuracy


def draw(rng, kind, factorized_ov, factorized_qk):
    """A problem of the full ranges and a target of the kind."""

    def number(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    def whole(low, high):
        return round(number(low, high))

    def start(factorized):
        imbalance = (
            float(rng.choice([-1, 1])) * number(1e-3, 10) if factorized and rng.random() < 0.3 else 0.0
        )
        zero = rng.random() < 0.5 and (not factorized or imbalance)
        return (0.0 if zero else number(1e-6, 10)), imbalance

    b, n = whole(1, 1e4), whole(1, 1e4)
    setting = OrthogonalSetting(
        n_classes=whole(2, 1e6),
        n_distinct_vocab=b,
        n_distinct=min(b, whole(1, 1e4)),
        n_common=n,
        n_common_vocab=math.inf if rng.random() < 0.5 else n + whole(1, 1e5) - 1,
        n_query_vocab=whole(1, 1e4),
        score_scale=number(0.1, 10),
    )
    (u, imbalance_ov), (g, imbalance_qk) = start(factorized_ov), start(factorized_qk)
    problem = Problem(
        setting,
        Parameterization("CF"[factorized_qk] + "A" + "CF"[factorized_ov] + "O"),
        LearningRates(number(0.01, 10), number(1e-6, 1e6)),
        Start(u, g, imbalance_ov, imbalance_qk),
    )
    odds = setting.n_distinct / setting.n_common * math.exp(g)
    if kind == "loss":  # from just below the start's to 1e-300
        first = math.log1p((setting.n_classes - 1) * math.exp(-u * odds / (1 + odds)))
        return problem, first * math.exp(-number(0.01, 690 + math.log(first)))
    if kind == "attention":  # up to 1 - 1e-15
        low, high = math.log(odds), 34.5
        return problem, 1 / (1 + math.exp(-low - max(high - low, 1e-3) * number(1e-3, 1)))
    return problem, float(rng.uniform(-60, 60)) if rng.random() < 0.6 else number(1, 1e4)


def errors(problem, kind, value, trajectory):
    """Errors of every column over max(1, condition number): relative, in log t over max(1, |log t|)."""
    reference = Reference(problem)
    truth = reference.solve(kind, value)
    nudge = mp.mpf("1e-18")
    nudged = reference.solve(kind, value, nudge=nudge * (max(1, abs(value)) if kind == "log_time" else 1))
    result = {}
    for name in COLUMNS:
        size = max(1, abs(truth[name])) if name == "log_t" else abs(truth[name]) or 1
        condition = abs(nudged[name] - truth[name]) / size / nudge
        result[name] = float(
            abs(mp.mpf(float(getattr(trajectory, name)[0])) - truth[name]) / size / max(1, condition)
        )
    return result


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("parameterization", ALL)
def test_accuracy_over_the_full_ranges(parameterization, kind):
    # The requirement is 1e-10. 600 settings gave at most 1e-12, so 1e-11 sees a loss of one digit.
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(4):
        problem, value = draw(rng, kind, parameterization.ov_factorized, parameterization.qk_factorized)
        worst = errors(problem, kind, value, solve_exact(problem, **{f"at_{kind}": value}))
        assert max(worst.values()) < 1e-11, (problem, value, worst)


def test_published_setting_to_twelve_digits():
    ratio, columns = np.array(list(END_POINTS)), np.array(list(END_POINTS.values())).T
    trajectory = solve_exact(Problem(rates=LearningRates(ratio=ratio)), at_loss=1e-4)
    for name, column in zip(("mu_ov", "mu_qk", "alpha", "t"), columns):
        np.testing.assert_allclose(getattr(trajectory, name)[:, 0], column, rtol=1e-12)


def test_the_four_parameterizations_at_equal_loss():
    table = {
        1.0: {"CACO": 0.07101, "FACO": 0.001987, "CAFO": 0.4606, "FAFO": 0.4214},
        10.0: {"CACO": 0.007617, "FACO": 0.0001186, "CAFO": 0.1563, "FAFO": 0.006778},
    }
    setting = OrthogonalSetting(4, 5, 2, 3, math.inf, 3)
    for ratio, row in table.items():
        for name, printed in row.items():
            problem = Problem(setting, Parameterization(name), LearningRates(ratio=ratio))
            unseen = np.exp(solve_exact(problem, at_loss=1e-4).log_one_minus_alpha[0])
            assert f"{unseen:.3e}" == f"{printed:.3e}"  # to the four digits printed


# Ends and round trips


@pytest.mark.parametrize("parameterization", ALL)
def test_time_zero_is_the_start(parameterization):
    problem = Problem(parameterization=parameterization)
    at_zero = solve_exact(problem, at_time=0.0)
    assert at_zero.t[0] == 0
    targets = {
        "at_log_time": -math.inf,
        "at_loss": float(at_zero.loss[0]),
        "at_attention": float(at_zero.alpha[0]),
    }
    for trajectory in (at_zero, *(solve_exact(problem, **{k: v}) for k, v in targets.items())):
        assert trajectory.t[0] == 0
        assert trajectory.log_t[0] == -math.inf
        assert trajectory.mu_ov[0] == problem.start.mu_ov
        assert trajectory.mu_qk[0] == problem.start.mu_qk


@pytest.mark.parametrize("parameterization", ALL)
def test_early_and_late_times(parameterization):
    problem = Problem(parameterization=parameterization)
    c = problem.constants
    early, late = (solve_exact(problem, at_log_time=v) for v in (-100.0, 1e4))
    speed = derived.drive_ov(c, c.mu_ov_0, c.mu_qk_0)
    if parameterization.ov_factorized:
        speed = speed * derived.rescaling_ov(c, c.mu_ov_0)
    rise = early.mu_ov[0] - c.mu_ov_0
    # From zero the rise itself is seen, elsewhere it is far below the last digit.
    assert math.isclose(rise, speed * math.exp(-100.0) if c.mu_ov_0 == 0 else 0, rel_tol=1e-12)
    # The slowest is CAFO: z - log t has come to within log u of its limit (section 5 of the theory).
    assert abs(late.z[0] - 1e4) < 20
    assert late.t[0] == math.inf
    assert late.loss[0] == 0
    assert math.isclose(late.log_loss[0], math.log(19) - late.z[0], rel_tol=1e-12)


@pytest.mark.parametrize("parameterization", ALL)
def test_round_trip(parameterization):
    problem = Problem(OrthogonalSetting(n_common_vocab=300), parameterization, LearningRates(ratio=3.0))
    for time in (1e2, 1e6, 1e30):
        there = solve_exact(problem, at_time=time)
        assert there.t[0] == time
        back = solve_exact(problem, at_loss=float(there.loss[0]))
        assert math.isclose(back.log_t[0], there.log_t[0], rel_tol=1e-11)
        # 1 - alpha is 1e-6 at worst: rounding alpha costs as many digits
        back = solve_exact(problem, at_attention=float(there.alpha[0]))
        assert math.isclose(back.log_t[0], there.log_t[0], rel_tol=1e-8)


def test_the_order_asked_is_kept_and_batches_broadcast():
    setting = OrthogonalSetting(n_classes=np.array([[5], [20]]))
    problem = Problem(setting, rates=LearningRates(ratio=np.array([0.1, 1.0, 10.0])))
    losses = [1e-3, 1e-1, 1e-2, 1e-5]
    trajectory = solve_exact(problem, at_loss=losses)
    one = solve_exact(Problem(OrthogonalSetting(n_classes=20), rates=LearningRates(ratio=10.0)), at_loss=1e-2)
    for name in (*COLUMNS, "t"):
        column = getattr(trajectory, name)
        assert column.shape == (2, 3, 4)
        assert column.dtype == jnp.float64
        np.testing.assert_allclose(column[1, 2, 2], getattr(one, name)[0], rtol=1e-13)
    np.testing.assert_allclose(trajectory.loss, np.broadcast_to(losses, (2, 3, 4)), rtol=1e-13)


# Derivatives


@functools.partial(jax.jit, static_argnames=("parameterization", "kind"))
def pulled_back(numbers, target, cotangents, parameterization, kind):
    """Derivatives of the columns, weighed by the cotangents, in every number and the target."""

    def columns(numbers, target):
        c = dict(numbers)
        setting = {k: c.pop(k) for k in numbers if k.startswith("n_") or k == "score_scale"}
        rates = LearningRates(c.pop("lr_ov"), c.pop("ratio"))
        problem = Problem(OrthogonalSetting(**setting), parameterization, rates, Start(**c))
        trajectory = solve_exact(problem, **{f"at_{kind}": target})
        return {name: getattr(trajectory, name)[:, 0] for name in COLUMNS}

    return jax.vjp(columns, numbers, target)[1](cotangents)


def numbers_of(parameterization, **changes):
    factorized_ov, factorized_qk = parameterization.ov_factorized, parameterization.qk_factorized
    numbers = dict(
        n_classes=20.0, n_distinct_vocab=50.0, n_distinct=5.0, n_common=50.0, n_common_vocab=70.0,
        n_query_vocab=40.0, score_scale=1.5, lr_ov=0.7, ratio=3.0,
        mu_ov=0.01 if factorized_ov else 0.0, mu_qk=0.02 if factorized_qk else 0.0,
        imbalance_ov=0.03 if factorized_ov else 0.0, imbalance_qk=-0.05 if factorized_qk else 0.0,
    )  # fmt: skip
    return numbers | changes


@pytest.mark.parametrize(
    ("parameterization", "kind"),  # every branch of the code
    [(Parameterization.CACO, "log_time"), *((Parameterization.FAFO, kind) for kind in KINDS)],
)
def test_derivatives(parameterization, kind):
    targets = {
        "log_time": [15.0, -200.0, -30.0, 1e4],
        "loss": [1e-3, 1e-300],
        "attention": [0.96, 1 - 1e-14],
    }[kind]
    edges = [
        {},
        {"n_common_vocab": math.inf},
        {"imbalance_ov": 0.0, "imbalance_qk": 0.0},
        {"mu_ov": 2.0, "mu_qk": 3.0},
    ]
    cases = [numbers_of(parameterization, **edge) for edge in edges]
    numbers = {k: jnp.array([case[k] for case in cases]) for k in cases[0]}
    for column in COLUMNS:
        weights = {name: np.full(len(cases), float(name == column)) for name in COLUMNS}
        for target in targets:
            found = pulled_back(numbers, target, weights, parameterization, kind)
            for path, leaf in jax.tree.leaves_with_path(found):
                assert np.isfinite(leaf).all(), (column, target, path, leaf)

    # Along one direction in which everything moves, against a one-sided difference in 45 digits.
    values, target = cases[0], targets[0]
    rng = np.random.default_rng(0)
    direction = {name: float(rng.uniform(0.5, 2)) * (value or 1.0) for name, value in values.items()}
    for circuit in ("ov", "qk"):
        if values[f"imbalance_{circuit}"] == 0:
            direction[f"imbalance_{circuit}"] = 0.0
    by_target = 0.1 * target

    def moved(step):
        c = [mp.mpf(value) + step * mp.mpf(direction[name]) for name, value in values.items()]
        setting = jax.tree.unflatten(
            jax.tree.structure(OrthogonalSetting()), c[:7]
        )  # no longer whole: unchecked
        problem = Problem(
            setting, parameterization, LearningRates(*map(float, c[7:9])), Start(*map(float, c[9:]))
        )
        reference = Reference(problem)
        return reference.solve(kind, mp.mpf(target) + step * mp.mpf(by_target))

    step = 1e-5
    here, near, far = (moved(k * step) for k in range(3))
    for column in COLUMNS:
        # the target is common to all cases: its derivative is the sum of theirs, so ask for the first alone
        weights = {name: np.eye(len(cases))[0] * (name == column) for name in COLUMNS}
        by_numbers, by_goal = pulled_back(numbers, target, weights, parameterization, kind)
        terms = [by_numbers[name][0] * direction[name] for name in direction] + [by_goal * by_target]
        truth = float((4 * near[column] - far[column] - 3 * here[column]) / (2 * step))
        # truncation: the square of the step
        assert abs(sum(terms) - truth) < 1e-7 * sum(map(abs, terms)), column


# Compilation


def test_nothing_compiles_when_a_number_changes():
    finite = OrthogonalSetting(4, 5, 2, 3, 7, 3, 2.0)
    starts = [Start(0.01, 0.01), Start(0.0, 0.0, 0.5, -0.5), Start(3, 2.0)]
    solve_exact(Problem(parameterization="FAFO"), at_loss=1e-3)
    before = exact._solve._cache_size()
    for setting in (OrthogonalSetting(), finite):
        for start in starts:
            for ratio in (1, 2.5, np.float32(3)):
                problem = Problem(setting, Parameterization.FAFO, LearningRates(ratio=ratio), start)
                solve_exact(problem, at_loss=ratio * 1e-5)
    assert exact._solve._cache_size() == before
    solve_exact(problem, at_loss=[1e-3, 1e-4])  # another shape does compile: the count counts
    assert exact._solve._cache_size() == before + 1


# Refusals


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"at_loss": 0.0}, "`at_loss` must be positive and at most the start's (2.99"),
        ({"at_loss": 3.0}, "but is 3."),
        ({"at_loss": [1e-3, math.nan]}, "but is nan."),
        ({"at_time": -1.0}, "`at_time` must be finite and at least 0, but is -1."),
        ({"at_time": math.inf}, "but is inf."),
        ({"at_log_time": math.nan}, "`at_log_time` must be a number below infinity"),
        ({"at_attention": 0.05}, "`at_attention` must be at least the start's (0.0909"),
        ({"at_attention": 1.0}, "and below 1, but is 1."),
        ({}, "Exactly one of `at_loss`, `at_time`, `at_log_time`, `at_attention` must be given, but 0 are."),
        ({"at_loss": 0.1, "at_time": 1.0}, "but 2 are."),
        ({"at_loss": [[0.1]]}, "must be a number or one row of numbers, but has 2 axes."),
    ],
)
def test_questions_without_an_answer(target, words):
    with pytest.raises(ArgumentError) as caught:
        solve_exact(Problem(), **target)
    assert words in str(caught.value)


def test_float32_is_refused():
    with jax.enable_x64(False), pytest.raises(ArgumentError, match="jax_enable_x64"):
        solve_exact(Problem(), at_loss=1e-3)


# Planted errors


def planted(**changes):
    """The derived field with other functions in place of its own."""
    field = types.ModuleType("planted")
    vars(field).update(vars(derived) | changes)
    return field


def larger(function, relative):
    return lambda *args: jax.tree.map(lambda value: value * (1 + relative), function(*args))


@pytest.mark.parametrize(
    ("name", "parameterization"),
    [
        ("separation", "CACO"),
        ("line_gap", "CACO"),
        ("log_odds", "CACO"),
        ("time_density", "CACO"),
        ("log_loss", "CACO"),
        ("rescaling_ov", "CAFO"),
        ("rescaling_qk", "FACO"),
        ("singular_values_qk", "FACO"),
        ("gap", "FACO"),
    ],
)
def test_an_error_in_the_field_is_seen(name, parameterization):
    problem = Problem(OrthogonalSetting(n_common_vocab=60), Parameterization(parameterization))
    field = planted(**{name: larger(getattr(derived, name), 1e-6)})
    worst = errors(problem, "log_time", 16.0, solve_exact(problem, at_log_time=16.0, field=field))
    assert max(worst.values()) > 1e-11  # the tolerance of the test of accuracy


POOR = [
    (Problem(OrthogonalSetting(4, 5, 2, 3, math.inf, 3), "FAFO", LearningRates(1.0, 10.0)), 4.2280),
    (
        Problem(
            OrthogonalSetting(257425, 985, 2, 5, math.inf, 1578, 0.6558),
            "FACO",
            LearningRates(0.533, 448.4),
            Start(9.49, 3.75),
        ),
        16.0,
    ),
    (
        Problem(
            OrthogonalSetting(65633, 12, 2, 294, math.inf, 42, 0.2646),
            "FACO",
            LearningRates(0.067, 6340.8),
            Start(1.34e-5, 2.93),
        ),
        22.0,
    ),
    (
        Problem(
            OrthogonalSetting(1719, 1, 1, 4663, math.inf, 329, 0.3892515782819732),
            "FAFO",
            LearningRates(0.1659017296339253, 0.9172362808717162),
            Start(5.4026204008248385e-05, 1.209367180893387e-06),
        ),
        26.0,
    ),
]


@pytest.mark.parametrize(("problem", "log_t"), POOR, ids=["FAFO", "FACO first", "FACO second", "steep"])
def test_times_whose_first_estimate_is_poor(problem, log_t):
    """The estimate is off by several units in log t, or no number: further quadratures put it right."""
    by_time = solve_exact(problem, at_log_time=log_t)
    by_loss = solve_exact(problem, at_loss=by_time.loss)
    # As documented; in the steep case the last digit of the curve's coordinate moves log t by 1.5e-11.
    assert abs(by_loss.log_t[0] - log_t) <= 1e-11 * log_t
    assert abs(by_loss.mu_qk[0] / by_time.mu_qk[0] - 1) <= 1e-11


def test_a_search_does_not_go_round():
    """From this start Newton's clipped steps lead back to where they came from."""
    problem = Problem(parameterization="FACO", rates=LearningRates(1.0, 1e3), start=Start(5.0, 1e-5))
    losses = np.linspace(2.567, 1.3, 7)
    found = solve_exact(problem, at_loss=losses)
    np.testing.assert_allclose(np.exp(found.log_loss), losses, rtol=1e-12)


@pytest.mark.parametrize(
    ("parameterization", "ratio", "log_t"),
    [
        ("CACO", 80.0, 10.186012021549931),
        ("FACO", 93.0, 10.859060402684563),
        ("FACO", 80.0, 9.101694915254237),
    ],
)
def test_a_search_does_not_creep(parameterization, ratio, log_t):
    """Across the bend of the first estimate Newton's steps go to and fro, and hardly narrow the bracket."""
    problem = Problem(parameterization=parameterization, rates=LearningRates(ratio=ratio))
    mu_qk = solve_exact(problem, at_log_time=[log_t - 1e-3, log_t, log_t + 1e-3]).mu_qk
    assert mu_qk[0] < mu_qk[1] < mu_qk[2]


def test_a_concrete_problem_inside_jit():
    plain = solve_exact(Problem(), at_loss=0.1).alpha
    np.testing.assert_allclose(
        jax.jit(lambda x: solve_exact(Problem(), at_loss=x).alpha)(0.1), plain, rtol=1e-14
    )
