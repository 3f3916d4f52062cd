"""Minibatches: every sequence moves the mu's alike, and the claim about their scatter can fail."""

import dataclasses
import importlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from qkflow.data import Sequences, population, sample
from qkflow.flow import derived
from qkflow.models import aligned_start, directions, modes
from qkflow.setting import LearningRates, Problem, Start
from qkflow.train import circuit_sgd
from qkflow.train.record import mean_loss
from qkflow.verify import Verdict, noise, sgd_scatter
from qkflow.verify.confidence import log_scatter, quantile, standard_error
from qkflow.verify.record import SMALL_RATES, TINY, TWO_MODES
from tests.verify.stored import stored

PROBLEM = Problem(TINY, "CACO", SMALL_RATES)


def judged(measured: noise.Noise, field=derived):
    record = types.SimpleNamespace(noise={"CACO": measured})
    return sgd_scatter.judge(types.SimpleNamespace(record=record, field=field))


def wrong_exponents(claim) -> set[str]:
    """The quantities whose exponent is beyond its margin, whatever the interval."""
    found = claim.details["intervals"]
    return {part.split()[-1] for part, (off, _) in found.items() if "exponent" in part and abs(off) > 0.25}


@pytest.mark.parametrize("kind", ["CACO", "FAFO"])
def test_every_sequence_has_the_same_projected_gradient(kind):
    """On the manifold, imbalance and two modes included; and off it not."""
    uneven = {"imbalance_ov": 0.3, "imbalance_qk": -0.4} if kind == "FAFO" else {}
    problem = Problem(TWO_MODES, kind, start=Start(0.7, 0.9, **uneven))
    sequences = Sequences(*map(jnp.asarray, population(TWO_MODES)))
    qk_line, ov_line = directions(TWO_MODES)

    @jax.jit
    def projected(model):
        graph, params = nnx.split(model)

        def one(*sequence):
            batch = Sequences(*(part[None] for part in sequence))
            moved = nnx.merge(
                graph, jax.grad(lambda p: mean_loss(nnx.merge(graph, p), batch, TWO_MODES, 1.0))(params)
            )
            speed = []
            for name, lines in (("qk", modes(qk_line)), ("ov", (ov_line,))):
                now, g = getattr(model, name), getattr(moved, name)
                if kind == "FAFO":
                    velocity = g.left[...] @ now.right[...] + now.left[...] @ g.right[...]
                else:
                    velocity = g.matrix[...]
                speed += [jnp.vdot(line, velocity) for line in lines]
            return jnp.stack(speed)

        return jax.vmap(one)(*sequences)

    speeds = projected(aligned_start(problem))
    assert np.ptp(speeds, axis=0) == pytest.approx(0, abs=1e-14)
    assert abs(speeds).min() > 1e-3
    off = jax.tree.map(lambda w: w + 0.1 * np.cos(np.arange(w.size)).reshape(w.shape), aligned_start(problem))
    assert np.ptp(projected(off), axis=0).min() > 1e-3


def test_intervals_cover():
    """Exponents of a scatter of squares, which is far from normal, paired by seeds."""
    random, missed, t = np.random.default_rng(0), 0, quantile(1, 64)
    sizes = np.array([1.0, 0.5, 0.25])
    slope = np.array([1.0, 0.0, -1.0]) / np.log(4.0)
    for _ in range(400):
        common, own = random.normal(size=(6, 64)), random.normal(size=(3, 6, 64))
        values = sizes[:, None] * ((common + own) ** 2).sum(1)
        logs, influence = log_scatter(values)
        missed += abs(slope @ logs - 1.0) > t * standard_error(slope @ influence)
    assert 0.01 < missed / 400 < 0.1  # 5 % +- 1 %, and a few more since s is estimated


def test_the_stored_minibatches_scatter_as_claimed():
    record = stored()
    assert set(record.noise) == {"CACO", "FAFO"}
    evidence = types.SimpleNamespace(record=record, field=derived)
    claim = sgd_scatter.judge(evidence)
    assert claim.verdict is Verdict.VERIFIED, claim.details["intervals"]
    assert record.noise["CACO"].columns["mu_ov"].shape == (5, 64)


def test_a_wrong_theory_is_not_where_the_mean_is():
    wrong = types.ModuleType("wrong")
    wrong.__dict__.update(vars(derived))
    wrong.__dict__["drive_qk"] = lambda c, u, g, log_scale=0.0: 1.02 * derived.drive_qk(c, u, g, log_scale)
    claim = judged(stored().noise["CACO"], wrong)
    assert claim.verdict is Verdict.FALSIFIED
    assert claim.first_violation["part"] == "CACO: mean of mu_qk"


@pytest.fixture
def coarse(monkeypatch):
    """Small batches, which are quick, show planted errors well enough."""
    monkeypatch.setattr(noise, "BATCH", 4)


def test_a_rate_five_percent_too_fast(coarse):
    faster = dataclasses.replace(PROBLEM, rates=LearningRates(1.05, SMALL_RATES.ratio / 1.05))
    claim = judged(dataclasses.replace(noise.measure_noise(faster), problem=PROBLEM))
    assert claim.verdict is Verdict.FALSIFIED
    assert claim.first_violation["part"] == "CACO: mean of mu_ov"


def fluctuating(step_ov, step_qk):
    """Each step is longer or shorter by .3, by chance: which of two like tokens the batch has more of."""

    def scale(updates, state, params=None):
        entries = updates["ov"]["matrix"][...]
        factor = 1.0 + 0.3 * jnp.sign(entries[0, 0] - entries[0, 1])
        return jax.tree.map(lambda update: factor * update, updates), state

    chance = optax.GradientTransformation(lambda params: optax.EmptyState(), scale)
    return optax.chain(circuit_sgd(step_ov, step_qk), chance)


def test_steps_that_fluctuate_scatter_the_mus_at_first_order(coarse):
    claim = judged(noise.measure_noise(PROBLEM, fluctuating))
    assert claim.verdict is Verdict.FALSIFIED
    assert {"mu_ov", "mu_qk"} <= wrong_exponents(claim)


def test_a_class_drawn_more_often_takes_the_entries_off_for_good(coarse, monkeypatch):
    def biased(key, setting, batch_size):
        drawn = sample(key, setting, batch_size)
        again = sample(jax.random.fold_in(key, 1), setting, batch_size)
        more = (again.classes == 0) & (again.queries == 0)
        return Sequences(
            *(
                jnp.where(more.reshape(-1, *(1,) * (x.ndim - 1)), y, x)
                for x, y in zip(drawn, again, strict=True)
            )
        )

    def recompiled(step_ov, step_qk):
        return circuit_sgd(step_ov, step_qk)

    monkeypatch.setattr(importlib.import_module("qkflow.train.loop"), "sample", biased)
    claim = judged(noise.measure_noise(PROBLEM, recompiled))
    assert claim.verdict is Verdict.FALSIFIED, claim.why
    assert {"off_ov", "off_qk"} <= wrong_exponents(claim), claim.details["intervals"]
