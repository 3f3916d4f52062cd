"""A layer on token counts is the layer on sequences: same attention, logits, loss and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from qkflow.data import TokenTask, count_tokens, sample_tokens
from qkflow.models import Attention, cross_entropy
from qkflow.setting import Parameterization
from qkflow.train import TokenRun
from qkflow.train.token_run import circuit

TASKS = {
    "published": TokenTask(),
    "query not attended": TokenTask(query_attended=False),
    "other numbers": TokenTask(3, (2.0,) * 7, (1.0, 5.0), length=20),
}


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
@pytest.mark.parametrize("kind", list(Parameterization))
def test_loss_and_gradients_are_those_on_sequences(kind, task):
    """Relative 1e-12 in float64: both sum some 60 terms a sequence, of rounding 1e-16 each."""
    run = TokenRun(kind, "uniform", "uniform", task=task)
    params = jax.tree.map(lambda x: jnp.asarray(3 * x), run.start(0))  # far from uniform attention
    tokens = sample_tokens(jax.random.key(0), task, 64)
    counts = count_tokens(task, tokens)

    def on_sequences(params):
        layer = Attention(**{name: circuit(m) for name, m in params.items()})
        _, logits = layer(tokens.tokens, tokens.queries, task.score_scale)
        return cross_entropy(logits, jnp.asarray(task.labels)[tokens.classes]).mean()

    one, of_one = jax.value_and_grad(on_sequences)(params)
    other, of_other = jax.value_and_grad(run.loss)(params, counts)
    assert float(other) == pytest.approx(float(one), rel=1e-12)
    for a, b in zip(jax.tree.leaves(of_one), jax.tree.leaves(of_other), strict=True):
        assert np.abs(a).max() > 1e-6
        assert np.allclose(a, b, rtol=0, atol=1e-12 * float(np.abs(a).max()))


def test_attention_is_that_of_all_positions_with_the_token():
    task = TokenTask()
    run = TokenRun(Parameterization.FAFO, "uniform", "uniform")
    params = run.start(1)
    tokens = sample_tokens(jax.random.key(1), task, 8)
    layer = Attention(**{name: circuit(m) for name, m in params.items()})
    scores, _ = layer(tokens.tokens, tokens.queries, task.score_scale)
    attention, _ = run.outputs(params, count_tokens(task, tokens))
    rows = np.asarray(jax.nn.softmax(scores))
    for row, places, whole in zip(rows, np.asarray(tokens.tokens), np.asarray(attention), strict=True):
        assert np.allclose(np.bincount(places, row, task.n_tokens), whole, rtol=1e-12, atol=1e-15)


def test_scores_that_would_overflow_and_absent_tokens_do_no_harm():
    """An absent token with a score far above all others neither gets attention nor takes it from others."""
    scores = jnp.zeros((3, 2)).at[2, 0].set(1e4).at[0, 1].set(-1e4).at[1, 1].set(-1e4).at[2, 1].set(-1e4)
    layer = Attention(circuit({"matrix": scores}), circuit({"matrix": jnp.eye(3)}))
    counts = jnp.array([[1, 3, 0], [1, 1, 2]])

    def summed(w):
        changed = Attention(circuit({"matrix": w}), layer.ov)
        return (changed.on_counts(counts, jnp.array([0, 1]), np.array([0, 1]), 1.0)[1] ** 2).sum()

    attention, _ = layer.on_counts(counts, jnp.array([0, 1]), np.array([0, 1]), 1.0)
    assert np.allclose(attention, [[0.25, 0.75, 0], [0.25, 0.25, 0.5]], rtol=1e-15)
    assert np.isfinite(jax.grad(summed)(scores)).all()
