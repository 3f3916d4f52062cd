"""Gradients of the population loss at one point, without a step of time."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from qkflow.data import Sequences, population
from qkflow.models import Attention, Matrix, Product, aligned_start, directions, modes
from qkflow.setting import OrthogonalSetting, Problem, require
from qkflow.train.record import counts_only, mean_loss, projection


class Gradients(NamedTuple):
    """The population loss and its gradients in all entries of the full matrices.

    Args:
        loss: a scalar.
        qk: dL/dW_QK, (keys, queries).
        ov: dL/dW_OV, (classes, keys).
    """

    loss: jax.Array
    qk: jax.Array
    ov: jax.Array


def population_gradients(setting: OrthogonalSetting, qk, ov) -> Gradients:
    """Loss and full gradients at any matrices, by automatic differentiation over every sequence.

    Args:
        setting: concrete numbers, at most `MAX_SEQUENCES` sequences.
        qk: W_QK, (keys, queries), as `qkflow.models.directions` lays it out.
        ov: W_OV, (classes, keys).

    Raises:
        ArgumentError: when the population is too large.

    >>> from qkflow.models import directions
    >>> setting = OrthogonalSetting(4, 5, 2, 3, 7, 3)
    >>> qk, ov = directions(setting)
    >>> round(float(population_gradients(setting, 0 * qk, 0 * ov).loss), 12)  # log 4
    1.38629436112
    """
    loss, gradient = _differentiate(setting, Attention(Matrix(qk), Matrix(ov)))
    return Gradients(loss, gradient["qk"]["matrix"], gradient["ov"]["matrix"])


@functools.partial(jax.jit, static_argnames=("graph", "shape"))
def _value_and_grad(params, batch, score_scale, *, graph, shape):
    return jax.value_and_grad(lambda p: mean_loss(nnx.merge(graph, p), batch, shape, score_scale))(params)


def _differentiate(setting: OrthogonalSetting, model: Attention):
    """The population loss and its gradient in the layer's parameters, as nested dictionaries."""
    graph, params = nnx.split(model)
    batch, shape = Sequences(*map(jnp.asarray, population(setting))), counts_only(setting)
    loss, gradient = _value_and_grad(params, batch, float(setting.score_scale), graph=graph, shape=shape)
    return loss, nnx.to_pure_dict(gradient)


class EffectiveRates(NamedTuple):
    """How many times as fast each circuit moves as the same circuit collapsed; 1 for a collapsed one.

    Args:
        ov: along the OV direction.
        qk_shared: along the QK mode that all queries share (singular value nu_1).
        qk_class: along the rest of the QK direction (singular value nu_2).
    """

    ov: float
    qk_shared: float
    qk_class: float


def effective_rates(problem: Problem) -> EffectiveRates:
    """The implicit rescaling of the learning rates, measured on the matrices at the problem's start.

    A factorized circuit W = A B whose factors follow their negative gradients moves with velocity
    dW = -(G B^T B + A A^T G), G = dL/dW; collapsed it moves with -G. The rate is the ratio of the two along
    a direction, to be compared with `rescaling_ov(mu_OV)` and, a mode at a time, with
    `rescaling_qk(sigma_i)`.

    Args:
        problem: concrete numbers; its start is the point, with mu_ov > 0 (at 0 QK has no gradient).

    Raises:
        ArgumentError: for mu_ov = 0, or a population that is too large.

    >>> from qkflow.setting import Start
    >>> problem = Problem(OrthogonalSetting(4, 5, 2, 3, 7, 3), "CAFO", start=Start(mu_ov=0.5))
    >>> [round(rate, 6) for rate in effective_rates(problem)]  # 2 sqrt(5) mu_OV; 1 for the collapsed circuit
    [2.236068, 1.0, 1.0]
    """
    require("mu_ov_0", problem.start.mu_ov, lambda x: x > 0, "positive")
    model = aligned_start(problem)
    _, gradient = _differentiate(problem.setting, model)
    collapsed = population_gradients(problem.setting, model.qk.full(), model.ov.full())
    qk_line, ov_line = directions(problem.setting)

    def velocity(name: str) -> jax.Array:
        circuit, g = getattr(model, name), gradient[name]
        if isinstance(circuit, Product):
            return g["left"] @ circuit.right[...] + circuit.left[...] @ g["right"]
        return g["matrix"]

    def ratio(name: str, direction) -> float:
        return float(projection(velocity(name), direction) / projection(getattr(collapsed, name), direction))

    return EffectiveRates(ratio("ov", ov_line), *(ratio("qk", mode) for mode in modes(qk_line)))
