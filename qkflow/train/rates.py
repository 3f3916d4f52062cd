"""One learning rate for each circuit, for any Flax model whose modules are named `qk` and `ov`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

from qkflow.setting import ArgumentError


def circuit_labels(params: Any) -> Any:
    """The circuit, "qk" or "ov", of every parameter: the one of the two that its path names.

    Args:
        params: a pytree of parameters (an `nnx.State`, or nested dictionaries).

    Returns:
        The same tree with a label in every leaf.

    Raises:
        ArgumentError: for a parameter whose path names neither circuit, or both: without a label it would
            have no learning rate.

    >>> circuit_labels({"qk": {"key": 0.0, "query": 0.0}, "ov": {"matrix": 0.0}})
    {'ov': {'matrix': 'ov'}, 'qk': {'key': 'qk', 'query': 'qk'}}
    """

    def label(path, _):
        names = {str(getattr(part, "key", getattr(part, "name", part))) for part in path} & {"qk", "ov"}
        if len(names) != 1:
            raise ArgumentError(
                f"Parameter `{jax.tree_util.keystr(path)}` must belong to exactly one of the circuits "
                f"`qk` and `ov`, but belongs to {' and '.join(sorted(names)) or 'neither'}."
            )
        return names.pop()

    return jax.tree_util.tree_map_with_path(label, params)


def circuit_optimizer(
    optimizer: Callable[[Any], optax.GradientTransformation], step_ov: Any, step_qk: Any
) -> optax.GradientTransformation:
    """Any optimizer, with a learning rate of its own for each circuit.

    Under adaptive optimizers the ratio of the two rates is not the flow's ratio r: they normalise gradients.

    Args:
        optimizer: makes a transformation of a learning rate: `optax.sgd`, `optax.adamw`, or a
            `functools.partial` of one with its other arguments.
        step_ov: learning rate of the OV circuit: a number, a tracer or an optax schedule.
        step_qk: learning rate of the QK circuit, likewise.

    Returns:
        An optax transformation; its `init` raises `ArgumentError` for a parameter of neither circuit.

    >>> params = {"qk": jax.numpy.ones(1), "ov": jax.numpy.ones(1)}
    >>> descent = circuit_optimizer(optax.sgd, 0.1, optax.linear_schedule(0.0, 1.0, 10))
    >>> updates, _ = descent.update(params, descent.init(params))
    >>> {name: round(float(step[0]), 6) for name, step in updates.items()}  # the schedule starts at zero
    {'ov': -0.1, 'qk': -0.0}
    """
    return optax.partition({"ov": optimizer(step_ov), "qk": optimizer(step_qk)}, circuit_labels)


def circuit_sgd(step_ov: Any, step_qk: Any) -> optax.GradientTransformation:
    """Gradient descent in which a step moves each circuit by its own step size times the negative gradient.

    Args:
        step_ov: step size of the OV circuit, H lr_ov (a number or a tracer).
        step_qk: step size of the QK circuit, H lr_ov ratio.

    Returns:
        An optax transformation; its `init` raises `ArgumentError` for a parameter of neither circuit.

    >>> params = {"qk": 1.0, "ov": 1.0}
    >>> descent = circuit_sgd(0.1, 0.5)
    >>> updates, _ = descent.update({"qk": 2.0, "ov": 2.0}, descent.init(params))
    >>> {name: round(float(step), 6) for name, step in updates.items()}
    {'ov': -0.2, 'qk': -1.0}
    """
    return circuit_optimizer(optax.sgd, step_ov, step_qk)
