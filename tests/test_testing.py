"""Assertions for others: they pass on good records, and name margin and first violation on planted faults."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import qkflow
from qkflow import testing
from qkflow.models import aligned_start, directions, modes
from qkflow.setting import ArgumentError, LearningRates, OrthogonalSetting, Problem, Start
from qkflow.train import population_gradients

SETTING = OrthogonalSetting(3, 2, 1, 1, 2, 2, score_scale=0.8)
STEPS, H = 150, 0.4
T = H * np.arange(STEPS + 1)


def problem_of(kind="CACO", ratio=5.0):
    return Problem(SETTING, kind, LearningRates(1.5, ratio))


def numpy_training(ratio=5.0, momentum=0.0, swapped=False, leaky=0.0):
    """Gradient descent of a collapsed layer, with loops over sequences: no code of qkflow in it.

    Args:
        ratio: of the learning rates.
        momentum: heavy ball.
        swapped: whether two classes' labels are exchanged for one distinct token.
        leaky: added to the logit of the right class (a wrong loss).
    """
    w_qk, w_ov, v_qk, v_ov = (np.zeros(shape) for shape in ((8, 6), (3, 8)) * 2)
    record = []
    for _ in range(STEPS + 1):
        g_qk, g_ov, loss, alpha = np.zeros((8, 6)), np.zeros((3, 8)), 0.0, 0.0
        for c, q, d, k in np.ndindex(3, 2, 2, 2):
            keys, query = [2 * c + d, 6 + k], 2 * c + q
            label = (c + 1) % 3 if swapped and (c, d) == (0, 0) else c
            s = np.exp(0.8 * w_qk[keys, query])
            a = s / s.sum()
            logits = w_ov[:, keys] @ a + leaky * np.eye(3)[label]
            p = np.exp(logits) / np.exp(logits).sum()
            e = (p - np.eye(3)[label]) / 24
            pull = w_ov[:, keys].T @ e
            loss, alpha = loss - np.log(p[label]) / 24, alpha + a[0] / 24
            for j, key in enumerate(keys):
                g_ov[:, key] += e * a[j]
                g_qk[key, query] += 0.8 * a[j] * (pull[j] - a @ pull)
        record.append((w_qk, w_ov, loss, alpha))
        v_ov, v_qk = momentum * v_ov - H * 1.5 * g_ov, momentum * v_qk - H * 1.5 * ratio * g_qk
        w_ov, w_qk = w_ov + v_ov, w_qk + v_qk
    return [np.array(column) for column in zip(*record)]


@pytest.fixture(scope="module")
def good():
    w_qk, w_ov, loss, alpha = numpy_training()
    return w_qk, w_ov, loss, alpha, testing.read_matrices(SETTING, w_qk, w_ov)


def mus(w_qk, w_ov):
    state = testing.read_matrices(SETTING, w_qk, w_ov)
    return state.mu_ov, state.mu_qk


def complaint(assertion, *args, **options):
    """The message, which always says where first and by how much."""
    with pytest.raises(AssertionError) as caught:
        assertion(*args, **options)
    message = str(caught.value)
    assert re.search(r"First violation: .* \(record \d+\): .* against .*, allowed .*margin", message), message
    return message


def test_an_independent_training_passes(good):
    w_qk, w_ov, loss, alpha, state = good
    held = testing.assert_follows_flow(problem_of(), state.mu_ov, state.mu_qk, t=T, step_size=H)
    assert held.error < 1e-12
    assert "margin" in str(held)
    assert testing.assert_on_line(problem_of(), w_qk, w_ov).error < 1e-13
    held = testing.assert_growth_bound(problem_of(), state.mu_ov, state.mu_qk, t=T, step_size=H)
    assert held.margin >= 1
    fast = numpy_training(ratio=15.0)
    assert testing.assert_sharper((loss, alpha), fast[2:]).error < 0


def test_without_a_step_size_the_flow_itself_is_meant(good):
    state = good[-1]
    flow = qkflow.solve(problem_of(), at_time=T[::30])
    assert testing.assert_follows_flow(problem_of(), flow.mu_ov, flow.mu_qk, t=T[::30]).error < 1e-12
    columns = [column[::30] for column in (state.mu_ov, state.mu_qk)]
    assert "mu_" in complaint(testing.assert_follows_flow, problem_of(), *columns, t=T[::30])
    testing.assert_follows_flow(problem_of(), *columns, t=T[::30], tolerance=0.1)


@pytest.mark.parametrize(
    "fault",
    [{"ratio": 5.05}, {"momentum": 0.1}, {"swapped": True}, {"leaky": 0.1}],
    ids=["rate 1 % off", "momentum", "swapped labels", "wrong loss"],
)
def test_faults_of_a_training_are_seen(fault):
    w_qk, w_ov, *_ = numpy_training(**fault)
    message = complaint(testing.assert_follows_flow, problem_of(), *mus(w_qk, w_ov), t=T, step_size=H)
    first = int(re.search(r"record (\d+)", message)[1])
    assert first <= 2
    if "swapped" in fault:
        complaint(testing.assert_on_line, problem_of(), w_qk, w_ov)


def test_the_first_violation_is_where_the_fault_begins(good):
    state = good[-1]
    late = state.mu_qk.copy()
    late[100:] += 1e-6
    message = complaint(
        testing.assert_follows_flow, problem_of(), state.mu_ov, late, t=T, step_size=H, tolerance=1e-7
    )
    assert "mu_qk, t = 40 (record 100)" in message
    late[120] = np.nan
    message = complaint(
        testing.assert_follows_flow, problem_of(), state.mu_ov, late, t=T, step_size=H, tolerance=1e-3
    )
    assert "record 120" in message
    assert "nan" in message


def test_an_entry_off_the_line_is_seen(good):
    w_qk, w_ov, *_ = (column.copy() for column in good[:4])
    w_ov[70, 1, 2] += 1e-6
    assert "w_ov, record = 70 (record 70)" in complaint(testing.assert_on_line, problem_of(), w_qk, w_ov)
    assert testing.assert_on_line(problem_of(), w_qk, w_ov, tolerance=1e-5).at == "w_ov, record = 70"
    complaint(testing.assert_on_line, problem_of(), w_qk[70], w_ov[70])


def test_a_factorized_qk_circuit_is_held_to_its_plane():
    qk, ov = directions(SETTING)
    shared, rest = modes(qk)
    testing.assert_on_line(problem_of("FACO"), 2 * shared + rest, ov)
    complaint(testing.assert_on_line, problem_of("CACO"), 2 * shared + rest, ov)
    complaint(testing.assert_on_line, problem_of("FACO"), qk + 1e-3 * np.eye(*qk.shape), ov)


def momentum_sgd(step_ov, step_qk):
    """Gradient descent with heavy-ball momentum in both circuits."""
    from qkflow.train import circuit_labels

    return optax.partition(
        {"ov": optax.sgd(step_ov, momentum=0.1), "qk": optax.sgd(step_qk, momentum=0.1)}, circuit_labels
    )


def test_qkflow_s_own_training_of_factors_passes_and_momentum_does_not():
    problem = Problem(SETTING, "FAFO", LearningRates(1.5, 5.0), Start(0.05, 0.03))
    record = qkflow.train(problem, steps=200, step_size=0.1, records=6)
    columns = record.mu_ov[0], record.mu_qk[0]
    assert testing.assert_follows_flow(problem, *columns, t=record.t, step_size=0.1).error < 1e-11
    assert testing.assert_growth_bound(problem, *columns, t=record.t, step_size=0.1).margin >= 1
    record = qkflow.train(problem, steps=200, step_size=0.1, records=6, optimizer=momentum_sgd)
    columns = record.mu_ov[0], record.mu_qk[0]
    complaint(testing.assert_follows_flow, problem, *columns, t=record.t, step_size=0.1)


def test_seeds_must_agree_with_the_flow_as_a_whole_interval(good):
    state = good[-1]
    rng = np.random.default_rng(3)
    moved = np.ptp(state.mu_ov)

    def seeds(count, scatter, bias=0.0):
        noise = scatter * rng.normal(size=(2, count, 1)) + bias
        return state.mu_ov + moved * noise[0], state.mu_qk + 0.0 * noise[1]

    testing.assert_follows_flow(problem_of(), *seeds(30, 0.02), t=T, step_size=H)
    for wrong in (seeds(30, 0.02, bias=0.06), seeds(3, 0.2)):
        complaint(testing.assert_follows_flow, problem_of(), *wrong, t=T, step_size=H)


def test_the_width_of_the_interval_is_student_s():
    from qkflow.testing.follows import _mean

    for count, quantile in ((5, 4.604), (30, 2.756)):  # two-sided 99 %
        column = np.random.default_rng(0).normal(size=(count, 4))
        expected = quantile * column.std(axis=0, ddof=1) / np.sqrt(count)
        np.testing.assert_allclose(_mean(column)[1], expected, rtol=0.02)


def test_float32_records_are_given_the_rounding_of_float32(good):
    w_qk, w_ov = (column.astype(np.float32) for column in good[:2])
    state = testing.read_matrices(SETTING, w_qk, w_ov)
    assert state.mu_ov.dtype == np.float32
    held = testing.assert_follows_flow(problem_of(), state.mu_ov, state.mu_qk, t=T, step_size=H)
    assert 1e-8 < held.error < held.allowed
    testing.assert_on_line(problem_of(), w_qk, w_ov)


# Six points wherever the exact solution is asked: it compiles once for each number of points.


@pytest.mark.parametrize("kind", ["CACO", "FAFO"])
def test_growth_bounds_hold_far_out_and_broken_ones_are_named(kind):
    problem = Problem(parameterization=kind)
    log_t = np.array([-np.inf, 2.0, 20.0, 900.0, 5e3, 1e4])
    flow = qkflow.solve(problem, at_log_time=log_t)
    columns = [np.asarray(column) for column in (flow.mu_ov, flow.mu_qk)]
    assert testing.assert_growth_bound(problem, *columns, log_t=log_t).error <= 1e-10
    message = complaint(
        testing.assert_growth_bound, problem, columns[0], 1.0 + 0.1 * columns[0] ** 2, log_t=log_t
    )
    assert "qk_above" in message
    slow = columns[0] * np.array([1.0, 1.0, 1.0, 0.5, 1.0, 1.0])
    message = complaint(testing.assert_growth_bound, problem, slow, columns[1], log_t=log_t)
    assert "log_t = 900 (record 3)" in message


def test_a_bound_that_is_followed_sees_a_ratio_that_is_off():
    """mu_QK of CACO touches its bound in mu_OV^2 while attention is near its start."""
    t = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
    flow = qkflow.solve(problem_of(ratio=5.05), at_time=t)
    testing.assert_growth_bound(problem_of(ratio=5.05), flow.mu_ov, flow.mu_qk, t=t)
    message = complaint(testing.assert_growth_bound, problem_of(), flow.mu_ov, flow.mu_qk, t=t)
    assert "mu_qk by qk_above_linear" in message
    assert "record 1" in message


@pytest.mark.parametrize("circuit", ["ov", "qk"])
def test_rescaled_rates_of_factors(circuit):
    setting = OrthogonalSetting(3, 2, 1, 1, n_query_vocab=2, score_scale=0.8)
    problem = Problem(setting, "FAFO", start=Start(0.7, 0.4, 0.3, -0.2))
    layer = aligned_start(problem)
    qk, ov = layer.qk.full(), layer.ov.full()
    gradients = population_gradients(setting, qk, ov)
    factors, g = getattr(layer, circuit), getattr(gradients, circuit)
    left, right = factors.left[...], factors.right[...]

    def rate(move):
        matrices = {"w_qk": jnp.zeros_like(qk), "w_ov": jnp.zeros_like(ov), f"w_{circuit}": -move}
        return getattr(testing.read_matrices(setting, **matrices), f"mu_{circuit}")

    mu = getattr(problem.start, f"mu_{circuit}")
    measured = rate(g @ right.T @ right + left @ left.T @ g), rate(g)
    assert testing.assert_rescaled_rate(problem, circuit, mu, *measured).error < 1e-12
    message = complaint(
        testing.assert_rescaled_rate,
        problem,
        circuit,
        [mu] * 2,
        [measured[0], 1.01 * measured[0]],
        [measured[1]] * 2,
    )
    assert f"R_{circuit.upper()}" in message
    assert "record 1" in message
    complaint(testing.assert_rescaled_rate, problem, circuit, mu, measured[1], measured[1])
    testing.assert_rescaled_rate(Problem(setting), circuit, mu, measured[1], measured[1])


def test_sharper_fails_when_it_is_not_and_when_it_can_not_be_told(good):
    loss, alpha = good[2:4]
    fast = numpy_training(ratio=15.0)[2:]
    assert "loss = " in complaint(testing.assert_sharper, fast, (loss, alpha))
    with pytest.raises(AssertionError, match="do not tell"):
        testing.assert_sharper((loss, alpha), (loss, alpha))
    with pytest.raises(AssertionError, match="do not tell"):
        testing.assert_sharper((loss[:3], alpha[:3]), (fast[0][-3:], fast[1][-3:]))
    sparse = testing.assert_sharper((loss[::25], alpha[::25]), (fast[0][::40], fast[1][::40]))
    assert sparse.error < 0


def test_reading_matrices_agrees_with_the_record_of_a_training():
    problem = problem_of("FAFO")
    layer = aligned_start(Problem(SETTING, "FAFO", start=Start(0.3, 0.2)))
    state = testing.read_matrices(problem.setting, layer.qk.full(), layer.ov.full())
    assert (float(state.mu_ov), float(state.mu_qk)) == pytest.approx((0.3, 0.2), rel=1e-12)
    w = np.random.default_rng(1).normal(size=(8, 6))
    shared, rest = modes(directions(SETTING)[0])
    design = np.stack([shared.ravel(), rest.ravel()], axis=1)
    left = w.ravel() - design @ np.linalg.lstsq(design, w.ravel(), rcond=None)[0]
    reading = testing.read_matrices(SETTING, w, np.zeros((3, 8)))
    assert float(reading.off_qk_modes) == pytest.approx(np.linalg.norm(left))
    assert float(reading.off_qk) > float(reading.off_qk_modes)


OK = {"mu_ov": np.zeros(3), "mu_qk": np.zeros(3)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: testing.assert_follows_flow(problem_of(), **OK, t=[0, 1]), "must have 2 records"),
        (lambda: testing.assert_follows_flow(problem_of(), **OK, t=[0, -1, 1]), "`t` must be finite and at"),
        (
            lambda: testing.assert_follows_flow(problem_of(), **OK, t=[0, 1, 1.3], step_size=0.5),
            "whole numbers",
        ),
        (lambda: testing.assert_follows_flow(problem_of(), **OK, t=[0, 1, 2], step_size=0.0), "step_size"),
        (lambda: testing.assert_follows_flow(problem_of(), **OK, t=[0, 1, 2], tolerance=-1), "tolerance"),
        (lambda: testing.assert_growth_bound(problem_of(), **OK), "exactly one"),
        (lambda: testing.assert_growth_bound(problem_of(), **OK, t=[0, np.nan, 1]), "`t` must be finite"),
        (lambda: testing.assert_on_line(problem_of(), np.eye(3), np.eye(3)), "`w_qk` must have shape"),
        (
            lambda: testing.assert_rescaled_rate(problem_of(), "kq", 1.0, 1.0, 1.0),
            "`circuit` must be",
        ),
        (lambda: testing.assert_rescaled_rate(problem_of(), "ov", 1.0, [1.0], 1.0), "shape of `mu`"),
        (lambda: testing.assert_rescaled_rate(problem_of("FACO"), "qk", 1.0, 1.0, 1.0), "`n_common_vocab`"),
        (lambda: testing.assert_sharper(([1, 2, 3], [0.1] * 3), ([3, 2, 1], [0.1] * 3)), "falling"),
        (lambda: testing.assert_sharper(([3, 2, 1], [0.1, 1, 2]), ([3, 2, 1], [0.1] * 3)), "between 0 and 1"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_float64_is_asked_for():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ArgumentError, match="float64"):
            testing.assert_follows_flow(problem_of(), **OK, t=[0, 1, 2])
    finally:
        jax.config.update("jax_enable_x64", True)
