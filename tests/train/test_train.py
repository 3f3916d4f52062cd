"""Training against the scalar map and the flow, and what `train` promises of itself."""

import functools
import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qkflow.flow import derived
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start
from qkflow.train import circuit_sgd, train
from qkflow.train.loop import record_steps

SMALL = OrthogonalSetting(3, 4, 2, 1, 5, 6, 0.8)
BLANK = OrthogonalSetting(4, 5, 2, 3, math.inf, 3, 0.8)
KINDS = ("CACO", "FACO", "CAFO", "FAFO")


@jax.jit
def scalar_map(c, step_size, steps):
    """mu after `steps` Euler steps of the derived field, CACO."""

    def step(_, mu):
        ov, qk = derived.drive_ov(c, *mu), derived.line_gap(c) * derived.drive_qk(c, *mu)
        return mu[0] + step_size * ov, mu[1] + step_size * qk

    return jax.lax.fori_loop(0, steps, step, (jnp.asarray(c.mu_ov_0), jnp.asarray(c.mu_qk_0)))


def distance_to_scalar_map(setting, **options):
    problem = Problem(setting, "CACO", LearningRates(0.9, 3.0), Start(0.1, 0.05))
    trained = train(problem, step_size=0.5, **options)
    worst = 0.0
    for k, steps in enumerate(trained.extra["step"]):
        mu_ov, mu_qk = scalar_map(problem.constants, 0.5, int(steps))
        worst = max(worst, abs(trained.mu_ov[0, k] / mu_ov - 1), abs(trained.mu_qk[0, k] / mu_qk - 1))
    return worst


def exchanged(step_ov, step_qk):
    return circuit_sgd(step_qk, step_ov)


def ascending_qk(step_ov, step_qk):
    return circuit_sgd(step_ov, -step_qk)


@pytest.mark.parametrize("setting", [SMALL, BLANK], ids=["B=5", "B=inf"])
def test_matrices_follow_the_scalar_map_for_4000_steps(setting):
    # 1e-12: 4,000 steps, each rounded at a few parts in 1e16.
    assert distance_to_scalar_map(setting, steps=4000, records=6) < 1e-12


@pytest.mark.parametrize("optimizer", [exchanged, ascending_qk])
def test_wrong_steps_leave_the_scalar_map(optimizer):
    assert distance_to_scalar_map(BLANK, steps=10, records=2, optimizer=optimizer) > 1e-3


@functools.partial(jax.jit, static_argnames=("qk_factorized", "ov_factorized"))
def flow(c, end, *, qk_factorized, ov_factorized):
    """(mu_OV, mu_QK) of the derived flow at time `end`: RK4 in both amplitudes of the QK circuit."""
    nu = jnp.stack(jnp.broadcast_arrays(*derived.singular_values_qk(c)))

    def field(state):
        mu_ov, sigma = state
        mu_qk = derived.gap(c, sigma[0], sigma[1])
        r_ov = derived.rescaling_ov(c, mu_ov) if ov_factorized else 1.0
        r_qk = derived.rescaling_qk(c, sigma) if qk_factorized else 1.0
        return r_ov * derived.drive_ov(c, mu_ov, mu_qk), nu * r_qk * derived.drive_qk(c, mu_ov, mu_qk)

    h = end / 2000

    def step(_, y):
        def along(k, scale):
            return jax.tree.map(lambda a, b: a + scale * h * b, y, k)

        k1 = field(y)
        k2 = field(along(k1, 0.5))
        k3 = field(along(k2, 0.5))
        k4 = field(along(k3, 1.0))
        return jax.tree.map(lambda a, *k: a + h / 6 * (k[0] + 2 * k[1] + 2 * k[2] + k[3]), y, k1, k2, k3, k4)

    start = jnp.asarray(c.mu_ov_0), nu * c.mu_qk_0 / derived.line_gap(c)
    mu_ov, sigma = jax.lax.fori_loop(0, 2000, step, start)
    return mu_ov, derived.gap(c, sigma[0], sigma[1])


