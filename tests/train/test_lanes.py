"""Trainings on the token task: resumed without a difference, independent of their neighbours."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from qkflow.setting import ArgumentError, Parameterization
from qkflow.train import EPOCH, TokenRun, lanes, train_runs
from qkflow.train.fixed_run import FixedAttentionRun

CACO, FAFO = Parameterization.CACO, Parameterization.FAFO
SHORT = TokenRun(CACO, "uniform", "uniform", lr_qk=0.1, lr_qk_end=0.5, lr_ov=0.2, steps=4 * EPOCH)
MOMENTUM = functools.partial(optax.sgd, momentum=0.9)


def same(one, other):
    """Bit for bit."""
    assert set(one.columns) == set(other.columns)
    leaves = zip(
        jax.tree.leaves((dict(one.columns), one.params)),
        jax.tree.leaves((dict(other.columns), other.params)),
        strict=True,
    )
    for a, b in leaves:
        assert a.tobytes() == b.tobytes()


class Stopped(BaseException):
    """Stands in for a signal."""


@pytest.fixture
def short_chunks(monkeypatch):
    """A chunk of one epoch; the compiled scan of another length is not used again."""
    monkeypatch.setattr(lanes, "CHUNK", 1)
    lanes._advance.clear_cache()
    yield
    lanes._advance.clear_cache()


@pytest.mark.parametrize("optimizer", [optax.sgd, MOMENTUM, optax.adamw], ids=["sgd", "momentum", "adamw"])
def test_a_killed_training_resumes_bit_for_bit(tmp_path, short_chunks, optimizer):
    runs = {"short": SHORT}
    whole = train_runs(runs, seeds=2, optimizer=optimizer)["short"]
    calls = []

    def stop(done, steps):
        calls.append(done)
        if len(calls) == 4:
            raise Stopped

    with pytest.raises(Stopped):
        train_runs(runs, seeds=2, optimizer=optimizer, folder=tmp_path, progress=stop)
    done = [np.load(path)["column loss"].size for path in tmp_path.iterdir()]
    assert sum(done) < 8
    same(train_runs(runs, seeds=2, optimizer=optimizer, folder=tmp_path)["short"], whole)
    # Complete, it is only read.
    same(train_runs(runs, seeds=2, optimizer=optimizer, folder=tmp_path)["short"], whole)


def test_a_lane_does_not_depend_on_its_neighbours():
    alone = train_runs({"short": SHORT}, seeds=1)["short"]
    among = train_runs({"other": TokenRun(CACO, "tiny", "tiny", steps=EPOCH), "short": SHORT}, seeds=2)
    for a, b in zip(jax.tree.leaves(alone.params), jax.tree.leaves(among["short"].params), strict=True):
        assert a[0].tobytes() == b[0].tobytes()


def test_lanes_through_one_scan_are_the_same_training(monkeypatch):
    """As on an accelerator: vectorised over runs of different rates and lengths, to the rounding of float64.

    1,000 steps of a descent that contracts: rounding of 1e-16 stays below 1e-10.
    """
    runs = {"short": SHORT, "other": TokenRun(CACO, "tiny", "tiny", lr_ov=0.1, steps=2 * EPOCH)}
    apart = train_runs(runs, seeds=1, dtype=np.float64)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    together = train_runs(runs, seeds=1, dtype=np.float64)
    for name, record in apart.items():
        assert record.columns["loss"].shape == together[name].columns["loss"].shape
        leaves = zip(jax.tree.leaves(record.params), jax.tree.leaves(together[name].params), strict=True)
        for a, b in leaves:
            assert np.allclose(a, b, rtol=0, atol=1e-10)


def test_the_scan_is_the_plain_loop():
    """One epoch in float64 against a Python loop of single steps without optax."""
    run = TokenRun(FAFO, "uniform", "uniform", lr_qk=0.4, lr_qk_end=0.8, lr_ov=0.2, steps=2 * EPOCH)
    record = train_runs({"one": run}, seeds=1, dtype=np.float64)["one"]
    params = jax.tree.map(jnp.asarray, run.start(0))
    gradient = jax.jit(jax.value_and_grad(run.loss))
    losses = []
    for epoch in range(2):
        key, _ = jax.random.split(jax.random.fold_in(jax.random.key(0), epoch))
        batches = run.draw(key, EPOCH)
        for k in range(EPOCH):
            loss, g = gradient(params, jax.tree.map(lambda x, k=k: x[k], batches))
            rate = 0.4 + 0.4 * (epoch * EPOCH + k) / (2 * EPOCH)
            for name, r in {"qk": rate, "ov": 0.2}.items():
                params[name] = jax.tree.map(lambda w, d, r=r: w - r * d, params[name], g[name])
            losses.append(float(loss))
    expected = np.reshape(losses, (2, EPOCH)).mean(axis=1)
    assert record.columns["training_loss"][0] == pytest.approx(expected, rel=1e-10)
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(record.params), strict=True):
        assert np.allclose(a, b[0], rtol=0, atol=1e-10)


def test_numbers_compile_nothing_anew():
    train_runs({"one": SHORT}, seeds=1)
    before = lanes._advance._cache_size()
    other = TokenRun(CACO, "tiny", "uniform", lr_qk=0.02, lr_ov=0.03, steps=3 * EPOCH)
    train_runs({"one": other}, seeds=2)
    assert lanes._advance._cache_size() == before


def test_momentum_and_adamw_keep_the_ratio_of_rates():
    """AdamW's first step is its rate, whatever the gradient: QK moves `ratio` times as far as OV."""
    run = TokenRun(CACO, "uniform", "uniform", lr_qk=0.02, lr_ov=0.01)
    adamw = functools.partial(optax.adamw, weight_decay=0.0)
    from qkflow.train import circuit_optimizer

    descent = circuit_optimizer(adamw, *run.rates())
    params = jax.tree.map(jnp.asarray, run.start(0))
    gradient = jax.grad(run.loss)(params, jax.tree.map(lambda x: x[0], run.draw(jax.random.key(0), 1)))
    updates, _ = descent.update(gradient, descent.init(params), params)
    qk, ov = (float(jnp.abs(updates[name]["matrix"]).max()) for name in ("qk", "ov"))
    assert qk / ov == pytest.approx(2, rel=1e-3)


