import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from qkflow.setting import ArgumentError
from qkflow.train import circuit_labels, circuit_sgd


class Foreign(nnx.Module):
    """A model that is not ours, with the two circuits deeper in its tree."""

    def __init__(self, stray: bool = False):
        rngs = nnx.Rngs(0)
        self.block = nnx.Dict(qk=nnx.Linear(2, 3, rngs=rngs), ov=nnx.Linear(3, 2, rngs=rngs))
        if stray:
            self.head = nnx.Linear(2, 2, rngs=rngs)


def test_each_circuit_moves_by_its_own_step_times_the_negative_gradient():
    params = nnx.state(Foreign(), nnx.Param)
    gradient = jax.tree.map(lambda x: jnp.full_like(x, 2.0), params)
    descent = circuit_sgd(0.1, 0.5)
    updates, _ = descent.update(gradient, descent.init(params), params)
    steps = nnx.to_pure_dict(updates)["block"]
    assert all(jnp.allclose(x, -0.2) for x in jax.tree.leaves(steps["ov"]))
    assert all(jnp.allclose(x, -1.0) for x in jax.tree.leaves(steps["qk"]))


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (nnx.state(Foreign(stray=True), nnx.Param), "head.*neither"),
        ({"qk": {"ov": jnp.zeros(1)}}, "ov and qk"),
        ({"qkv": jnp.zeros(1)}, "qkv.*neither"),
    ],
)
def test_a_parameter_without_one_circuit_is_refused(params, named):
    with pytest.raises(ArgumentError, match=named):
        circuit_sgd(0.1, 0.5).init(params)
    with pytest.raises(ArgumentError, match=named):
        circuit_labels(params)