def errors_against_flow(kind, end=40.0, **options):
    start = Start(0.2, 0.1, 0.3 if kind[2] == "F" else 0.0, -0.2 if kind[0] == "F" else 0.0)
    problem = Problem(SMALL, kind, LearningRates(1.0, 2.0), start)
    exact = flow(problem.constants, end, qk_factorized=kind[0] == "F", ov_factorized=kind[2] == "F")
    errors, drifts = [], []
    for steps in (200, 400, 800):
        trained = train(problem, steps=steps, step_size=end / steps, records=2, **options)
        assert trained.t[-1] == pytest.approx(end)
        errors.append([trained.mu_ov[0, -1] - exact[0], trained.mu_qk[0, -1] - exact[1]])
        drifts.append(
            [trained.extra[n][0, -1] for n in ("conserved_ov", "conserved_qk") if n in trained.extra]
        )
    return np.array(errors), np.array(drifts)


@pytest.mark.parametrize("kind", KINDS)
def test_training_tends_to_the_flow_with_order_one_and_drifts_with_order_one(kind):
    errors, drifts = errors_against_flow(kind)
    # The next term of the error is of the order of the step, here a few percent of the first.
    assert np.log2(errors[1] / errors[2]) == pytest.approx([1.0, 1.0], abs=0.05)
    assert np.log2(drifts[1] / drifts[2]) == pytest.approx(np.ones(drifts.shape[1]), abs=0.05)
    assert (drifts > 0).all()


def test_wrong_steps_do_not_tend_to_the_flow():
    errors, _ = errors_against_flow("FAFO", optimizer=exchanged)
    assert np.abs(np.log2(errors[1] / errors[2])).max() < 0.5


def test_aligned_factors_stay_on_the_plane_of_their_modes():
    trained = train(Problem(SMALL, "FAFO", LearningRates(1.0, 5.0)), steps=1000, step_size=0.5)
    assert trained.mu_qk[0, -1] > 1
    assert trained.extra["residual_qk"].max() > 0.1
    # Rounding, which the saddle near the start amplifies.
    assert trained.extra["residual_qk_modes"].max() < 1e-10
    assert trained.extra["residual_ov"].max() < 1e-10


def test_a_wider_layer_moves_alike():
    narrow, wide = (train(Problem(BLANK, "FAFO"), steps=300, hidden_width=w).mu_ov for w in (None, 9))
    assert narrow == pytest.approx(wide, rel=1e-11)
    assert narrow[0, -1] > 2 * narrow[0, 0]


@pytest.mark.parametrize(("start", "kind"), [("identity", "CACO"), ("identity", "FAFO"), ("random", "FAFO")])
def test_other_starts_learn_too(start, kind):
    problem = Problem(BLANK, kind, LearningRates(1.0, 10.0))
    trained = train(problem, start=start, start_scale=0.1, steps=1000, step_size=0.5, seeds=2, records=5)
    assert (trained.loss[:, -1] < 0.1 * trained.loss[:, 0]).all()
    assert (trained.mu_qk[:, -1] > 1).all()
    assert (trained.extra["residual_ov"][:, -1] < 0.5 * trained.extra["residual_ov"][:, 0]).all()
    assert (trained.mu_qk[0, -1] != trained.mu_qk[1, -1]) == (start == "random")


def test_seeds_scatter_about_the_population_and_are_the_same_again_and_alone():
    problem = Problem(BLANK, "CACO", LearningRates(1.0, 3.0))
    options = {"steps": 400, "step_size": 0.5, "records": 2}
    exact = train(problem, **options).mu_ov[0, -1]
    noisy, again = (train(problem, mode="sgd", seeds=16, **options) for _ in range(2))
    assert noisy.options["seeds"] == list(range(16))
    assert len(np.unique(noisy.mu_qk[:, -1])) == 16
    assert 0 < noisy.mu_ov[:, -1].std(ddof=1) < 0.05 * exact
    assert noisy.extra["residual_ov"][:, -1].min() > 0.01
    # Noise shifts the mean as well, at the order of step / batch.
    assert noisy.mu_ov[:, -1].mean() == pytest.approx(exact, rel=0.5 / 32)
    assert np.array_equal(noisy.mu_ov, again.mu_ov)
    alone = train(problem, mode="sgd", seeds=1, **options)
    # Sums over a batch may be ordered differently with a seed axis.
    assert alone.mu_qk == pytest.approx(noisy.mu_qk[:1], rel=1e-10)