def test_another_training_in_the_folder_is_refused(tmp_path):
    run = TokenRun(CACO, "tiny", "tiny", steps=EPOCH)
    train_runs({"one": run}, seeds=1, folder=tmp_path)
    kept = (tmp_path / "one-0.npz").read_bytes()
    other = TokenRun(CACO, "tiny", "tiny", lr_qk=0.05, steps=EPOCH)
    with pytest.raises(ArgumentError, match=r"one-0.npz' must be of the same training, but differs in run"):
        train_runs({"one": other}, seeds=1, folder=tmp_path)
    with pytest.raises(ArgumentError, match="differs in optimizer"):
        train_runs({"one": run}, seeds=1, folder=tmp_path, optimizer=MOMENTUM)
    assert (tmp_path / "one-0.npz").read_bytes() == kept
    (tmp_path / "one-0.npz").write_bytes(kept[:100])
    with pytest.raises(ArgumentError, match="cannot be read"):
        train_runs({"one": run}, seeds=1, folder=tmp_path)
    assert os.listdir(tmp_path) == ["one-0.npz"]


def test_matrices_that_leave_the_finite_numbers_are_named():
    run = TokenRun(FAFO, "uniform", "uniform", lr_ov=1e6, steps=EPOCH)
    with pytest.raises(ArgumentError, match="The learning rates of `wild` must be smaller"):
        train_runs({"wild": run}, seeds=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TokenRun(CACO, "small", "tiny"), "Argument `start_qk` must be 'uniform' or 'tiny'"),
        (lambda: TokenRun("XAXO", "tiny", "tiny"), "Argument `parameterization` must be one of CACO"),
        (lambda: TokenRun(CACO, "tiny", "tiny", lr_qk=-1), "Argument `lr_qk` must be finite"),
        (lambda: TokenRun(CACO, "tiny", "tiny", lr_ov=float("nan")), "Argument `lr_ov` must be finite"),
        (lambda: TokenRun(CACO, "tiny", "tiny", batch_size=0), "Argument `batch_size` must be a whole"),
        (lambda: FixedAttentionRun(1.5, True), "Argument `alpha` must be between 0 and 1"),
        (
            lambda: train_runs({"a": TokenRun(CACO, "tiny", "tiny", steps=100)}),
            "Argument `steps` must be a pos",
        ),
        (lambda: train_runs({"a": SHORT}, seeds=0), "Argument `seeds` must be a whole number"),
    ],
)
def test_bad_arguments_are_named(make, words):
    with pytest.raises(ArgumentError) as error:
        make()
    assert words in str(error.value)


def test_fixed_attention_is_what_it_says():
    """d and c by hand, also where one kind is missing; the incentive against a central difference."""
    run = FixedAttentionRun(0.3, True, bias=True)
    counts = jnp.zeros((3, 50), int).at[0, :12].set(jnp.arange(12)).at[1, 3].set(4).at[2, 20].set(2)
    d, c = run.shares(counts, float)
    assert d[0, 10:12].tolist() == pytest.approx([10 / 21, 11 / 21])
    assert c[0, :10].tolist() == pytest.approx((np.arange(10) / 45).tolist())
    assert (d[1:] == c[1:]).all()
    assert np.allclose([d.sum(axis=1), c.sum(axis=1)], 1)
    params, key = jax.tree.map(lambda x: 5 * jnp.asarray(x), run.start(0)), jax.random.key(5)
    row = run.measure(params, key)
    batch = jax.tree.map(lambda x: x[0], run.draw(key, 1))
    assert np.bincount(batch.classes).tolist() == [32] * 4
    h = 1e-5  # error h^2 = 1e-10 and rounding 1e-16 / h = 1e-11

    def at(alpha):
        from qkflow.data import sample_counts
        from qkflow.train.fixed_run import MEASURED

        return float(run.loss(params, sample_counts(key, run.task, MEASURED, balanced=True), alpha))

    assert float(row["incentive"]) == pytest.approx((at(0.3 - h) - at(0.3 + h)) / (2 * h), rel=1e-7)
    assert float(row["difference"]) == pytest.approx((at(0.3) - at(0.305)) / 0.005, rel=1e-9)
