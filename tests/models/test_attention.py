import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from qkflow.data import population
from qkflow.models import Attention, Matrix, Product, attention_mass, cross_entropy, vocabularies
from qkflow.setting import OrthogonalSetting
from qkflow.train import population_gradients


def plain_loss(setting, qk, ov):
    """The mean loss sequence by sequence, with one-hot vectors, in NumPy."""
    losses, masses = [], []
    keys, queries = vocabularies(setting)
    blanks = setting.n_common if np.isinf(setting.n_common_vocab) else 0
    for label, query, tokens in zip(*population(setting), strict=True):
        x = np.concatenate([np.eye(keys)[tokens], np.zeros((blanks, keys))])
        weights = np.exp(setting.score_scale * x @ qk @ np.eye(queries)[query])
        weights /= weights.sum()
        logits = ov @ (weights @ x)
        losses.append(np.log(np.exp(logits).sum()) - logits[label])
        masses.append(weights[: setting.n_distinct].sum())
    return np.mean(losses), np.mean(masses)


@pytest.fixture(params=[5, np.inf], ids=["B=5", "B=inf"])
def layer(request):
    setting = OrthogonalSetting(3, 4, 2, 1, request.param, 2, score_scale=0.7)
    keys, queries = vocabularies(setting)
    rng = np.random.default_rng(0)
    shapes = {"k": (keys, 6), "q": (6, queries), "o": (3, 6), "v": (6, keys)}
    return setting, {name: rng.normal(size=shape) for name, shape in shapes.items()}


def test_the_model_is_the_layer_written_out(layer):
    setting, w = layer
    sequences = population(setting)
    blanks = 1 if np.isinf(setting.n_common_vocab) else 0
    loss, mass = plain_loss(setting, w["k"] @ w["q"], w["o"] @ w["v"])
    circuits = [
        (Matrix(w["k"] @ w["q"]), Matrix(w["o"] @ w["v"])),
        (Product(w["k"], w["q"]), Product(w["o"], w["v"])),
    ]
    for qk, ov in circuits:

        @jax.jit
        def run(classes, queries, tokens, qk=qk, ov=ov):
            scores, logits = Attention(qk, ov)(tokens, queries, setting.score_scale, blanks)
            return cross_entropy(logits, classes).mean(), *attention_mass(scores, setting.n_distinct)

        # Rounding of sums of a few numbers of size 10.
        measured, alpha, log_rest = run(*sequences)
        assert measured == pytest.approx(loss, rel=1e-13)
        assert alpha == pytest.approx(mass, rel=1e-13)
        assert jnp.exp(log_rest) == pytest.approx(1 - mass, rel=1e-12)


def test_gradients_are_the_differences_of_the_loss(layer):
    setting, w = layer
    qk, ov = w["k"] @ w["q"], w["o"] @ w["v"]
    loss, gradient_qk, gradient_ov = population_gradients(setting, qk, ov)
    assert loss == pytest.approx(plain_loss(setting, qk, ov)[0], rel=1e-13)
    h = 1e-5
    rng = np.random.default_rng(1)
    for direction_qk, direction_ov in [
        (rng.normal(size=qk.shape), 0 * ov),
        (0 * qk, rng.normal(size=ov.shape)),
    ]:
        up, down = (plain_loss(setting, qk + s * direction_qk, ov + s * direction_ov)[0] for s in (h, -h))
        slope = np.vdot(gradient_qk, direction_qk) + np.vdot(gradient_ov, direction_ov)
        # A central difference errs by h^2 times a third derivative of order 10, and by rounding over h.
        assert (up - down) / (2 * h) == pytest.approx(slope, abs=1e-8)
        assert abs(slope) > 1e-3


def test_few_entries_of_a_product_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    circuit = Product(rng.normal(size=(9, 3)), rng.normal(size=(3, 8)))
    rows, columns = rng.integers(0, 9, (20, 5)), rng.integers(0, 8, 20)
    expected = np.asarray(circuit.full())[rows, columns[:, None]]
    for count in (2, 20):  # fewer and more entries than the product has
        assert np.asarray(circuit.entries(rows[:count], columns[:count])) == pytest.approx(
            expected[:count], rel=1e-13
        )


@pytest.mark.parametrize("z", [-800.0, -1.0, 0.0, 5.0, 40.0, 700.0])
def test_cross_entropy_and_its_gradient_keep_their_digits(z):
    logits, classes = jnp.array([[z, 0.0, 0.0]]), jnp.array([0])
    with mpmath.workdps(40):
        wrong = 2 * mpmath.exp(-mpmath.mpf(z))
        expected = float(mpmath.log1p(wrong)), float(-wrong / (1 + wrong))
    value, slope = jax.value_and_grad(lambda x: cross_entropy(x, classes)[0])(logits)
    # log 2 - 700 is rounded to 700 ulp before it is exponentiated.
    assert value == pytest.approx(expected[0], rel=1e-12)
    assert slope[0, 0] == pytest.approx(expected[1], rel=1e-12)