def test_one_seed_is_shown_as_many_where_nothing_is_random():
    trained = train(Problem(BLANK, "CACO"), seeds=3, steps=5, records=2)
    assert trained.mu_ov.shape == trained.extra["residual_qk"].shape == (3, 3)
    assert trained.t.tolist() == [0.0, 0.1, 0.5]
    assert trained.log_t[0] == -np.inf
    document = trained.document()
    assert document["points"][2]["step"] == 5
    assert len(document["points"][2]["mu_ov"]) == 3


def test_a_population_too_large_is_refused_and_sgd_evaluates_on_a_sample():
    problem = Problem(OrthogonalSetting(2, 40, 5, 3, math.inf, 1))
    with pytest.raises(ArgumentError, match=str(2 * math.comb(40, 5))):
        train(problem)
    trained = train(problem, mode="sgd", steps=2, records=1)
    assert trained.stats["sequences"] == 4096
    assert trained.loss[0, 0] == pytest.approx(math.log(2))


def test_nothing_compiles_when_only_numbers_change(caplog):
    def compiled(beta, rate, ratio, mu, step_size, steps):
        setting = OrthogonalSetting(2, 3, 1, 2, 4, 3, beta)
        problem = Problem(setting, "FAFO", LearningRates(rate, ratio), Start(mu, mu))
        caplog.clear()
        with jax.log_compiles(), caplog.at_level(logging.WARNING):
            train(problem, mode="sgd", seeds=2, steps=steps, step_size=step_size)
        return sum("Finished XLA compilation" in r.getMessage() for r in caplog.records)

    assert compiled(1.0, 1.0, 1.0, 0.1, 0.1, 40) > 0
    assert compiled(0.5, 0.3, 7.0, 0.2, 0.05, 70) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 1e200}, "`step_size` must be smaller: with 1e.200 the matrices are no longer finite"),
        ({"step_size": 0.0}, "`step_size` must be positive"),
        ({"step_size": math.nan}, "`step_size` must be positive"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1, but is 0"),
        ({"steps": 1.5}, "`steps` must be a whole number"),
        ({"seeds": 0}, "`seeds` must be"),
        ({"records": 0}, "`records` must be"),
        ({"mode": "sgd", "batch_size": 0}, "`batch_size` must be"),
        ({"hidden_width": 1}, "`hidden_width` must be at least 4 for the aligned start, but is 1"),
        ({"start": "random", "start_scale": -1.0}, "`start_scale` must be positive"),
        ({"start_scale": 0.1}, "`start_scale` is for the identity and random starts"),
        ({"batch_size": 8}, "`batch_size` is for the mode sgd"),
        ({"start": "zero"}, "`start` must be one of aligned, identity, random, but is 'zero'"),
        ({"mode": "adam"}, "`mode` must be one of population, sgd, but is 'adam'"),
    ],
)
def test_impossible_arguments_are_refused(options, message):
    with pytest.raises(ArgumentError, match=message):
        train(Problem(BLANK, "FAFO"), **{"steps": 20, **options})


def test_a_batch_of_problems_is_refused():
    with pytest.raises(ArgumentError, match="`ratio` must be a single number"):
        train(Problem(BLANK, "CACO", LearningRates(1.0, np.array([1.0, 2.0]))))


def test_progress_is_called_after_each_record():
    seen = []
    train(
        Problem(BLANK, "CACO"), steps=100, records=3, progress=lambda done, steps: seen.append((done, steps))
    )
    assert seen == [(0, 100), (1, 100), (10, 100), (100, 100)]


def test_records_are_geometric_unique_and_end_at_the_last_step():
    assert record_steps(7, 50).tolist() == list(range(8))
    assert record_steps(4000, 1).tolist() == [0, 1, 4000]
    assert len(record_steps(4000, 50)) <= 51


def test_single_precision_trains_in_single_precision():
    with jax.enable_x64(False):
        trained = train(Problem(BLANK, "FAFO"), mode="sgd", steps=50, records=2)
    assert trained.mu_ov.dtype == np.float32
    assert trained.mu_ov[0, -1] > trained.mu_ov[0, 0]
